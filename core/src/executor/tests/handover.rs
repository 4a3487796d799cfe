//! Operations whose end somebody is told of, while no thread waits: the background thread drives
//! them without a grace, and nobody's wake-up is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::drivers::{PATIENCE, allreduce, drivers, groups, in_memory, on_threads, tcp, wait};
use super::network::Random;
use super::world::{memory, values};
use crate::completion::{Completion, WaitIntent};
use crate::executor::Driver;
use crate::executor::background::GroupProgress as _;
use crate::executor::windows::GoneRanks;
use crate::generated::error::Error;
use crate::spin::SpinPolicy;
use crate::wire::abort::Abort;

/// Tells of the end of `completion` as a callback that a caller registers.
fn told(driver: &Driver, completion: &Completion, told: impl FnOnce() + Send + 'static) {
    driver.hasten(completion);
    completion.on_end(move |_| told());
}

#[test]
fn callbacks_run_without_a_waiter() {
    for size in [1, 2, 3, 5] {
        for drivers in groups(size) {
            let (tell, told_of) = mpsc::channel();
            on_threads(&drivers, |rank, driver| {
                for (sequence, count) in (1..).zip([1, 1, 0, 3000, 1, 70_000, 1]) {
                    let tensor = memory(vec![rank as i32 + 1; count]);
                    let operation = allreduce(rank, size, sequence, &tensor);
                    let completion = operation.completion.clone();
                    drop(driver.submit(operation, WaitIntent::Later));
                    let tell = tell.clone();
                    told(driver, &completion, move || tell.send(values(&tensor)).unwrap());
                }
            });
            let sum = (1..=size as i32).sum::<i32>();
            for _ in 0..7 * size {
                let values = told_of.recv_timeout(PATIENCE).expect("a callback never ran");
                assert!(values.iter().all(|&value| value == sum));
            }
        }
    }
}

#[test]
fn a_callback_that_comes_after_the_end_runs_immediately() {
    for drivers in groups(2) {
        on_threads(&drivers, |rank, driver| {
            let operation = allreduce(rank, 2, 1, &memory([1]));
            let completion = operation.completion.clone();
            drop(driver.submit(operation, WaitIntent::Soon));
            wait(driver, &completion);
            let (tell, told_of) = mpsc::channel();
            told(driver, &completion, move || tell.send(thread::current().id()).unwrap());
            assert_eq!(told_of.try_recv(), Ok(thread::current().id()));
        });
    }
}

#[test]
fn a_callback_that_issues_the_next_operation_is_not_run_within_the_one_before() {
    const LENGTH: u64 = 3000;

    fn issue(driver: Arc<Driver>, rank: u32, sequence: u64, depth: Arc<Depth>) {
        let operation = allreduce(rank, 2, sequence, &memory([1]));
        let completion = operation.completion.clone();
        drop(driver.submit(operation, WaitIntent::Later));
        let next = driver.clone();
        told(&driver, &completion, move || {
            let inside = depth.inside.fetch_add(1, Ordering::Relaxed) + 1;
            depth.deepest.fetch_max(inside, Ordering::Relaxed);
            match sequence {
                LENGTH => depth.end.send(()).unwrap(),
                _ => issue(next, rank, sequence + 1, depth.clone()),
            }
            depth.inside.fetch_sub(1, Ordering::Relaxed);
        });
    }

    struct Depth {
        inside: AtomicUsize,
        deepest: AtomicUsize,
        end: mpsc::Sender<()>,
    }

    let drivers = drivers(tcp(2), SpinPolicy::Spin(Duration::from_micros(100)));
    let (end, ended) = mpsc::channel();
    let depths = [0, 1].map(|_| {
        let (inside, deepest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Depth { inside, deepest, end: end.clone() })
    });
    for ((rank, driver), depth) in (0..).zip(&drivers).zip(&depths) {
        issue(driver.clone(), rank, 1, depth.clone());
    }
    for _ in 0..2 {
        ended.recv_timeout(PATIENCE).expect("a chain of callbacks stands still");
    }
    // An operation that is done when it is issued has its callback run immediately.
    let deepest = depths.map(|depth| depth.deepest.load(Ordering::Relaxed));
    assert!(deepest.iter().all(|&deepest| deepest < LENGTH as usize / 4), "{deepest:?}");
}

#[test]
fn who_looks_out_for_accesses_still_does_when_a_wait_has_ended() {
    for drivers in groups(2) {
        drivers.iter().for_each(|driver| driver.open_window(1, Arc::new(GoneRanks::new(2))));
        for (sequence, waiting) in (1..).zip([WaitIntent::Soon, WaitIntent::Later]) {
            let left = on_threads(&drivers, |rank, driver| {
                // The second one comes when the first one waits, which then moves it to its end.
                while rank == 1 && !drivers[0].has_waiters() {
                    thread::yield_now();
                }
                let operation = allreduce(rank, 2, sequence, &memory([1]));
                let completion = operation.completion.clone();
                drop(driver.submit(operation, waiting));
                let before = driver.times_left_to_background();
                wait(driver, &completion);
                driver.times_left_to_background() - before
            });
            // What has ended may have taken the event that would have woken the background.
            assert!(!drivers[0].is_busy() && left[0] > 0);
        }
    }
}

#[test]
fn many_groups_are_driven_side_by_side() {
    const GROUPS: usize = 40;
    let groups: Vec<_> = (0..GROUPS).map(|_| drivers(in_memory(2), SpinPolicy::Sleep)).collect();
    let (tell, told_of) = mpsc::channel();
    for round in 1..=20 {
        for rank in 0..2 {
            for (group, drivers) in groups.iter().enumerate() {
                let tensor = memory([group as i32]);
                let operation = allreduce(rank, 2, round, &tensor);
                let completion = operation.completion.clone();
                let driver = &drivers[rank as usize];
                drop(driver.submit(operation, WaitIntent::Later));
                let tell = tell.clone();
                told(driver, &completion, move || tell.send((group, values(&tensor))).unwrap());
            }
        }
        let mut times = [0; GROUPS];
        for _ in 0..2 * GROUPS {
            let (group, values) = told_of.recv_timeout(PATIENCE).expect("a group stands still");
            assert_eq!(values, [2 * group as i32]);
            times[group] += 1;
        }
        assert_eq!(times, [2; GROUPS]);
    }
}

/// Each thread issues, and then waits, asks to be told, asks late, or leaves it to others.
#[test]
fn no_wake_up_is_lost_whoever_waits_or_does_not() {
    const CALLS: u64 = 1500;
    let spins = [SpinPolicy::Sleep, SpinPolicy::Spin(Duration::from_micros(20))];
    for (seed, spin) in (1..).zip(spins) {
        for transports in [tcp(3), in_memory(3)] {
            let drivers = drivers(transports, spin);
            on_threads(&drivers, |rank, driver| {
                let mut random = Random::new(100 * seed + u64::from(rank));
                let (tell, told_of) = mpsc::channel();
                let mut unheard = 0;
                for sequence in 1..=CALLS {
                    let tensor = memory([1]);
                    let operation = allreduce(rank, 3, sequence, &tensor);
                    let completion = operation.completion.clone();
                    drop(driver.submit(operation, WaitIntent::Later));
                    let choice = random.below(6);
                    match choice {
                        0 => wait(driver, &completion),
                        1 => {
                            let _ = driver.poll_for(&completion, Duration::from_micros(5));
                        }
                        2 => thread::yield_now(),
                        _ => {}
                    }
                    let tell = tell.clone();
                    let tell = move || tell.send(values(&tensor)).unwrap();
                    match choice {
                        3 => {
                            let completion = completion.clone();
                            completion.on_end(move |_| tell());
                        }
                        _ => told(driver, &completion, tell),
                    }
                    unheard += 1;
                    // Nothing else is issued meanwhile, so that nobody else wakes whom it takes.
                    let most = random.below(4);
                    while unheard > most {
                        let values = told_of.recv_timeout(PATIENCE).expect("a wake-up was lost");
                        assert_eq!(values, [3]);
                        unheard -= 1;
                    }
                }
                for _ in 0..unheard {
                    assert_eq!(told_of.recv_timeout(PATIENCE), Ok(vec![3]));
                }
            });
        }
    }
}

#[test]
fn what_is_told_of_fails_with_its_group() {
    for drivers in groups(2) {
        let operation = allreduce(0, 2, 1, &memory([1]));
        let completion = operation.completion.clone();
        drop(drivers[0].submit(operation, WaitIntent::Later));
        let (tell, told_of) = mpsc::channel();
        told(&drivers[0], &completion, move || tell.send(()).unwrap());
        drivers[1].break_with(Abort::User { rank: 1, why: "enough".to_owned() });
        told_of.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(completion.error(), Some(Error::Aborted { rank: 1, .. })));
    }
}

#[test]
fn a_brief_poll_ends_with_its_limit_and_harms_nothing() {
    for drivers in groups(2) {
        let tensors = [memory([1]), memory([2])];
        let operation = allreduce(0, 2, 1, &tensors[0]);
        let completion = operation.completion.clone();
        drop(drivers[0].submit(operation, WaitIntent::Soon));
        assert!(!drivers[0].poll_for(&completion, Duration::from_micros(50)));
        assert!(!drivers[0].wait(&completion, Some(Instant::now())));
        drop(drivers[1].submit(allreduce(1, 2, 1, &tensors[1]), WaitIntent::Later));
        wait(&drivers[0], &completion);
        assert_eq!(values(&tensors[0]), [3]);
    }
}
