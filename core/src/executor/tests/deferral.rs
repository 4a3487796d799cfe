//! A correct operation does not fail because of a later one, whoever is late for it; what can no
//! longer end fails at once.

use std::sync::Arc;
use std::time::Duration;

use super::network::ProcessCheck;
use super::schedules::{chain_broadcast, ring_allreduce};
use super::world::{assert_ok, errors, memory, values};
use super::{Call, World, with_seeds};
use crate::completion::Completion;
use crate::generated::collective::Collective;
use crate::generated::error::Error;
use crate::tensor::Region;
use crate::wire::abort::Abort;

const SIZES: [u32; 4] = [2, 3, 5, 8];

fn allreduce(world: &mut World, rank: u32, count: usize) -> Arc<Completion> {
    let schedule = ring_allreduce(rank, world.size());
    world.issue(rank, Call::new(&schedule, vec![], vec![Region::zeroed(count * 4)]))
}

fn broadcast(world: &mut World, rank: u32, root: u32, value: i32) -> (Arc<Completion>, Region) {
    let tensor = memory([if rank == root { value } else { 0 }]);
    let schedule = chain_broadcast(rank, world.size(), root);
    let mut call = Call::new(&schedule, vec![], vec![tensor.clone()]);
    call.fingerprint.collective = Collective::Broadcast as u8;
    (world.issue(rank, call), tensor)
}

/// `rank` cannot run its next operation.
fn refuse_next(world: &mut World, rank: u32) {
    let now = world.now;
    let abort = Abort::User { rank, why: "its hook stopped it".to_owned() };
    world.executor(rank).break_from(None, abort, now);
}

/// All but `late` wait in an allreduce for it, and `odd` cannot run what comes next.
fn refuse_amid_waiting(world: &mut World, odd: u32, late: u32) -> Vec<Arc<Completion>> {
    let others = (0..world.size()).filter(|&rank| rank != late);
    let calls: Vec<_> = others.map(|rank| allreduce(world, rank, 10)).collect();
    world.settle();
    refuse_next(world, odd);
    world.settle();
    calls
}

fn assert_refused(by: u32, calls: &[Arc<Completion>]) {
    for error in errors(calls) {
        let is_it = matches!(&error, Error::Aborted { rank, why, .. }
            if *rank == by && why == "its hook stopped it");
        assert!(is_it, "{error}");
    }
}

/// With frames alone, and with a board.
fn worlds(seed: u64, test: impl Fn(World)) {
    for size in SIZES {
        test(World::new(size, seed));
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        test(World::with_board(size, seed));
    }
}

#[test]
fn what_all_have_issued_ends_well_and_what_follows_fails() {
    with_seeds(|seed| {
        for count in [10, 200_000] {
            worlds(seed, |mut world| {
                let (size, odd) = (world.size(), seed as u32 % world.size());
                let mut earlier = Vec::new();
                for rank in 0..size {
                    earlier.extend((0..3).map(|_| allreduce(&mut world, rank, count)));
                }
                for _ in 0..seed * 10 {
                    let rank = world.random.below(size as usize) as u32;
                    world.step(rank);
                }
                refuse_next(&mut world, odd);
                let others = (0..size).filter(|&rank| rank != odd);
                let lost: Vec<_> = others.map(|rank| allreduce(&mut world, rank, count)).collect();
                world.run(&earlier);
                assert_ok(&earlier);
                world.run(&lost);
                assert_refused(odd, &lost);
            });
        }
    });
}

#[test]
fn a_rank_that_comes_late_finds_what_the_others_have_given() {
    with_seeds(|seed| {
        worlds(seed, |mut world| {
            let (size, odd) = (world.size(), seed as u32 % world.size());
            let late = (odd + 1) % size;
            let mut calls = Vec::new();
            for rank in (0..size).filter(|&rank| rank != late) {
                calls.push(broadcast(&mut world, rank, odd, 7));
            }
            // The root has given all that it has to give.
            world.settle();
            refuse_next(&mut world, odd);
            world.settle();
            assert!(world.executor(late).broken().is_none(), "it can still take part");
            world.pass(Duration::from_millis(500));
            world.settle();
            calls.push(broadcast(&mut world, late, odd, 7));
            let completions: Vec<_> = calls.iter().map(|call| call.0.clone()).collect();
            world.run(&completions);
            assert_ok(&completions);
            assert!(calls.iter().all(|(_, tensor)| values(tensor) == [7]));
            let next = allreduce(&mut world, late, 10);
            world.step(late);
            assert_refused(odd, &[next]);
        });
    });
}

#[test]
fn a_rank_that_has_explained_itself_may_end() {
    with_seeds(|seed| {
        worlds(seed, |mut world| {
            world.network.lock().unwrap().process_check = ProcessCheck::AllArrived;
            let (size, odd) = (world.size(), seed as u32 % world.size());
            let late = (odd + 1) % size;
            let others = (0..size).filter(|&rank| rank != late);
            let mut calls: Vec<_> =
                others.map(|rank| broadcast(&mut world, rank, odd, 7)).collect();
            world.settle();
            refuse_next(&mut world, odd);
            world.settle();
            // Then it tells those to whom it had no connection.
            world.pass(Duration::from_millis(5));
            world.settle();
            world.kill(odd);
            world.settle();
            world.pass(Duration::from_millis(500));
            world.settle();
            calls.push(broadcast(&mut world, late, odd, 7));
            let completions: Vec<_> = calls.iter().map(|call| call.0.clone()).collect();
            world.run(&completions);
            assert_ok(&completions);
        });
    });
}

#[test]
fn who_waits_for_a_message_alone_fails_at_once_and_so_do_those_who_wait_for_it() {
    with_seeds(|seed| {
        worlds(seed, |mut world| {
            let (size, odd) = (world.size(), seed as u32 % world.size());
            let receiver = (odd + 1) % size;
            // The receiver would come to the broadcast after the message.
            let message = world.recv(receiver, Some(odd), 0, &Region::zeroed(4));
            let root = broadcast(&mut world, odd, odd, 7).0;
            let others = (0..size).filter(|&rank| rank != odd && rank != receiver);
            let others: Vec<_> =
                others.map(|rank| allreduce_after(&mut world, rank, odd)).collect();
            world.run(std::slice::from_ref(&root));
            assert_ok(&[root]);
            refuse_next(&mut world, odd);
            // Ranks without a connection are told of news a moment later.
            world.settle();
            world.pass(Duration::from_millis(5));
            world.settle();
            assert_refused(odd, &[message]);
            assert_refused(odd, &others);
        });
    });
}

/// The second operation of a rank, which needs all; its broadcast may end.
fn allreduce_after(world: &mut World, rank: u32, root: u32) -> Arc<Completion> {
    let _ = broadcast(world, rank, root, 7);
    allreduce(world, rank, 10)
}

#[test]
fn who_is_told_of_a_failure_does_not_wait_in_earlier_operations_for_their_deadline() {
    with_seeds(|seed| {
        for size in [3, 5, 8] {
            let mut world = World::new(size, seed);
            let odd = seed as u32 % size;
            let late = (odd + 1) % size;
            let calls = refuse_amid_waiting(&mut world, odd, late);
            world.pass(Duration::from_millis(700));
            world.settle();
            assert!(calls.iter().all(|call| !call.is_done()), "the late rank may still come");
            world.pass(Duration::from_millis(200));
            world.run(&calls);
            assert_refused(odd, &calls);
        }
    });
}

#[test]
fn who_found_a_failure_waits_in_earlier_operations_until_their_deadline() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let calls = refuse_amid_waiting(&mut world, 0, 1);
        world.pass(Duration::from_secs(59));
        world.settle();
        assert!(!calls[0].is_done(), "it waits for the late rank");
        world.pass(Duration::from_secs(2));
        world.run(&calls);
        for error in errors(&calls) {
            assert!(matches!(error, Error::CollectiveTimeout { .. }), "{error}");
        }
    });
}

#[test]
fn a_death_ends_what_a_failure_had_left_alone() {
    with_seeds(|seed| {
        for size in [3, 5, 8] {
            let mut world = World::new(size, seed);
            world.network.lock().unwrap().process_check = ProcessCheck::AllArrived;
            let odd = seed as u32 % size;
            let late = (odd + 1) % size;
            let calls = refuse_amid_waiting(&mut world, odd, late);
            world.kill(late);
            world.settle();
            world.pass(Duration::from_millis(5));
            world.run(&calls);
            for error in errors(&calls) {
                assert!(matches!(error, Error::RankFailed { rank, .. } if rank == late), "{error}");
            }
        }
    });
}

#[test]
fn what_a_rank_had_done_before_it_aborted_ends_well() {
    with_seeds(|seed| {
        worlds(seed, |mut world| {
            let (size, odd) = (world.size(), seed as u32 % world.size());
            let own = broadcast(&mut world, odd, odd, 7).0;
            world.run(std::slice::from_ref(&own));
            let now = world.now;
            let abort = Abort::User { rank: odd, why: "its hook stopped it".to_owned() };
            world.executor(odd).break_with(abort, now);
            world.settle();
            let others: Vec<u32> = (0..size).filter(|&rank| rank != odd).collect();
            let first: Vec<_> =
                others.iter().map(|&rank| broadcast(&mut world, rank, odd, 7).0).collect();
            world.run(&first);
            assert_ok(&first);
            let second: Vec<_> =
                others.iter().map(|&rank| allreduce(&mut world, rank, 10)).collect();
            world.run(&second);
            assert_refused(odd, &second);
        });
    });
}

/// Small operations over a board; the root of a broadcast there waits for nobody.
#[cfg(all(feature = "tcp", target_os = "linux"))]
#[test]
fn what_a_rank_showed_on_the_board_before_it_failed_counts() {
    use super::boards::{call, small};

    let issue = |world: &mut World, rank: u32, collective, root| {
        let small = small(collective, rank, world.size(), root);
        world.issue(rank, call(small, 3, vec![], vec![Region::zeroed(12)]))
    };
    with_seeds(|seed| {
        for size in SIZES {
            let mut world = World::with_board(size, seed);
            let odd = seed as u32 % size;
            let mut earlier = Vec::new();
            for rank in 0..size {
                let calls = (0..3).map(|_| issue(&mut world, rank, Collective::Allreduce, 0));
                earlier.extend(calls);
            }
            earlier.push(issue(&mut world, odd, Collective::Broadcast, odd));
            world.run(&earlier);
            refuse_next(&mut world, odd);
            world.settle();
            let others: Vec<u32> = (0..size).filter(|&rank| rank != odd).collect();
            for &rank in &others {
                earlier.push(issue(&mut world, rank, Collective::Broadcast, odd));
            }
            world.run(&earlier);
            assert_ok(&earlier);
            let last = |&rank: &u32| issue(&mut world, rank, Collective::Allreduce, 0);
            let last: Vec<_> = others.iter().map(last).collect();
            world.run(&last);
            assert_refused(odd, &last);
        }
    });
}
