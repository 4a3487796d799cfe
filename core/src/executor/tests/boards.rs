//! Small operations over the board: right results in every order, between frames, immediately and
//! in flight; and what goes wrong is found and named as with frames.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::drivers::{SPINS, on_threads, tcp, wait};
use super::network::ProcessCheck;
use super::schedules::ring_allreduce;
use super::world::{assert_ok, errors, lend, memory, values};
use super::{Call, SIZES, World, with_seeds};
use crate::completion::{Completion, WaitIntent};
use crate::executor::{
    Driver, Executor, GroupIdentity, SmallAttempt, SmallCollective, SmallOperation,
};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::spin::SpinPolicy;
use crate::tensor::Region;
use crate::transport::board::{BOARD_PLACES, Board};
use crate::transport::shm::board::in_one_process;
use crate::wire::abort::Abort;
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint};

pub(super) fn small(collective: Collective, rank: u32, size: u32, root: u32) -> SmallCollective {
    let (dtype, reduce_op) = (DType::I32, ReduceOp::Sum);
    SmallCollective { collective, dtype, reduce_op, root, rank, size }
}

fn fingerprint(collective: Collective, elements: usize, root: u32) -> Fingerprint {
    Fingerprint {
        collective: collective as u8,
        dtype: DType::I32 as u8,
        algorithm: BOARD_ALGORITHM,
        root,
        elements: elements as u64,
        ..Fingerprint::default()
    }
}

/// A call of `rank` over the board.
pub(super) fn call(
    small: SmallCollective,
    elements: usize,
    input: Vec<Region>,
    output: Vec<Region>,
) -> Call {
    let none = Arc::default();
    Call {
        fingerprint: fingerprint(small.collective, elements, small.root),
        small: Some(small),
        ..Call::new(&none, input, output)
    }
}

fn allreduce(world: &mut World, rank: u32, elements: usize) -> Arc<Completion> {
    let small = small(Collective::Allreduce, rank, world.size(), 0);
    world.issue(rank, call(small, elements, vec![], vec![Region::zeroed(4 * elements)]))
}

pub(super) fn barrier(rank: u32, size: u32) -> Call {
    call(small(Collective::Barrier, rank, size, 0), 0, vec![], vec![])
}

/// What `rank` contributes at `index`.
fn value(rank: u32, index: usize) -> i32 {
    (rank as i32 + 1) * 1000 + index as i32
}

fn block(rank: u32, of: u32, elements: usize) -> Region {
    memory((0..elements).map(|index| value(rank, of as usize * elements + index)))
}

/// One call of every rank, and what its output must be.
fn issue_all(
    world: &mut World,
    collective: Collective,
    elements: usize,
    root: u32,
) -> Vec<(Arc<Completion>, Vec<Region>, Vec<i32>)> {
    let size = world.size();
    let sum = |at: usize| (0..size).map(|rank| value(rank, at)).sum::<i32>();
    let calls = (0..size).map(|rank| {
        let own = || vec![block(rank, 0, elements)];
        let all = || (0..size).map(|of| block(rank, of, elements)).collect::<Vec<_>>();
        let empty = |count: u32| (0..count).map(|_| Region::zeroed(4 * elements)).collect();
        let (input, output): (Vec<Region>, Vec<Region>) = match collective {
            Collective::Allreduce
            | Collective::Broadcast
            | Collective::Scan
            | Collective::Exscan => (vec![], own()),
            Collective::Reduce => (own(), empty(u32::from(rank == root))),
            Collective::Allgather => (own(), empty(size)),
            Collective::ReduceScatter => (all(), empty(1)),
            _ => (vec![], vec![]),
        };
        let start = rank as usize * elements;
        let prefix = |ranks: u32| -> Vec<i32> {
            (0..elements).map(|at| (0..ranks).map(|rank| value(rank, at)).sum()).collect()
        };
        let expected = match collective {
            Collective::Allreduce => (0..elements).map(sum).collect(),
            // Rank 0 of an exclusive scan keeps its own.
            Collective::Scan => prefix(rank + 1),
            Collective::Exscan => prefix(rank.max(1)),
            Collective::Reduce if rank == root => (0..elements).map(sum).collect(),
            Collective::Broadcast => (0..elements).map(|at| value(root, at)).collect(),
            Collective::Allgather => {
                (0..size).flat_map(|of| (0..elements).map(move |at| value(of, at))).collect()
            }
            Collective::ReduceScatter => (start..start + elements).map(sum).collect(),
            _ => vec![],
        };
        let small = small(collective, rank, size, root);
        let completion = world.issue(rank, call(small, elements, input, output.clone()));
        (completion, output, expected)
    });
    calls.collect()
}

const BOARDED: [Collective; 8] = [
    Collective::Allreduce,
    Collective::Reduce,
    Collective::Broadcast,
    Collective::Allgather,
    Collective::ReduceScatter,
    Collective::Barrier,
    Collective::Scan,
    Collective::Exscan,
];

#[test]
fn every_collective_is_right_at_every_size_and_many_are_in_flight() {
    with_seeds(|seed| {
        for size in SIZES {
            let mut world = World::with_board(size, seed);
            let mut calls = Vec::new();
            // More than there are places, so that the fast wait for the slow.
            for round in 0..3 * BOARD_PLACES as usize {
                let collective = BOARDED[(round + seed as usize) % BOARDED.len()];
                let elements = [0, 1, 3, 100][round % 4];
                calls.extend(issue_all(&mut world, collective, elements, round as u32 % size));
            }
            let completions: Vec<_> = calls.iter().map(|call| call.0.clone()).collect();
            world.run(&completions);
            assert_ok(&completions);
            for (_, output, expected) in calls {
                let got: Vec<i32> = output.iter().flat_map(values).collect();
                assert_eq!(got, expected, "{size} ranks");
            }
        }
    });
}

#[test]
fn frames_and_the_board_take_turns() {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::with_board(size, seed);
        let mut calls = Vec::new();
        let mut tensors = Vec::new();
        for round in 0..40 {
            if (round * 7 + seed as usize).is_multiple_of(3) {
                for (completion, output, expected) in
                    issue_all(&mut world, Collective::Allreduce, 5, 0)
                {
                    calls.push(completion);
                    tensors.push((output[0].clone(), expected));
                }
            } else {
                for rank in 0..size {
                    let tensor = memory(vec![rank as i32 + 1; 1 + round * 1000]);
                    let schedule = ring_allreduce(rank, size);
                    let call = Call::new(&schedule, vec![], vec![tensor.clone()]);
                    calls.push(world.issue(rank, call));
                    tensors.push((tensor, vec![6; 1 + round * 1000]));
                }
            }
        }
        world.run(&calls);
        assert_ok(&calls);
        assert!(tensors.iter().all(|(tensor, expected)| &values(tensor) == expected));
    });
}

#[test]
fn a_mismatch_on_the_board_is_raised_on_every_rank_and_names_both_sides() {
    with_seeds(|seed| {
        for size in [2, 3, 5] {
            let mut world = World::with_board(size, seed);
            let odd = seed as u32 % size;
            let calls: Vec<_> = (0..size)
                .map(|rank| allreduce(&mut world, rank, if rank == odd { 7 } else { 8 }))
                .collect();
            world.run(&calls);
            for error in errors(&calls) {
                let Error::CollectiveMismatch { rank, other_rank, ours, theirs, .. } = &error
                else {
                    panic!("{error}");
                };
                assert!((*rank == odd) != (*other_rank == odd), "{error}");
                let text = format!("{ours} {theirs}");
                assert!(text.contains("7 i32") && text.contains("8 i32"), "{text}");
            }
        }
    });
}

#[test]
fn roots_that_wait_for_nobody_find_out_that_they_are_two() {
    with_seeds(|seed| {
        for collective in [Collective::Broadcast, Collective::Reduce] {
            let mut world = World::with_board(3, seed);
            let mut calls = Vec::new();
            for rank in 0..3 {
                // Ranks 0 and 1 each mean the other to be the one that others wait for.
                let root = match collective {
                    Collective::Broadcast => rank % 2,
                    _ => 1 - rank % 2,
                };
                let small = small(collective, rank, 3, root);
                let tensor = || vec![Region::zeroed(8)];
                let input = if collective == Collective::Reduce { tensor() } else { vec![] };
                calls.push(world.issue(rank, call(small, 2, input, tensor())));
                calls.push(allreduce(&mut world, rank, 4));
            }
            // Rank 2 agrees with one of them, and may be done with both calls.
            let later = [calls[1].clone(), calls[3].clone()];
            world.run(&later);
            for error in errors(&later) {
                let Error::CollectiveMismatch { sequence, .. } = &error else { panic!("{error}") };
                assert_eq!(*sequence, 1, "{error}");
            }
        }
    });
}

#[test]
fn another_collective_over_frames_is_a_mismatch() {
    with_seeds(|seed| {
        let mut world = World::with_board(3, seed);
        let mut calls: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 8)).collect();
        let tensor = Region::zeroed(400_000);
        let frames = Call::new(&ring_allreduce(2, 3), vec![], vec![tensor]);
        calls.push(world.issue(2, frames));
        world.run(&calls);
        for error in errors(&calls) {
            assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
            assert!(error.to_string().contains("100000 i32"), "{error}");
        }
    });
}

#[test]
fn a_death_on_the_board_names_the_rank() {
    with_seeds(|seed| {
        for size in [2, 3, 5, 8] {
            let mut world = World::with_board(size, seed);
            let dead = seed as u32 % size;
            let calls: Vec<_> = (0..size)
                .filter(|&rank| rank != dead)
                .map(|rank| allreduce(&mut world, rank, 10))
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
        }
    });
}

/// Rank 0 is done and leaves by `leave` before rank 2 looks.
fn leave_early(leave: fn(&mut World)) {
    with_seeds(|seed| {
        let size = 3;
        let mut world = World::with_board(size, seed);
        let early: Vec<_> = (0..2).map(|rank| allreduce(&mut world, rank, 4)).collect();
        world.settle();
        let late = allreduce(&mut world, 2, 4);
        while !early[0].is_done() {
            world.step(0);
        }
        leave(&mut world);
        let all = [early, vec![late]].concat();
        world.run(&all);
        assert_ok(&all);
        let next: Vec<_> = (1..size).map(|rank| allreduce(&mut world, rank, 4)).collect();
        world.run(&next);
        for error in errors(&next) {
            assert!(matches!(&error, Error::RankFailed { rank: 0, .. }), "{error}");
            assert!(error.to_string().contains("left"), "{error}");
        }
    });
}

#[test]
fn what_a_rank_showed_before_it_left_counts() {
    leave_early(|world| {
        let now = world.now;
        world.executor(0).leave(now);
    });
}

#[test]
fn who_leaves_over_the_board_has_not_died_although_it_took_no_connection_in() {
    leave_early(|world| world.executor(0).leave_unheard());
}

#[test]
fn a_deadline_on_the_board_names_who_is_late() {
    with_seeds(|seed| {
        let mut world = World::with_board(3, seed);
        let calls: Vec<_> = (1..3).map(|rank| allreduce(&mut world, rank, 10)).collect();
        world.settle();
        assert!(calls.iter().all(|call| !call.is_done()));
        world.pass(Duration::from_secs(61));
        world.run(&calls);
        for error in errors(&calls) {
            let Error::CollectiveTimeout { rank, missing_ranks, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((*rank, &missing_ranks[..]), (0, &[0][..]), "{error}");
            assert!(error.to_string().contains("waiting for rank 0"), "{error}");
        }
        // What the others showed was for an operation that failed.
        let late = allreduce(&mut world, 0, 10);
        world.run(std::slice::from_ref(&late));
        assert!(matches!(errors(&[late])[0], Error::CollectiveTimeout { .. }));
    });
}

/// Ranks over real connections and a board, who read one another's memory or do not.
pub(super) fn drivers(size: u32, spin: SpinPolicy, reads_memory: bool) -> Vec<Arc<Driver>> {
    let both = tcp(size).into_iter().zip(in_one_process(size));
    let driver = |(transport, mut board): (_, Box<dyn Board>)| {
        if !reads_memory {
            board.forbid_reading();
        }
        let group = GroupIdentity { name: "board".to_owned(), generation: 0 };
        let executor = Executor::new(transport, group, Instant::now()).with_board(board);
        Driver::new(executor, spin).unwrap()
    };
    both.map(driver).collect()
}

/// Runs a call over the board as the backend does: over the fast path, or else in flight.
/// What it takes.
pub(super) fn take_turn(
    driver: &Driver,
    sequence: u64,
    mut call: Call,
    waiting: WaitIntent,
) -> Result<Vec<i32>> {
    if call.fits {
        let (given, mut taken) = call.flat();
        let (fingerprint, small) = (call.fingerprint, call.small.unwrap());
        let operation = SmallOperation { sequence, fingerprint, small };
        let mut flat = lend(&given, &mut taken);
        let (attempt, deferred) = driver.try_small(&operation, &mut flat, waiting, &mut |_| {});
        drop(deferred);
        if attempt == SmallAttempt::Done {
            return Ok(values(&Region::from_vec(taken)));
        }
        call.shown = attempt == SmallAttempt::Shown;
        // Between the two steps, a thread may lose the executor to others.
        if sequence.is_multiple_of(7) {
            thread::yield_now();
        }
    }
    let output = call.output.clone();
    let (operation, completion) = call.into_operation(sequence, Instant::now());
    drop(driver.submit(operation, waiting));
    wait(driver, &completion);
    completion.result().unwrap()?;
    Ok(output.iter().flat_map(values).collect())
}

/// An allreduce of one number.
fn add(driver: &Driver, rank: u32, size: u32, sequence: u64, waiting: WaitIntent) -> Result<i32> {
    let small = small(Collective::Allreduce, rank, size, 0);
    let tensor = memory([rank as i32 + sequence as i32]);
    let sum = take_turn(driver, sequence, call(small, 1, vec![], vec![tensor]), waiting)?;
    Ok(sum[0])
}

#[test]
fn threads_that_spin_yield_or_sleep_all_come_to_the_end() {
    for spin in SPINS {
        for size in [1, 2, 3, 5] {
            let drivers = drivers(size, spin, true);
            on_threads(&drivers, |rank, driver| {
                for sequence in 1..=300_u64 {
                    if (sequence + u64::from(rank)).is_multiple_of(50) {
                        // The others go to sleep for this rank.
                        thread::sleep(Duration::from_millis(2));
                    }
                    let waiting = [WaitIntent::Soon, WaitIntent::Later][sequence as usize % 2];
                    let sum = add(driver, rank, size, sequence, waiting);
                    let expected: u64 = (0..u64::from(size)).map(|rank| rank + sequence).sum();
                    assert_eq!(sum, Ok(expected as i32), "{size} ranks, {spin:?}");
                }
            });
        }
    }
}

#[test]
fn a_rank_that_waits_at_once_hears_of_a_death() {
    for spin in SPINS {
        let mut drivers = drivers(3, spin, true);
        on_threads(&drivers, |rank, driver| {
            assert!(add(driver, rank, 3, 1, WaitIntent::Soon).is_ok())
        });
        drivers[1].vanish();
        drivers.remove(1);
        let ranks = [0, 2];
        thread::scope(|scope| {
            for (driver, rank) in drivers.iter().zip(ranks) {
                scope.spawn(move || {
                    let error = add(driver, rank, 3, 2, WaitIntent::Soon).unwrap_err();
                    assert!(matches!(error, Error::RankFailed { rank: 1, .. }), "{error}");
                });
            }
        });
    }
}

#[test]
fn what_is_on_the_board_counts_before_an_abort_that_came_later() {
    with_seeds(|seed| {
        for (size, ends) in [(2, false), (3, false), (5, false), (2, true), (3, true), (5, true)] {
            let mut world = World::with_board(size, seed);
            {
                // The abort, and the end of the process, are read in one turn.
                let mut network = world.network.lock().unwrap();
                (network.process_check, network.in_bursts) = (ProcessCheck::AllArrived, true);
            }
            let aborts = seed as u32 % size;
            let mut calls = Vec::new();
            for rank in (0..size).filter(|&rank| rank != aborts) {
                calls.extend((0..3).map(|_| allreduce(&mut world, rank, 3)));
            }
            let own: Vec<_> = (0..3).map(|_| allreduce(&mut world, aborts, 3)).collect();
            while !own.iter().all(|call| call.is_done()) {
                world.step(aborts);
            }
            assert_ok(&own);
            let now = world.now;
            let why = Abort::User { rank: aborts, why: "it called abort()".to_owned() };
            world.executor(aborts).break_with(why, now);
            if ends {
                world.kill(aborts);
            }
            world.run(&calls);
            assert_ok(&calls);
            let others = (0..size).filter(|&rank| rank != aborts);
            let later: Vec<_> = others.map(|rank| allreduce(&mut world, rank, 3)).collect();
            world.run(&later);
            for error in errors(&later) {
                assert!(matches!(error, Error::Aborted { .. }), "ends: {ends}: {error}");
            }
        }
    });
}

#[test]
fn what_was_tried_counts_before_a_death_that_came_before_it_was_submitted() {
    with_seeds(|seed| {
        for size in [2, 3, 5] {
            let mut world = World::with_board(size, seed);
            world.network.lock().unwrap().process_check = ProcessCheck::AllArrived;
            let dead = seed as u32 % size;
            let survivors: Vec<u32> = (0..size).filter(|&rank| rank != dead).collect();
            let mut tried: Vec<Call> = survivors.iter().map(|&rank| barrier(rank, size)).collect();
            for (&rank, call) in survivors.iter().zip(&mut tried) {
                let attempt = world.try_small(rank, call);
                assert_eq!(attempt, SmallAttempt::Shown);
            }
            // The last one sees all others and is done, unlike those that cannot look again yet.
            assert_eq!(world.try_small(dead, &mut barrier(dead, size)), SmallAttempt::Done);
            world.kill(dead);
            world.settle();
            let calls = survivors.iter().zip(tried);
            let calls: Vec<_> = calls.map(|(&rank, call)| world.issue(rank, call)).collect();
            world.run(&calls);
            assert_ok(&calls);
            let later: Vec<_> =
                survivors.iter().map(|&rank| allreduce(&mut world, rank, 3)).collect();
            world.run(&later);
            assert_named(dead, &later);
        }
    });
}

#[test]
fn what_was_tried_and_is_never_submitted_holds_up_a_failure_for_a_moment() {
    let mut world = World::with_board(2, 0);
    world.network.lock().unwrap().process_check = ProcessCheck::AllArrived;
    assert_eq!(world.try_small(0, &mut barrier(0, 2)), SmallAttempt::Shown);
    world.kill(1);
    world.settle();
    assert!(world.executor(0).broken().is_none() && world.executor(0).is_busy());
    world.pass(Duration::from_secs(1));
    world.settle();
    let broken = world.executor(0).broken();
    assert!(matches!(broken, Some(Abort::Failed { rank: 1, .. })), "{broken:?}");
}

/// A world in which a rank has died, and the calls of the others. The next rank does not see that:
/// the connection between the two was never opened.
fn world_with_a_death(size: u32, seed: u64) -> (World, u32, Vec<(u32, Arc<Completion>)>) {
    let mut world = World::with_board(size, seed);
    let dead = seed as u32 % size;
    {
        let mut network = world.network.lock().unwrap();
        // The board says that it had broken nothing, whether or not all has arrived.
        let checks = [ProcessCheck::AllArrived, ProcessCheck::SomeLost];
        network.process_check = checks[seed as usize % checks.len()];
        network.cut.insert((dead, (dead + 1) % size));
    }
    let survivors = (1..size).map(|distance| (dead + distance) % size);
    let calls = survivors.map(|rank| (rank, allreduce(&mut world, rank, 3))).collect();
    world.settle();
    world.kill(dead);
    world.settle();
    (world, dead, calls)
}

fn assert_named(dead: u32, calls: &[Arc<Completion>]) {
    for error in errors(calls) {
        let is_right = matches!(error, Error::RankFailed { rank, .. } if rank == dead);
        assert!(is_right, "{error}");
    }
}

#[test]
fn who_cannot_see_a_death_is_told_of_it() {
    with_seeds(|seed| {
        for size in [3, 5, 8] {
            let (mut world, dead, calls) = world_with_a_death(size, seed);
            let calls: Vec<_> = calls.into_iter().map(|(_, call)| call).collect();
            world.pass(Duration::from_millis(5));
            world.run(&calls);
            assert_named(dead, &calls);
        }
    });
}

#[test]
fn who_cannot_see_a_death_reads_why_the_others_ended() {
    with_seeds(|seed| {
        for size in [3, 5, 8] {
            let (mut world, dead, calls) = world_with_a_death(size, seed);
            let (blind, seeing) = calls.split_first().unwrap();
            for (rank, call) in seeing {
                world.run(std::slice::from_ref(call));
                world.kill(*rank);
            }
            world.settle();
            world.pass(Duration::from_millis(60));
            world.run(std::slice::from_ref(&blind.1));
            assert_named(dead, std::slice::from_ref(&blind.1));
        }
    });
}
