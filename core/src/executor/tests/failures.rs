//! Nothing hangs, nothing lies: mismatches, deaths, deadlines, aborts, departures.

use std::sync::Arc;
use std::time::Duration;

use super::network::ProcessCheck;
use super::schedules::{chain_broadcast, direct_allgather, ring_allreduce};
use super::world::{assert_ok, errors};
use super::{Call, SIZES, World, with_seeds};
use crate::completion::Completion;
use crate::generated::collective::Collective;
use crate::generated::error::Error;
use crate::tensor::Region;
use crate::transport::sim::Options;
use crate::wire::abort::Abort;

fn allreduce(world: &mut World, rank: u32, count: usize) -> Arc<Completion> {
    let schedule = ring_allreduce(rank, world.size());
    world.issue(rank, Call::new(&schedule, vec![], vec![Region::zeroed(count * 4)]))
}

#[test]
fn a_mismatch_is_raised_on_every_rank_and_names_both_sides() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            for counts in [(10, 11), (200_000, 200_001), (10, 200_000)] {
                let mut world = World::new(size, seed);
                let odd = seed as u32 % size;
                let calls: Vec<_> = (0..size)
                    .map(|rank| {
                        let count = if rank == odd { counts.0 } else { counts.1 };
                        allreduce(&mut world, rank, count)
                    })
                    .collect();
                world.run(&calls);
                for error in errors(&calls) {
                    let Error::CollectiveMismatch {
                        rank,
                        other_rank,
                        ours,
                        theirs,
                        sequence,
                        collective,
                        ..
                    } = &error
                    else {
                        panic!("{error}");
                    };
                    assert_eq!((collective.as_str(), *sequence), ("allreduce", 1));
                    assert!(*rank == odd || *other_rank == odd, "{error}");
                    assert_ne!(rank, other_rank);
                    let text = format!("{ours} {theirs}");
                    assert!(text.contains(&format!("{} i32", counts.0)), "{text}");
                    assert!(text.contains(&format!("{} i32", counts.1)), "{text}");
                }
            }
        }
    });
}

#[test]
fn different_collectives_are_a_mismatch() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let mut calls = Vec::new();
        for rank in 0..size {
            let mut call =
                Call::new(&chain_broadcast(rank, size, 0), vec![], vec![Region::zeroed(400)]);
            call.fingerprint.collective = Collective::Broadcast as u8;
            if rank == 1 {
                call = Call::new(&ring_allreduce(rank, size), vec![], vec![Region::zeroed(400)]);
            }
            calls.push(world.issue(rank, call));
        }
        // A rank that had finished learns of it at its next call.
        world.settle();
        for (rank, call) in calls.iter().enumerate() {
            let error = call.error().unwrap_or_else(|| {
                let next = allreduce(&mut world, rank as u32, 1);
                world.step(rank as u32);
                next.error().expect("the group is broken")
            });
            let text = error.to_string();
            assert!(matches!(error, Error::CollectiveMismatch { .. }), "{text}");
            assert!(text.contains("allreduce") && text.contains("broadcast"), "{text}");
        }
    });
}

#[test]
fn a_rank_that_had_finished_raises_on_its_next_call() {
    let mut world = World::new(2, 4);
    // The root of a small broadcast is done as soon as its message has left.
    let root = Call::new(&chain_broadcast(0, 2, 0), vec![], vec![Region::zeroed(4)]);
    let root = world.issue(0, root);
    world.run(std::slice::from_ref(&root));
    assert_ok(&[root]);
    let other =
        world.issue(1, Call::new(&chain_broadcast(1, 2, 0), vec![], vec![Region::zeroed(8)]));
    world.run(&[other]);
    world.settle();
    let next = allreduce(&mut world, 0, 1);
    world.step(0);
    assert!(matches!(errors(&[next])[0], Error::CollectiveMismatch { sequence: 1, .. }));
}

#[test]
fn block_sizes_on_which_ranks_disagree_are_a_mismatch() {
    with_seeds(|seed| {
        let mut world = World::new(2, seed);
        let calls: Vec<_> = (0..2)
            .map(|rank| {
                let blocks =
                    vec![Region::zeroed(8), Region::zeroed(if rank == 0 { 8 } else { 16 })];
                let input = vec![blocks[rank as usize].clone()];
                let mut call = Call::new(&direct_allgather(rank, 2), input, blocks);
                call.fingerprint.elements = 0;
                world.issue(rank, call)
            })
            .collect();
        // Rank 1 can be done before rank 0 finds it.
        world.run(&calls);
        let text = errors(&calls[..1])[0].to_string();
        assert!(text.contains("16 bytes") && text.contains("8 bytes"), "{text}");
    });
}

#[test]
fn a_death_names_the_rank_and_the_local_operation_on_every_rank() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            let mut world = World::new(size, seed);
            let dead = seed as u32 % size;
            let calls: Vec<_> = (0..size)
                .filter(|&rank| rank != dead)
                .map(|rank| allreduce(&mut world, rank, 70_000))
                .collect();
            world.settle();
            world.kill(dead);
            world.settle();
            world.pass(Duration::from_millis(60));
            world.run(&calls);
            for error in errors(&calls) {
                let Error::RankFailed { rank, collective, sequence, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!((*rank, collective.as_str(), *sequence), (dead, "allreduce", 1));
            }
            // Later calls fail immediately, with their own number.
            let rank = (dead + 1) % size;
            let later = allreduce(&mut world, rank, 1);
            world.step(rank);
            assert!(matches!(later.error(), Some(Error::RankFailed { sequence: 2, .. })));
        }
    });
}

#[test]
fn a_death_at_any_moment_is_told_by_name_or_comes_too_late() {
    for seed in 0..60 {
        let size = 5;
        let dead = seed as u32 % size;
        let death = Some((dead, seed * 20_000));
        let mut world = World::simulated(size, &Options { seed, death, ..Options::default() });
        let mut calls = Vec::new();
        for rank in (0..size).filter(|&rank| rank != dead) {
            for _ in 0..3 {
                calls.push(allreduce(&mut world, rank, 30_000));
            }
        }
        for _ in 0..3 {
            let _ = allreduce(&mut world, dead, 30_000);
        }
        world.run(&calls);
        for call in calls {
            if let Some(Err(error)) = call.result() {
                let right = matches!(error, Error::RankFailed { rank, .. } if rank == dead);
                assert!(right, "seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn the_end_of_a_process_needs_no_time_to_be_believed() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            let graces_ms = [
                (ProcessCheck::AllArrived, 0),
                (ProcessCheck::SomeLost, 2),
                (ProcessCheck::Silence, 2),
                (ProcessCheck::Unknown, 50),
            ];
            for (check, grace_ms) in graces_ms {
                let mut world = World::new(size, seed);
                world.network.lock().unwrap().process_check = check;
                let dead = seed as u32 % size;
                let others = (0..size).filter(|&rank| rank != dead);
                let calls: Vec<_> =
                    others.map(|rank| allreduce(&mut world, rank, 70_000)).collect();
                world.settle();
                world.kill(dead);
                if grace_ms > 0 {
                    world.settle();
                    assert!(calls.iter().all(|call| !call.is_done()), "they wait for a reason");
                    world.pass(Duration::from_millis(grace_ms));
                }
                world.run(&calls);
                for error in errors(&calls) {
                    let Error::RankFailed { rank, why, .. } = &error else { panic!("{error}") };
                    let says_so = why.contains("its process ended");
                    let is_known =
                        matches!(check, ProcessCheck::AllArrived | ProcessCheck::SomeLost);
                    assert_eq!((*rank, says_so), (dead, is_known), "{why}");
                }
            }
        }
    });
}

#[test]
fn ranks_without_data_for_the_dead_one_hear_of_it() {
    with_seeds(|seed| {
        let size = 8;
        let mut world = World::new(size, seed);
        // Rank 6 waits for rank 5, which never calls; rank 1 dies, far from both.
        let mut call = Call::new(&chain_broadcast(6, size, 5), vec![], vec![Region::zeroed(4)]);
        call.fingerprint.collective = Collective::Broadcast as u8;
        let waiting = world.issue(6, call);
        world.kill(1);
        world.settle();
        world.pass(Duration::from_millis(60));
        world.run(std::slice::from_ref(&waiting));
        let error = &errors(&[waiting])[0];
        let Error::RankFailed { rank: 1, collective, .. } = error else { panic!("{error}") };
        assert_eq!(collective, "broadcast");
    });
}

#[test]
fn an_operation_past_its_deadline_names_the_ranks_it_waits_for() {
    with_seeds(|seed| {
        for size in [2, 3, 5] {
            let mut world = World::new(size, seed);
            let calls: Vec<_> = (1..size).map(|rank| allreduce(&mut world, rank, 10)).collect();
            world.settle();
            assert!(calls.iter().all(|call| !call.is_done()));
            world.pass(Duration::from_secs(61));
            world.run(&calls);
            for error in errors(&calls) {
                let Error::CollectiveTimeout {
                    collective,
                    waited_ms,
                    detail,
                    rank,
                    missing_ranks,
                    waiting_rank,
                    ..
                } = &error
                else {
                    panic!("{error}");
                };
                assert_eq!((collective.as_str(), *waited_ms), ("allreduce", 61_000));
                assert_eq!(missing_ranks.first(), Some(rank), "{error}");
                assert!(!missing_ranks.contains(waiting_rank), "{error}");
                assert!(detail.contains("waiting for rank"), "{detail}");
            }
            world.settle();
            let late = allreduce(&mut world, 0, 10);
            world.step(0);
            assert!(matches!(errors(&[late])[0], Error::CollectiveTimeout { .. }));
        }
    });
}

#[test]
fn an_abort_reaches_everybody() {
    with_seeds(|seed| {
        for size in SIZES {
            let mut world = World::new(size, seed);
            let calls: Vec<_> = (1..size).map(|rank| allreduce(&mut world, rank, 1000)).collect();
            let now = world.now;
            let abort = Abort::User { rank: 0, why: "enough".to_owned() };
            world.executor(0).break_with(abort, now);
            world.run(&calls);
            for error in errors(&calls) {
                let text = error.to_string();
                assert!(text.contains("rank 0: enough"), "{text}");
            }
        }
    });
}

#[test]
fn memory_is_released_before_a_failure_is_told() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let mut calls = Vec::new();
        for rank in 0..size {
            let tensor = Region::zeroed(2_000_000);
            let schedule = ring_allreduce(rank, size);
            let call = world.issue(rank, Call::new(&schedule, vec![], vec![tensor.clone()]));
            call.on_done(move |_| assert!(tensor.is_unique()));
            calls.push(call);
        }
        for _ in 0..20 + seed {
            let rank = world.random.below(3) as u32;
            world.step(rank);
        }
        let now = world.now;
        let abort = Abort::User { rank: 1, why: "in the middle".to_owned() };
        world.executor(1).break_with(abort, now);
        world.run(&calls);
        assert_eq!(errors(&calls).len(), 3);
    });
}

#[test]
fn a_rank_that_leaves_in_order_harms_nobody_until_it_is_needed() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::new(size, seed);
        let calls: Vec<_> = (0..size).map(|rank| allreduce(&mut world, rank, 1000)).collect();
        world.run(&calls);
        assert_ok(&calls);
        let now = world.now;
        world.executor(2).leave(now);
        world.settle();
        let all = [
            world.send(0, 1, 0, &Region::zeroed(10)),
            world.recv(1, Some(0), 0, &Region::zeroed(10)),
        ];
        world.run(&all);
        assert_ok(&all);
        let calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 1000)).collect();
        world.run(&calls);
        for error in errors(&calls) {
            assert!(matches!(error, Error::RankFailed { rank: 2, .. }), "{error}");
        }
    });
}

#[test]
fn a_stall_is_reported_with_those_waited_for() {
    let mut world = World::new(3, 0);
    let now = world.now;
    assert_eq!(world.executor(1).stalled(now), None);
    let call = allreduce(&mut world, 1, 10);
    world.settle();
    world.pass(Duration::from_secs(5));
    let now = world.now;
    let report = world.executor(1).stalled(now).unwrap();
    assert_eq!((report.sequence, report.stalled_for.as_secs()), (1, 5));
    assert_eq!(report.waiting_for, [0, 2]);
    assert!(!call.is_done());
}

#[test]
fn frames_of_another_generation_are_dropped() {
    let mut world = World::new(2, 0);
    let group = crate::executor::GroupIdentity { name: "world".to_owned(), generation: 2 };
    let transport = super::network::Loopback::new(0, 2, &world.network, 9);
    let mut old = crate::executor::Executor::new(Box::new(transport), group, world.now);
    let abort = Abort::User { rank: 0, why: "of the past".to_owned() };
    old.break_with(abort, world.now);
    for _ in 0..20 {
        old.advance(world.now);
    }
    std::mem::forget(old);
    let calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 10)).collect();
    world.run(&calls);
    assert_ok(&calls);
}

#[test]
fn a_message_to_who_left_fails_as_one_from_it_does() {
    with_seeds(|seed| {
        for bytes in [0, 10, 100_000] {
            for receives in [false, true] {
                let mut world = World::new(3, seed);
                let now = world.now;
                world.executor(2).leave(now);
                world.settle();
                let region = Region::zeroed(bytes);
                let call = match receives {
                    true => world.recv(0, Some(2), 7, &region),
                    false => world.send(0, 2, 7, &region),
                };
                world.run(std::slice::from_ref(&call));
                let error = &errors(&[call])[0];
                assert!(matches!(error, Error::RankFailed { rank: 2, .. }), "{error}");
                assert!(error.to_string().contains("left"), "{error}");
            }
        }
    });
}

#[test]
fn an_operation_before_the_one_on_which_ranks_disagree_ends_well() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            for count in [10, 200_000] {
                let mut world = World::new(size, seed);
                let first: Vec<_> =
                    (0..size).map(|rank| allreduce(&mut world, rank, count)).collect();
                let second: Vec<_> = (0..size)
                    .map(|rank| allreduce(&mut world, rank, if rank == 0 { 7 } else { 8 }))
                    .collect();
                world.run(&first);
                assert_ok(&first);
                world.run(&second);
                for error in errors(&second) {
                    let is_it = matches!(error, Error::CollectiveMismatch { sequence: 2, .. });
                    assert!(is_it, "{error}");
                }
            }
        }
    });
}

#[test]
fn an_operation_that_does_not_need_a_rank_that_left_ends_well() {
    with_seeds(|seed| {
        for size in [3, 5] {
            for count in [10, 200_000] {
                let mut world = World::new(size, seed);
                let first: Vec<_> =
                    (0..size).map(|rank| allreduce(&mut world, rank, count)).collect();
                let second: Vec<_> =
                    (1..size).map(|rank| allreduce(&mut world, rank, 10)).collect();
                // Rank 0 leaves as soon as its own operation has ended.
                world.run(std::slice::from_ref(&first[0]));
                let now = world.now;
                world.executor(0).leave(now);
                world.run(&first);
                assert_ok(&first);
                world.run(&second);
                for error in errors(&second) {
                    assert!(matches!(error, Error::RankFailed { rank: 0, .. }), "{error}");
                }
            }
        }
    });
}

#[test]
fn a_broken_group_closes_as_soon_as_all_have_told_one_another() {
    with_seeds(|seed| {
        for size in [3, 4, 5, 8] {
            let mut world = World::new(size, seed);
            let calls: Vec<_> = (0..size)
                .map(|rank| allreduce(&mut world, rank, if rank == 0 { 7 } else { 8 }))
                .collect();
            world.run(&calls);
            errors(&calls);
            world.settle();
            // Ranks without a connection are told a moment later; no more time passes.
            world.pass(Duration::from_millis(10));
            world.settle();
            for rank in 0..size {
                assert!(!world.executor(rank).is_busy(), "rank {rank} of {size}");
            }
        }
    });
}

#[test]
fn who_has_asked_no_operation_why_it_failed_is_told_at_the_end() {
    let mut world = World::new(2, 0);
    let calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 7 + rank as usize)).collect();
    world.run(&calls);
    assert!(calls[0].error().is_some());
    assert_eq!(world.executor(0).untold(), None);
    let untold = world.executor(1).untold();
    assert!(matches!(untold, Some(Error::CollectiveMismatch { .. })), "{untold:?}");
    assert_eq!(world.executor(1).untold(), None, "it is told once");
}

#[test]
fn what_is_told_at_the_end_names_the_first_collective_that_failed() {
    let mut world = World::new(3, 0);
    let calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 70_000)).collect();
    world.settle();
    world.kill(2);
    world.settle();
    world.pass(Duration::from_millis(60));
    world.run(&calls);
    let untold = world.executor(0).untold().expect("a collective failed");
    let Error::RankFailed { rank: 2, collective, sequence: 1, .. } = &untold else {
        panic!("{untold}");
    };
    assert_eq!(collective, "allreduce");
}

#[test]
fn a_disagreement_does_not_wait_for_ever_for_operations_before_it() {
    with_seeds(|seed| {
        let mut world = World::new(3, seed);
        // Rank 2 never comes to the first operation.
        let mut calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 10)).collect();
        calls.extend((0..2).map(|rank| allreduce(&mut world, rank, 7 + rank as usize)));
        world.settle();
        world.pass(Duration::from_secs(1));
        // The rank that found it tells the other, which waits for as long again.
        world.settle();
        world.pass(Duration::from_secs(1));
        world.run(&calls);
        for error in errors(&calls) {
            assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
        }
    });
}

#[test]
fn all_name_the_rank_that_is_missing_and_none_that_waits_itself() {
    with_seeds(|seed| {
        for size in [3, 5, 8] {
            let mut world = World::new(size, seed);
            let missing = seed as u32 % size;
            let all: Vec<u32> = (0..size).filter(|&rank| rank != missing).collect();
            let calls: Vec<_> = all
                .iter()
                .map(|&rank| {
                    let schedule = ring_allreduce(rank, size);
                    let mut call = Call::new(&schedule, vec![], vec![Region::zeroed(40)]);
                    call.timeout = Duration::from_secs(5);
                    world.issue(rank, call)
                })
                .collect();
            // Nothing comes from the missing rank, as if its process was stopped.
            for &rank in &all {
                world.network.lock().unwrap().cut.insert((missing, rank));
            }
            for _ in 0..12 {
                world.pass(Duration::from_millis(400));
                world.settle();
            }
            world.pass(Duration::from_millis(250));
            world.run(&calls);
            for error in errors(&calls) {
                let Error::CollectiveTimeout { rank, missing_ranks, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!((*rank, &missing_ranks[..]), (missing, &[missing][..]), "{error}");
            }
        }
    });
}
