//! An alltoall whose ranks do not know of each other whether their blocks fit the board: right
//! results for every mix of ranks that show bytes and ranks that run the schedule, and mismatches
//! that are found.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::boards::{self, drivers, small, take_turn};
use super::drivers::{PATIENCE, SPINS, on_threads, wait};
use super::network::Random;
use super::world::{assert_ok, errors, memory, values};
use super::{Call, SIZES, World, with_seeds};
use crate::completion::{Completion, WaitIntent};
use crate::executor::{Driver, Message, SmallAttempt, SmallCollective};
use crate::schedule::cache::{Cache, Key};
use crate::schedule::{Place, Topology};

use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::{Loan, Region};
use crate::transport::board::BOARD_PLACES;
use crate::wire::frame::Fingerprint;

/// Whether the ranks read one another's memory.
const BOARDS: [bool; 2] = [true, false];

/// Each of `cases` on each kind of board.
fn on_boards<T: Copy>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, bool)> {
    cases.into_iter().flat_map(|case| BOARDS.map(|reads_memory| (case, reads_memory)))
}

/// A call of `rank`, with blocks of these numbers of elements to and from each rank.
pub(super) fn call(rank: u32, fits: bool, algorithm: usize, to: &[usize], from: &[usize]) -> Call {
    let (size, collective) = (to.len() as u32, Collective::Alltoall);
    let mut schedules = Cache::new(Arc::new(Topology::one_host(size)));
    let place = Place { rank, size, root: 0 };
    let schedule = schedules.get(Key { collective, algorithm, place }).unwrap();
    let (dtype, reduce_op) = (DType::I32, ReduceOp::Sum);
    let block = |(other, &elements): (usize, &usize)| {
        memory((0..elements).map(|index| value(rank, other as u32, index)))
    };
    let input = to.iter().enumerate().map(block).collect();
    let output = from.iter().map(|elements| Region::zeroed(4 * elements)).collect();
    let fingerprint = Fingerprint {
        collective: collective as u8,
        dtype: dtype as u8,
        algorithm: algorithm as u8,
        ..Fingerprint::default()
    };
    let small = Some(SmallCollective { collective, dtype, reduce_op, root: 0, rank, size });
    Call { fingerprint, small, fits, ..Call::new(&schedule, input, output) }
}

/// What `from` sends to `to` at `index`.
fn value(from: u32, to: u32, index: usize) -> i32 {
    from as i32 * 1_000_000 + to as i32 * 10_000 + index as i32
}

/// Issues a call of every rank in which rank `from` sends `elements(from, to)` to rank `to`; those
/// for which `fits` says so go over the board as far as the others let them.
fn issue_all(
    world: &mut World,
    algorithm: usize,
    elements: impl Fn(u32, u32) -> usize,
    fits: impl Fn(u32) -> bool,
) -> Vec<(Arc<Completion>, Vec<Region>, Vec<i32>)> {
    let size = world.size();
    let issue = |rank| {
        let to: Vec<usize> = (0..size).map(|other| elements(rank, other)).collect();
        let from: Vec<usize> = (0..size).map(|other| elements(other, rank)).collect();
        let call = call(rank, fits(rank), algorithm, &to, &from);
        let output = call.output.clone();
        let all = (0..size).flat_map(|other| {
            (0..elements(other, rank)).map(move |index| value(other, rank, index))
        });
        (world.issue(rank, call), output, all.collect())
    };
    (0..size).map(issue).collect()
}

#[test]
fn tensors_that_fit_and_tensors_that_do_not_come_to_the_same() {
    with_seeds(|seed| {
        let mut random = Random::new(seed);
        for (size, reads_memory) in on_boards(SIZES) {
            // The last one is for blocks that all ranks know to be of one size.
            for algorithm in 0..Collective::Alltoall.algorithms().len() - 1 {
                let mut world = World::with_board_of_readers(size, seed, reads_memory);
                let mut calls = Vec::new();
                for _ in 0..3 * BOARD_PLACES {
                    let mask = random.below(1 << size) as u32;
                    let elements = [0, 1, 3, 50][random.below(4)];
                    // Rank 0 of an uneven call sends and receives more; the others see some of it.
                    let is_even = mask & 1 == 0 || random.below(2) == 0;
                    let amount = |from: u32, to: u32| match is_even {
                        true => elements,
                        false => elements + usize::from(from == 0 || to == 0),
                    };
                    let fits = |rank: u32| is_even && mask & (1 << rank) == 0;
                    calls.extend(issue_all(&mut world, algorithm, amount, fits));
                    if random.below(3) == 0 {
                        world.settle();
                    }
                }
                let completions: Vec<_> = calls.iter().map(|call| call.0.clone()).collect();
                world.run(&completions);
                assert_ok(&completions);
                for (_, output, expected) in calls {
                    let got: Vec<i32> = output.iter().flat_map(values).collect();
                    assert_eq!(got, expected, "{size} ranks, algorithm {algorithm}");
                }
            }
        }
    });
}

#[test]
fn memory_that_moves_while_others_read_it_is_read_where_it_is_then() {
    // More than is read in one turn.
    const ELEMENTS: usize = 300_000;
    with_seeds(|seed| {
        let mut random = Random::new(seed);
        let mut world = World::with_board_of_readers(2, seed, true);
        let calls = [0, 1].map(|rank| call(rank, false, 0, &[ELEMENTS; 2], &[ELEMENTS; 2]));
        let outputs = [0, 1].map(|rank: usize| calls[rank].output.clone());
        let lent: Vec<_> = calls[0].input.iter().map(|it| memory(values(it))).collect();
        let loans = calls[0].input.iter().zip(&lent).map(|(it, lent)| Loan::between(it, lent));
        let loans: Vec<_> = loans.map(Option::unwrap).collect();
        let completions: Vec<_> =
            (0..).zip(calls).map(|(rank, call)| world.issue(rank, call)).collect();
        for _ in 0..random.below(12) {
            world.step(random.below(2) as u32);
        }
        drop(loans);
        world.executor(0).note_moved(1);
        lent.iter().for_each(|memory| memory.write(|bytes| bytes.fill(0xee)));
        world.run(&completions);
        assert_ok(&completions);
        for (rank, output) in (0..).zip(outputs) {
            for (from, block) in (0..).zip(output) {
                let expected = (0..ELEMENTS).map(|index| value(from, rank, index));
                assert!(values(&block).into_iter().eq(expected), "{rank} of {from}, seed {seed}");
            }
        }
    });
}

/// One turn of `rank`: it takes what every rank gave it.
fn exchange(
    driver: &Driver,
    (rank, size): (u32, u32),
    sequence: u64,
    fits: bool,
    waiting: WaitIntent,
) -> Vec<i32> {
    let ones = &[1; 8][..size as usize];
    let input = (0..size).map(|to| memory([value(rank, to, sequence as usize)])).collect();
    let call = Call { input, ..call(rank, fits, 0, ones, ones) };
    let taken = take_turn(driver, sequence, call, waiting);
    taken.unwrap_or_else(|error| panic!("{sequence} of rank {rank}: {error}"))
}

#[test]
fn threads_exchange_whatever_fits_and_whatever_else_moves_things() {
    for spin in SPINS {
        for (size, reads_memory) in on_boards([2, 3, 5]) {
            let drivers = drivers(size, spin, reads_memory);
            on_threads(&drivers, |rank, driver| {
                // Others may lead meanwhile: a message for which somebody waits.
                let message = |peer| {
                    let completion = Arc::new(Completion::new());
                    let message = Message {
                        peer: Some(peer),
                        tag: 5,
                        dtype: crate::generated::dtype::DType::I32,
                        memory: Region::zeroed(4),
                        deadline: Instant::now() + PATIENCE,
                        finish: None,
                        completion: completion.clone(),
                    };
                    (message, completion)
                };
                let (late, awaited) = message((rank + 1) % size);
                drop(driver.recv(late, WaitIntent::Later));
                thread::scope(|scope| {
                    scope.spawn(|| wait(driver, &awaited));
                    for sequence in 1..=400 {
                        let fits = !(sequence + u64::from(rank)).is_multiple_of(3);
                        let waiting = [WaitIntent::Soon, WaitIntent::Later][sequence as usize % 2];
                        let got = exchange(driver, (rank, size), sequence, fits, waiting);
                        let all = (0..size).map(|from| value(from, rank, sequence as usize));
                        assert_eq!(
                            got,
                            all.collect::<Vec<_>>(),
                            "{sequence}, {size} ranks, {spin:?}"
                        );
                    }
                    let (sent, completion) = message((rank + size - 1) % size);
                    drop(driver.send(sent, WaitIntent::Soon));
                    wait(driver, &completion);
                });
            });
        }
    }
}

#[test]
fn blocks_of_two_sizes_are_a_mismatch_wherever_they_go() {
    with_seeds(|seed| {
        let fits = [(true, true), (true, false), (false, true), (false, false)];
        for ((fit, other_fits), reads_memory) in on_boards(fits) {
            let mut world = World::with_board_of_readers(3, seed, reads_memory);
            let calls: Vec<_> = (0..3)
                .map(|rank| {
                    let (fits, elements) = if rank == 1 { (other_fits, 7) } else { (fit, 8) };
                    world.issue(rank, call(rank, fits, 0, &[elements; 3], &[elements; 3]))
                })
                .collect();
            world.run(&calls);
            for error in errors(&calls) {
                assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("28 bytes") && text.contains("32 bytes"), "{text}");
            }
        }
    });
}

#[test]
fn a_death_names_the_rank_whatever_fits() {
    with_seeds(|seed| {
        for (fits, reads_memory) in on_boards([true, false]) {
            let mut world = World::with_board_of_readers(5, seed, reads_memory);
            let dead = seed as u32 % 5;
            let calls: Vec<_> = (0..5)
                .filter(|&rank| rank != dead)
                .map(|rank| {
                    let fits = fits || rank != (dead + 1) % 5;
                    world.issue(rank, call(rank, fits, 0, &[8; 5], &[8; 5]))
                })
                .collect();
            world.settle();
            world.kill(dead);
            world.settle();
            world.pass(Duration::from_millis(60));
            world.run(&calls);
            for error in errors(&calls) {
                assert!(matches!(error, Error::RankFailed { rank, .. } if rank == dead), "{error}");
            }
        }
    });
}

#[test]
fn frames_of_what_was_tried_wait_until_it_is_submitted() {
    with_seeds(|seed| {
        for (size, reads_memory) in on_boards([2, 3, 5]) {
            let mut world = World::with_board_of_readers(size, seed, reads_memory);
            let ones = vec![1; size as usize];
            let mut calls = vec![call(0, true, 0, &ones, &ones)];
            assert_eq!(world.try_small(0, &mut calls[0]), SmallAttempt::Shown);
            // Rank 1 runs the schedule, and so do all: rank 0 has the frames before it submits.
            calls.extend((1..size).map(|rank| call(rank, rank != 1, 0, &ones, &ones)));
            let output: Vec<_> = calls.iter().map(|call| call.output.clone()).collect();
            let mut calls = (0..).zip(calls);
            let first = calls.next();
            let mut issued: Vec<_> = calls.map(|(rank, call)| world.issue(rank, call)).collect();
            world.settle();
            issued.extend(first.map(|(rank, call)| world.issue(rank, call)));
            world.run(&issued);
            assert_ok(&issued);
            for (to, output) in (0..).zip(output) {
                let got: Vec<i32> = output.iter().flat_map(values).collect();
                let all = (0..size).map(|from| value(from, to, 0));
                assert_eq!(got, all.collect::<Vec<_>>(), "{size} ranks");
            }
        }
    });
}

#[test]
fn what_was_tried_is_read_before_it_is_written_again() {
    let mut world = World::with_board(2, 0);
    let reduce = |rank: u32| {
        let output = if rank == 0 { vec![Region::zeroed(8)] } else { vec![] };
        boards::call(small(Collective::Reduce, rank, 2, 0), 2, vec![memory([1, 2])], output)
    };
    let broadcast = |rank: u32, number: u64| {
        let own = if rank == 0 { number as i32 } else { 0 };
        boards::call(small(Collective::Broadcast, rank, 2, 0), 1, vec![], vec![memory([own])])
    };
    // Rank 1 needs nobody for the first call, and has to look at what the other showed later.
    assert_eq!(world.try_small(1, &mut reduce(1)), SmallAttempt::Done);
    let mut tried = broadcast(1, 2);
    assert_eq!(world.try_small(1, &mut tried), SmallAttempt::Shown);
    // Rank 0 waits for nobody, and writes as far as it is let.
    let mut all = vec![world.issue(0, reduce(0))];
    let numbers = 2..=2 + BOARD_PLACES;
    all.extend(numbers.clone().map(|number| world.issue(0, broadcast(0, number))));
    for rank in [0, 1, 0, 1, 0] {
        world.step(rank);
    }
    let calls = [tried].into_iter().chain(numbers.clone().skip(1).map(|it| broadcast(1, it)));
    for (number, call) in numbers.zip(calls) {
        let output = call.output[0].clone();
        all.push(world.issue(1, call));
        world.run(&all);
        assert_eq!(values(&output), [number as i32]);
    }
    assert_ok(&all);
}
