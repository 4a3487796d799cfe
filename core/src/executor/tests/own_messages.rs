//! Messages of a rank to itself: both orders of the calls, tags, any source, sizes, what is held.

use std::time::Duration;

use super::world::{assert_ok, errors, memory, values};
use super::{SIZES, World, with_seeds};
use crate::executor::limits::MESSAGE_WINDOW_BYTES;
use crate::generated::error::Error;
use crate::tensor::Region;

#[test]
fn a_message_comes_whether_the_send_or_the_receive_is_first() {
    with_seeds(|seed| {
        for size in SIZES {
            let mut world = World::new(size, seed);
            let rank = size - 1;
            for count in [0usize, 3, 50_000, 400_000] {
                let sent = memory((0..count).map(|i| i as i32 - 7));
                let into = Region::zeroed(count * 4);
                let all = match world.random.below(2) {
                    0 => [world.send(rank, rank, 4, &sent), world.recv(rank, Some(rank), 4, &into)],
                    _ => [world.recv(rank, Some(rank), 4, &into), world.send(rank, rank, 4, &sent)],
                };
                world.run(&all);
                assert_ok(&all);
                assert_eq!(values(&into), values(&sent));
                assert!(all.iter().any(|it| it.source_rank() == Some(rank)));
            }
        }
    });
}

#[test]
fn messages_meet_by_tag_in_the_order_they_were_sent() {
    let mut world = World::new(2, 1);
    let mut all = Vec::new();
    for (tag, value) in [(1, 10), (2, 20), (1, 11), (2, 21)] {
        all.push(world.send(0, 0, tag, &memory([value])));
    }
    let places: Vec<_> = [2, 1, 1, 2].map(|tag| (tag, Region::zeroed(4))).into();
    all.extend(places.iter().map(|(tag, into)| world.recv(0, Some(0), *tag, into)));
    world.run(&all);
    assert_ok(&all);
    let got: Vec<_> = places.iter().flat_map(|(_, into)| values(into)).collect();
    assert_eq!(got, [20, 10, 11, 21]);
}

#[test]
fn a_receive_from_any_rank_takes_those_of_others_and_its_own() {
    with_seeds(|seed| {
        let mut world = World::new(3, seed);
        let mut all: Vec<_> =
            (0..3).map(|rank| world.send(rank, 0, 5, &memory([rank as i32]))).collect();
        world.settle();
        let mut places = Vec::new();
        for _ in 0..3 {
            let into = Region::zeroed(4);
            all.push(world.recv(0, None, 5, &into));
            places.push(into);
        }
        world.run(&all);
        assert_ok(&all);
        let mut got: Vec<_> = places.iter().flat_map(values).collect();
        for (work, value) in all[3..].iter().zip(&got) {
            assert_eq!(work.source_rank(), Some(*value as u32));
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2]);
    });
}

#[test]
fn a_message_of_another_size_fails_and_the_group_goes_on() {
    let mut world = World::new(2, 0);
    let expected = |called: &str, sent_bytes| Error::MessageSize {
        from: 1,
        to: 1,
        tag: 3,
        sent_bytes,
        buffer_bytes: 12,
        collective: called.to_owned(),
    };
    // Its send is over before the receive is called.
    let sent = world.send(1, 1, 3, &Region::zeroed(8));
    let received = world.recv(1, Some(1), 3, &Region::zeroed(12));
    world.run(&[sent.clone(), received.clone()]);
    assert_ok(&[sent]);
    assert_eq!(errors(&[received]), [expected("recv", 8)]);
    // The receive waits for it, or it for the receive.
    let received = world.recv(1, Some(1), 3, &Region::zeroed(12));
    let sent = world.send(1, 1, 3, &Region::zeroed(8));
    world.run(&[sent.clone(), received.clone()]);
    assert_eq!(errors(&[sent, received]), [expected("send", 8), expected("recv", 8)]);
    let large = MESSAGE_WINDOW_BYTES as u64;
    let sent = world.send(1, 1, 3, &Region::zeroed(large as usize));
    let received = world.recv(1, Some(1), 3, &Region::zeroed(12));
    world.run(&[sent.clone(), received.clone()]);
    assert_eq!(errors(&[sent, received]), [expected("send", large), expected("recv", large)]);
    let all = [
        world.send(1, 0, 3, &memory([1, 2])),
        world.recv(0, Some(1), 3, &Region::zeroed(8)),
        world.send(1, 1, 3, &memory([1, 2])),
        world.recv(1, Some(1), 3, &Region::zeroed(8)),
    ];
    world.run(&all);
    assert_ok(&all);
}

#[test]
fn what_is_held_is_bounded_and_what_is_beyond_waits_in_its_place() {
    let mut world = World::new(1, 0);
    let count = 10_000;
    let sent: Vec<_> = (0..50)
        .map(|k| {
            let sent = memory(vec![k; count]);
            (world.send(0, 0, 0, &sent), sent)
        })
        .collect();
    world.settle();
    let over = sent.iter().filter(|(send, _)| send.is_done()).count();
    assert!(over * count * 4 <= MESSAGE_WINDOW_BYTES, "{over} are held");
    assert!((over + 1) * count * 5 > MESSAGE_WINDOW_BYTES, "only {over} are held");
    for (k, (send, memory)) in sent.iter().enumerate() {
        if send.is_done() {
            // It was copied.
            memory.write(|bytes| bytes.fill(0));
        }
        let into = Region::zeroed(count * 4);
        let all = [send.clone(), world.recv(0, Some(0), 0, &into)];
        world.run(&all);
        assert_ok(&all);
        assert_eq!(values(&into), vec![k as i32; count]);
    }
}

#[test]
fn memory_may_be_sent_to_itself() {
    let mut world = World::new(1, 0);
    let both = memory([1, 2, 3, 4, 5, 6]);
    let all = [
        world.recv(0, Some(0), 0, &both.slice(8..24)),
        world.send(0, 0, 0, &both.slice(0..16)),
        world.recv(0, Some(0), 1, &both),
        world.send(0, 0, 1, &both),
    ];
    world.run(&all);
    assert_ok(&all);
    assert_eq!(values(&both), [1, 2, 1, 2, 3, 4]);
}

#[test]
fn what_is_never_received_ends_at_its_deadline_or_with_the_group() {
    for waits in [true, false] {
        let mut world = World::new(2, 0);
        let held = world.send(0, 0, 0, &Region::zeroed(8));
        let waiting = world.send(0, 0, 0, &Region::zeroed(2 * MESSAGE_WINDOW_BYTES));
        world.settle();
        assert_ok(&[held]);
        match waits {
            true => world.now += Duration::from_secs(3600),
            false => {
                let now = world.now;
                world.executor(0).leave(now);
            }
        }
        world.run(std::slice::from_ref(&waiting));
        let error = errors(&[waiting]).remove(0);
        match (waits, error) {
            (true, Error::CollectiveTimeout { .. }) | (false, Error::Aborted { .. }) => {}
            (_, other) => panic!("{other}"),
        }
    }
}
