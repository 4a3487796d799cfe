//! Point-to-point messages: tags, any source, order, sizes, bounds.

use std::time::Duration;

use super::world::{assert_ok, errors, memory, values};
use super::{World, with_seeds};
use crate::executor::EAGER_BYTES;
use crate::executor::limits::{MESSAGE_WINDOW_BYTES, SEGMENT_BYTES, TRANSPORT_QUEUE_BYTES};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::tensor::Region;
use crate::wire::frame::Kind;

#[test]
fn messages_meet_by_tag_in_the_order_they_were_sent() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let counts = [1usize, 0, 20_000, 3, 100_000];
        let mut all = Vec::new();
        let mut results = Vec::new();
        for (k, &count) in counts.iter().enumerate() {
            for tag in [7, 8] {
                let sent = memory((0..count).map(|i| (i + k) as i32 + tag as i32));
                all.push(world.send(0, 1, tag, &sent));
            }
            if world.random.below(2) == 0 {
                world.settle();
            }
        }
        for tag in [8, 7] {
            for (k, &count) in counts.iter().enumerate() {
                let into = Region::zeroed(count * 4);
                all.push(world.recv(1, Some(0), tag, &into));
                let expected: Vec<_> = (0..count).map(|i| (i + k) as i32 + tag as i32).collect();
                results.push((into, expected));
            }
        }
        world.run(&all);
        assert_ok(&all);
        for (into, expected) in results {
            assert_eq!(values(&into), expected);
        }
    });
}

#[test]
fn any_source_takes_one_from_each() {
    with_seeds(|seed| {
        for count in [2usize, 50_000] {
            let mut world = World::new(4, seed);
            let mut receives = Vec::new();
            let mut results = Vec::new();
            let mut sends = Vec::new();
            let early = world.random.below(2) == 0;
            for k in 0..3 {
                if early {
                    let sent = memory(vec![k as i32 + 1; count]);
                    sends.push(world.send(k + 1, 0, 5, &sent));
                    world.settle();
                }
                let into = Region::zeroed(count * 4);
                receives.push(world.recv(0, None, 5, &into));
                results.push(into);
            }
            if !early {
                for rank in 1..4 {
                    let sent = memory(vec![rank as i32; count]);
                    sends.push(world.send(rank, 0, 5, &sent));
                }
            }
            world.run(&receives);
            world.run(&sends);
            assert_ok(&receives);
            let mut sources = Vec::new();
            for (receive, into) in receives.iter().zip(results) {
                let source = receive.source_rank().unwrap();
                assert_eq!(values(&into), vec![source as i32; count]);
                sources.push(source);
            }
            sources.sort_unstable();
            assert_eq!(sources, [1, 2, 3]);
        }
    });
}

#[test]
fn a_large_message_of_another_size_fails_on_both_sides_only() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let send = world.send(0, 1, 0, &Region::zeroed(100_000));
        let recv = world.recv(1, Some(0), 0, &Region::zeroed(99_999));
        world.run(&[send.clone(), recv.clone()]);
        for (error, called) in errors(&[send, recv]).into_iter().zip(["send", "recv"]) {
            let expected = Error::MessageSize {
                from: 0,
                to: 1,
                tag: 0,
                sent_bytes: 100_000,
                buffer_bytes: 99_999,
                collective: called.to_owned(),
            };
            assert_eq!(error, expected);
        }
        // The group still works.
        let all = [
            world.send(0, 1, 0, &Region::zeroed(100_000)),
            world.recv(1, Some(0), 0, &Region::zeroed(100_000)),
        ];
        world.run(&all);
        assert_ok(&all);
    });
}

#[test]
fn a_small_message_of_another_size_breaks_the_group() {
    with_seeds(|seed| {
        let mut world = World::new(3, seed);
        let send = world.send(0, 1, 9, &Region::zeroed(8));
        let recv = world.recv(1, Some(0), 9, &Region::zeroed(12));
        let other = world.recv(2, Some(0), 9, &Region::zeroed(12));
        world.run(&[send.clone(), recv.clone(), other.clone()]);
        let expected = |called: &str| Error::MessageSize {
            from: 0,
            to: 1,
            tag: 9,
            sent_bytes: 8,
            buffer_bytes: 12,
            collective: called.to_owned(),
        };
        assert_eq!(errors(&[recv, other]), [expected("recv"), expected("recv")]);
        world.settle();
        let later = world.send(0, 1, 9, &Region::zeroed(8));
        world.step(0);
        assert_eq!(later.error(), Some(expected("send")));
    });
}

#[test]
fn messages_that_nobody_receives_are_bounded() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let bytes = 30_000;
        let many = 100;
        let mut sends = Vec::new();
        for _ in 0..many {
            sends.push(world.send(0, 1, 0, &Region::zeroed(bytes)));
        }
        world.settle();
        let gone = sends.iter().filter(|send| send.is_done()).count();
        assert!(gone > 10 && gone <= MESSAGE_WINDOW_BYTES / bytes, "{gone} left");
        let mut receives = Vec::new();
        for _ in 0..many {
            receives.push(world.recv(1, Some(0), 0, &Region::zeroed(bytes)));
        }
        world.run(&sends);
        world.run(&receives);
        assert_ok(&receives);
        // What was matched leaves the window: small messages go immediately again.
        let offers = world.network.lock().unwrap().delivered[&Kind::Offer];
        world.settle();
        let again = world.send(0, 1, 0, &Region::zeroed(bytes));
        world.run(&[again]);
        assert_eq!(world.network.lock().unwrap().delivered[&Kind::Offer], offers);
    });
}

#[test]
fn two_that_send_first_are_told_what_to_do() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let large = Region::zeroed(2 * MESSAGE_WINDOW_BYTES);
        let sends = [world.send(0, 1, 7, &large), world.send(1, 0, 7, &large)];
        world.settle();
        world.pass(Duration::from_secs(61));
        world.run(&sends);
        for error in errors(&sends) {
            let Error::CollectiveTimeout { collective, rank, waiting_rank, detail, .. } = &error
            else {
                panic!("{error}");
            };
            assert_eq!(collective, "send");
            assert_eq!(*rank, 1 - waiting_rank, "it names who is missing");
            let begin = format!("waiting for rank {rank} to receive it, with tag 7. ");
            assert!(detail.starts_with(&begin), "{detail}");
            assert!(detail.contains("isend") && detail.contains("batch_isend_irecv"), "{detail}");
        }
        // A receiver needs other advice, if any.
        let mut world = World::new(2, seed);
        let receives = [world.recv(0, Some(1), 3, &large), world.recv(0, None, 4, &large)];
        world.pass(Duration::from_secs(61));
        world.run(&receives);
        let error = errors(&receives)[0].to_string();
        assert!(error.ends_with("waiting for rank 1, with tag 3"), "{error}");
    });
}

#[test]
fn an_offer_brings_as_much_as_is_worth_it_and_the_rest_follows() {
    with_seeds(|seed| {
        for worth in [1, 40_000, SEGMENT_BYTES, 1 << 20, 4 << 20] {
            for count in [EAGER_BYTES / 4 + 1, 10_000, 1 << 18, (1 << 18) + 1] {
                // What one world has not acknowledged yet leaves the next message less room.
                let mut world = World::new(2, seed);
                world.network.lock().unwrap().unasked_bytes = worth;
                let sent = memory(0..count as i32);
                let into = Region::zeroed(count * 4);
                let early = world.random.below(2) == 0;
                let mut all = Vec::new();
                if early {
                    all.push(world.recv(1, Some(0), 0, &into));
                }
                all.push(world.send(0, 1, 0, &sent));
                world.settle();
                let offered = std::mem::take(
                    world.network.lock().unwrap().delivered_bytes.entry(Kind::Offer).or_default(),
                );
                assert_eq!(offered, worth.min(count * 4).min(TRANSPORT_QUEUE_BYTES));
                if !early {
                    assert!(!all[0].is_done(), "nobody has taken it");
                    all.push(world.recv(1, Some(0), 0, &into));
                }
                world.run(&all);
                assert_ok(&all);
                assert_eq!(values(&into), values(&sent));
            }
        }
    });
}

#[test]
fn first_bytes_that_nobody_receives_are_bounded() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        world.network.lock().unwrap().unasked_bytes = SEGMENT_BYTES;
        let sent: Vec<_> = (0..12).map(|k| memory(vec![k; 90_000])).collect();
        let mut all: Vec<_> = sent.iter().map(|memory| world.send(0, 1, 0, memory)).collect();
        world.settle();
        let offered = world.network.lock().unwrap().delivered_bytes[&Kind::Offer];
        assert!(
            offered > MESSAGE_WINDOW_BYTES / 2 && offered <= MESSAGE_WINDOW_BYTES,
            "{offered} bytes came"
        );
        let into: Vec<_> = (0..12).map(|_| Region::zeroed(360_000)).collect();
        all.extend(into.iter().map(|memory| world.recv(1, Some(0), 0, memory)));
        world.run(&all);
        assert_ok(&all);
        for (sent, into) in sent.iter().zip(&into) {
            assert_eq!(values(into), values(sent));
        }
    });
}

#[test]
fn a_peer_that_is_none_is_refused() {
    let mut world = World::new(2, 0);
    let all =
        [world.send(0, 2, 0, &Region::zeroed(1)), world.recv(0, Some(7), 0, &Region::zeroed(1))];
    world.step(0);
    for error in errors(&all) {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
}

/// Messages below and above what leaves unasked, bytes.
const LENGTHS: [usize; 3] = [8, 800, 4 * EAGER_BYTES];

#[test]
fn messages_of_unlike_types_fail_on_both_sides() {
    with_seeds(|seed| {
        for bytes in LENGTHS {
            for is_early in [false, true] {
                let mut world = World::new(2, seed);
                let (from, into) = (Region::zeroed(bytes), Region::zeroed(bytes));
                let mut calls = Vec::new();
                if is_early {
                    calls.push(world.recv_of(DType::I64, 1, Some(0), 6, &into));
                }
                let sent = world.send_of(DType::F64, 0, 1, 6, &from);
                world.settle();
                if !is_early {
                    calls.push(world.recv_of(DType::I64, 1, None, 6, &into));
                }
                world.run(&calls);
                world.settle();
                // What left unasked had succeeded on the sender, which learns of it at its next
                // call.
                let again = match sent.error() {
                    Some(_) => sent,
                    None => world.send(0, 1, 6, &from),
                };
                world.settle();
                calls.push(again);
                for error in errors(&calls) {
                    let Error::MessageDType { from: 0, to: 1, tag: 6, .. } = &error else {
                        panic!("{bytes}: {error}");
                    };
                    let text = error.to_string();
                    assert!(text.contains("f64") && text.contains("i64"), "{text}");
                }
                assert!(into.read(|bytes| bytes.iter().all(|byte| *byte == 0)));
            }
        }
    });
}

#[test]
fn a_buffer_of_bytes_takes_a_message_of_any_type() {
    with_seeds(|seed| {
        for bytes in LENGTHS {
            let mut world = World::new(2, seed);
            for (tag, dtype) in (0..).zip(DType::ALL) {
                let from = memory(0..bytes as i32 / 4);
                let into = Region::zeroed(bytes);
                let sent = world.send_of(dtype, 0, 1, tag, &from);
                let received = world.recv_of(DType::U8, 1, Some(0), tag, &into);
                let calls = [sent, received];
                world.run(&calls);
                assert_ok(&calls);
                assert_eq!(values(&into), values(&from));
            }
        }
    });
}
