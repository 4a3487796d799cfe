//! Ranks that sleep in the system until there is something to do: they are woken, in each rank a
//! thread of its own.

use super::*;
use crate::tensor::Region;
use crate::transport::suite::world::{World, message};
use crate::transport::wait::wait;

/// Moves `rank` alone, sleeping whenever nothing moves, until `done`.
fn drive(world: &mut World, rank: Rank, done: impl Fn(&World) -> bool) {
    while !done(world) {
        if !world.turn(rank) {
            world.wait(rank);
        }
    }
}

/// Two ranks in two threads, each of which does what `each` says.
fn together(each: impl Fn(&mut World, Rank) + Sync) {
    std::thread::scope(|scope| {
        for (rank, transport) in (0..).zip(group(2, Timeouts::default())) {
            let each = &each;
            scope.spawn(move || each(&mut World::of_one(rank, transport), rank));
        }
    });
}

#[test]
fn messages_wake() {
    const ROUNDS: u32 = 2000;
    together(|world, rank| {
        let peer = 1 - rank;
        for round in 0..ROUNDS {
            if rank == round % 2 {
                world.send(rank, peer, round, 64);
                let sent = |world: &World| world.sent(rank, peer).len() > round as usize / 2;
                drive(world, rank, sent);
            } else {
                let arrived = |world: &World| world.arrived(rank, peer).len() > round as usize / 2;
                drive(world, rank, arrived);
            }
        }
    });
}

#[test]
fn room_wakes() {
    const FRAMES: usize = 400;
    together(|world, rank| {
        let peer = 1 - rank;
        if rank == 0 {
            let whole = Region::zeroed(256 << 10);
            for number in 0..FRAMES as u32 {
                let bytes = [whole.len(), 4000, 90_000][number as usize % 3];
                let header = message(number * 3, bytes);
                world.send_payload(0, 1, header, Payload::Region(whole.slice(0..bytes)));
            }
            drive(world, 0, |world| world.sent(0, 1).len() == FRAMES);
            drive(world, 0, |world| !world.lost(0, peer).is_empty());
        } else {
            drive(world, 1, |world| world.arrived(1, 0).len() == FRAMES);
        }
    });
}

#[test]
fn an_end_wakes() {
    together(|world, rank| {
        let peer = 1 - rank;
        world.send(rank, peer, 0, 10);
        drive(world, rank, |world| !world.arrived(rank, peer).is_empty());
        if rank == 0 {
            drive(world, 0, |world| !world.lost(0, 1).is_empty());
            assert!(matches!(&world.lost(0, 1)[..], [LossReason::Died(_)]));
        }
    });
}

#[test]
fn a_thread_that_has_something_to_do_does_not_sleep() {
    let mut transports = group(2, Timeouts::default());
    transports[0].connect(1);
    while !transports.iter().all(|it| it.table.active.len() == 1) {
        for transport in &mut transports {
            transport.advance(&mut Nobody);
        }
    }
    let header = message(2, 0);
    transports[0].send(1, header, Payload::Empty);
    let mut interests = Vec::new();
    transports[1].interests(&mut interests);
    assert!(wait(&interests, None), "the frame came before it slept");
    assert!(transports[1].advance(&mut Nobody));
    transports[1].advance(&mut Nobody);
    interests.clear();
    transports[1].interests(&mut interests);
    assert!(!wait(&interests, Some(std::time::Duration::ZERO)), "nothing is left to do");
    transports[0].send(1, header, Payload::Empty);
    assert!(wait(&interests, None), "the frame came while it slept");
}
