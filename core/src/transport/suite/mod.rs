//! What every transport must do, tested on each of them. All ranks of a case live in one thread,
//! which drives them in turn: nothing in a transport blocks.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub(super) mod world;

use world::{Event, World, memory, message, payload};

use super::{LossReason, Payload};
use crate::wire::frame::MAX_PAYLOAD_BYTES;

/// Sizes around every boundary that an implementation may have.
const SIZES: [usize; 17] = [
    0, 1, 2, 3, 71, 72, 73, 4095, 4096, 4097, 16_001, 32_767, 32_768, 65_465, 65_536, 262_144,
    1_000_003,
];

/// Mounts the suite on a world.
macro_rules! mount {
    ($name:ident, $world:expr) => {
        mount!($name, $world, $world);
    };
    // The second world is one that does not wait long for ranks that never come.
    ($name:ident, $world:expr, $impatient:expr) => {
        mod $name {
            use super::world;

            mount!(@ $world, every_size_arrives_in_order_in_both_directions,
                small_frames_arrive_in_order, many_peers, the_longest_payload,
                segments_of_one_piece_of_memory, a_slow_reader_holds_the_sender_back,
                a_goodbye_comes_after_the_frames, an_end_without_goodbye_is_a_death,
                closing_releases_all_memory,
                a_rank_that_only_connected_hears_of_a_death, a_closed_transport_is_silent);
            mount!(@ $impatient, a_rank_that_left_cannot_be_reached,
                losing_a_peer_releases_its_frames);
        }
    };
    (@ $world:expr, $($case:ident),*) => {
        $(#[test]
        fn $case() {
            super::$case(&$world);
        })*
    };
}

mount!(inproc, world::inproc);
mount!(sim, |size| world::sim(size, 1));
#[cfg(feature = "tcp")]
mount!(tcp, world::tcp);
#[cfg(all(feature = "tcp", target_os = "linux"))]
mount!(shm, world::shm);
#[cfg(all(feature = "tcp", target_os = "linux"))]
mount!(lending, world::lending);
#[cfg(all(feature = "tcp", target_os = "linux"))]
mount!(attaching, world::attaching);
mount!(pipes, world::pipes);
// Each of the two kinds of ranks is the one that most of a case happens on.
#[cfg(feature = "websocket")]
mount!(web_and_tcp, |size| world::mixed(size, 0), |size| world::impatient(size, 0));
#[cfg(feature = "websocket")]
mount!(tcp_and_web, |size| world::mixed(size, 1), |size| world::impatient(size, 1));
#[cfg(feature = "websocket")]
mount!(relayed, world::relayed);
#[cfg(feature = "websocket")]
mount!(encrypted, world::encrypted);

type Mount<'a> = &'a dyn Fn(u32) -> World;

fn every_size_arrives_in_order_in_both_directions(mount: Mount<'_>) {
    let mut world = mount(2);
    for (number, bytes) in (0..).zip(SIZES) {
        world.send(0, 1, number, bytes);
        world.send(1, 0, number, bytes);
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

fn small_frames_arrive_in_order(mount: Mount<'_>) {
    let mut world = mount(3);
    for number in 0..3000 {
        let bytes = (number * 37 % 300) as usize;
        world.send(0, 1, number, bytes);
        if number % 3 == 0 {
            world.send(2, 1, number, bytes);
            world.turn(1);
        }
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

fn many_peers(mount: Mount<'_>) {
    for size in [1, 2, 3, 5, 8] {
        let mut world = mount(size);
        for number in 0..6 {
            for from in 0..size {
                for to in (0..size).filter(|to| *to != from) {
                    world.send(from, to, number, SIZES[(number as usize * 3 + 1) % SIZES.len()]);
                }
            }
            world.turn(number % size);
        }
        world.drive_until_all_arrived();
        world.check_order_and_contents();
        assert!(world.transports.iter().flatten().all(|transport| transport.size() == size));
    }
}

fn the_longest_payload(mount: Mount<'_>) {
    let mut world = mount(2);
    for number in 0..3 {
        world.send(1, 0, number, MAX_PAYLOAD_BYTES as usize);
    }
    world.drive_until_all_arrived();
    world.check_order_and_contents();
}

fn segments_of_one_piece_of_memory(mount: Mount<'_>) {
    let mut world = mount(2);
    let segment_bytes = 10_007;
    let whole = crate::tensor::Region::from_vec(payload(0, 1, 7, 20 * segment_bytes));
    for segment in 0..20 {
        let part = whole.slice(segment * segment_bytes..(segment + 1) * segment_bytes);
        let mut header = message(7, 20 * segment_bytes);
        header.offset = (segment * segment_bytes) as u64;
        world.send_payload(0, 1, header, Payload::Region(part));
    }
    world.drive_until_all_arrived();
    let mut expected = payload(0, 1, 7, 20 * segment_bytes);
    whole.read(|whole| assert_eq!(whole, expected, "sending changes nothing"));
    for (header, bytes) in world.arrived(1, 0) {
        let rest = expected.split_off(segment_bytes);
        // Message 7 goes into memory, see `Recorder`.
        assert_eq!(bytes.as_deref(), Some(&expected[..]), "segment at {}", header.offset);
        expected = rest;
    }
}

fn a_slow_reader_holds_the_sender_back(mount: Mount<'_>) {
    let mut world = mount(2);
    world.connect(0, 1);
    let whole = crate::tensor::Region::zeroed(256 << 10);
    let frames = 400;
    for number in 0..frames {
        let header = message(number * 3, whole.len());
        world.send_payload(0, 1, header, Payload::Region(whole.clone()));
    }
    world.drive_only(0);
    let sent = world.sent(0, 1).len();
    assert!(sent < frames as usize, "{sent} of {frames} frames of 256 KiB left unread");
    world.drive_until_all_arrived();
    assert_eq!(world.sent(0, 1).len(), frames as usize);
}

fn a_goodbye_comes_after_the_frames(mount: Mount<'_>) {
    let mut world = mount(3);
    world.send(0, 1, 1, 100_000);
    world.send(2, 1, 1, 5);
    world.drive_until("frames left", |world| {
        world.sent(0, 1).len() == 1 && world.sent(2, 1).len() == 1
    });
    world.close(0, true);
    world.drive_until("goodbye", |world| !world.lost(1, 0).is_empty());
    assert_eq!(world.arrived(1, 0).len(), 1);
    assert_eq!(world.lost(1, 0), [LossReason::Goodbye]);
    world.send(2, 1, 2, 5);
    world.drive_until("others go on", |world| world.arrived(1, 2).len() == 2);
    assert_eq!((world.lost(1, 0).len(), world.lost(1, 2).len()), (1, 0));
    world.check_order_and_contents();
}

fn an_end_without_goodbye_is_a_death(mount: Mount<'_>) {
    let mut world = mount(2);
    world.send(0, 1, 1, 10);
    world.send(1, 0, 1, 10);
    world.drive_until_all_arrived();
    world.transports[0] = None;
    world.drive_until("death", |world| !world.lost(1, 0).is_empty());
    assert!(matches!(&world.lost(1, 0)[..], [LossReason::Died(_)]), "{:?}", world.lost(1, 0));
    let (region, released) = memory(1000);
    world.send_payload(1, 0, message(2, 1000), Payload::Region(region));
    assert!(released(), "a frame for a lost peer is dropped immediately");
    world.drive_a_while();
    assert_eq!(world.lost(1, 0).len(), 1, "a loss is told once");
}

fn closing_releases_all_memory(mount: Mount<'_>) {
    for orderly in [false, true] {
        let mut world = mount(3);
        world.connect(0, 1);
        let (region, released) = memory(1 << 20);
        for number in 0..100 {
            let header = message(number, region.len());
            world.send_payload(0, 1, header, Payload::Region(region.clone()));
            world.send_payload(0, 2, header, Payload::Region(region.clone()));
        }
        drop(region);
        world.drive_only(0);
        assert!(!released());
        world.close(0, orderly);
        assert!(released(), "orderly: {orderly}");
    }
}

fn losing_a_peer_releases_its_frames(mount: Mount<'_>) {
    let mut world = mount(2);
    world.connect(0, 1);
    let (region, released) = memory(1 << 20);
    for number in 0..100 {
        let header = message(number, region.len());
        world.send_payload(0, 1, header, Payload::Region(region.clone()));
    }
    drop(region);
    world.drive_only(0);
    assert!(!released());
    world.transports[1] = None;
    world.drive_until("death", |world| !world.lost(0, 1).is_empty());
    assert!(released());
}

fn a_rank_that_only_connected_hears_of_a_death(mount: Mount<'_>) {
    let mut world = mount(5);
    for rank in 0..5 {
        world.connect(rank, (rank + 1) % 5);
        world.connect(rank, (rank + 4) % 5);
    }
    world.drive_a_while();
    world.transports[3] = None;
    world.drive_until("deaths", |world| {
        !world.lost(2, 3).is_empty() && !world.lost(4, 3).is_empty()
    });
    world.drive_a_while();
    for event in &world.events {
        assert!(
            matches!(event, Event::Lost { peer: 3, why: LossReason::Died(_), .. }),
            "{event:?}"
        );
    }
    let others = if world.connects_early { 1 } else { 0 };
    assert_eq!(world.events.len(), 2 + others, "only the neighbours had a connection");
    assert_eq!(world.lost(2, 3).len() + world.lost(4, 3).len(), 2);
}

fn a_rank_that_left_cannot_be_reached(mount: Mount<'_>) {
    let mut world = mount(2);
    world.transports[1] = None;
    let (region, released) = memory(9);
    world.send_payload(0, 1, message(1, 9), Payload::Region(region));
    world.drive_until("loss", |world| !world.lost(0, 1).is_empty());
    assert!(matches!(&world.lost(0, 1)[..], [LossReason::Unreachable(_)]), "{:?}", world.events);
    assert!(released());
}

fn a_closed_transport_is_silent(mount: Mount<'_>) {
    let mut world = mount(2);
    world.send(0, 1, 1, 10);
    world.drive_until_all_arrived();
    world.close(1, true);
    world.close(1, false);
    let before = world.events.len();
    let (region, released) = memory(10);
    world.send_payload(1, 0, message(2, 10), Payload::Region(region));
    world.connect(1, 0);
    world.drive_only(1);
    assert!(released());
    assert_eq!(world.events.len(), before, "nothing is told");
}
