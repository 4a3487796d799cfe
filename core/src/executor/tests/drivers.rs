//! The driver with real threads, in memory and over TCP on this host: who waits makes progress, who
//! does not is served by the background, and nobody sleeps for ever.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::schedules::ring_allreduce;
use super::world::{memory, values};
use crate::completion::{Completion, WaitIntent};
use crate::executor::background::GroupProgress as _;
use crate::executor::{Bindings, Driver, Executor, GroupIdentity, Message, Operation};
use crate::generated::dtype::DType;
use crate::generated::error::Error;
use crate::generated::reduce_op::ReduceOp;
use crate::spin::SpinPolicy;
use crate::tensor::Region;
use crate::transport::tcp::TcpTransport;
use crate::transport::{Transport, inproc};
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;
use crate::wire::handshake::Token;

/// Far beyond what anything here takes; a hang shows instead of lasting.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const SPINS: [SpinPolicy; 3] = [
    SpinPolicy::Spin(Duration::from_micros(100)),
    SpinPolicy::Yield(Duration::from_micros(50)),
    SpinPolicy::Sleep,
];

pub(super) fn tcp(size: u32) -> Vec<Box<dyn Transport>> {
    let address = "127.0.0.1:0".parse().unwrap();
    let listeners: Vec<_> = (0..size).map(|_| TcpTransport::bind(address).unwrap()).collect();
    let cards: Vec<_> = listeners.iter().map(|listener| listener.card(&[])).collect();
    let transport = |(rank, listener)| -> Box<dyn Transport> {
        Box::new(TcpTransport::new(listener, rank, &cards, Token([4; 16]), 0).unwrap())
    };
    (0..).zip(listeners).map(transport).collect()
}

pub(super) fn in_memory(size: u32) -> Vec<Box<dyn Transport>> {
    inproc::connect(size).into_iter().map(|it| Box::new(it) as Box<dyn Transport>).collect()
}

pub(super) fn drivers(transports: Vec<Box<dyn Transport>>, spin: SpinPolicy) -> Vec<Arc<Driver>> {
    let driver = |transport| {
        let group = GroupIdentity { name: "threads".to_owned(), generation: 0 };
        Driver::new(Executor::new(transport, group, Instant::now()), spin).unwrap()
    };
    transports.into_iter().map(driver).collect()
}

/// All groups of `size` that a test is tried on.
pub(super) fn groups(size: u32) -> Vec<Vec<Arc<Driver>>> {
    let over_tcp = SPINS.into_iter().map(|spin| drivers(tcp(size), spin));
    let inproc = SPINS.into_iter().map(|spin| drivers(in_memory(size), spin));
    let groups = over_tcp.chain(inproc);
    // Every other rank has WebSockets alone.
    #[cfg(feature = "websocket")]
    let groups =
        groups.chain([0, 1].into_iter().zip(SPINS.into_iter().skip(1)).map(|(first, spin)| {
            drivers(crate::transport::websocket::tests::groups::mixed(size, first), spin)
        }));
    groups.collect()
}

pub(super) fn allreduce(rank: u32, size: u32, sequence: u64, tensor: &Region) -> Operation {
    Operation {
        sequence,
        fingerprint: Fingerprint { elements: tensor.len() as u64 / 4, ..Default::default() },
        schedule: ring_allreduce(rank, size),
        slot_progress: None,
        bindings: Bindings { input: vec![], output: vec![tensor.clone()] },
        dtype: DType::I32,
        reduce_op: ReduceOp::Sum,
        after: None,
        deadline: Instant::now() + PATIENCE,
        finish: None,
        completion: Arc::new(Completion::new()),
    }
}

/// Runs `body` on a thread for each rank and hands back what they return, by rank.
pub(super) fn on_threads<T: Send>(
    drivers: &[Arc<Driver>],
    body: impl Fn(u32, &Arc<Driver>) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let spawn = |(rank, driver)| scope.spawn(move || body(rank, driver));
        let threads: Vec<_> = (0..).zip(drivers).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(super) fn wait(driver: &Driver, completion: &Completion) {
    assert!(driver.wait(completion, Some(Instant::now() + PATIENCE)), "it hangs");
}

/// What an allreduce of `rank + 1` everywhere ends with.
fn sum(size: u32) -> i32 {
    (1..=size as i32).sum()
}

#[test]
fn waiting_threads_finish_blocking_operations() {
    for size in [1, 2, 3, 5] {
        for drivers in groups(size) {
            on_threads(&drivers, |rank, driver| {
                for (sequence, count) in (1..).zip([0, 1, 3, 1000, 70_000, 500_003]) {
                    let tensor = memory(vec![rank as i32 + 1; count]);
                    let operation = allreduce(rank, size, sequence, &tensor);
                    let completion = operation.completion.clone();
                    drop(driver.submit(operation, WaitIntent::Soon));
                    wait(driver, &completion);
                    assert_eq!(completion.result(), Some(Ok(())));
                    assert!(values(&tensor).iter().all(|&value| value == sum(size)));
                }
            });
        }
    }
}

#[test]
fn the_background_finishes_what_nobody_waits_for() {
    finish_in_background(WaitIntent::Later);
}

#[test]
fn the_background_begins_what_is_left_to_it() {
    finish_in_background(WaitIntent::OtherThread);
}

fn finish_in_background(waiting: WaitIntent) {
    for drivers in groups(3) {
        let (told, hears) = mpsc::channel();
        for (rank, driver) in (0..).zip(&drivers) {
            for sequence in 1..=20 {
                let tensor = memory(vec![rank as i32 + 1; 3000 * sequence as usize]);
                let operation = allreduce(rank, 3, sequence, &tensor);
                let told = told.clone();
                operation.completion.on_done(move |result| {
                    let right = values(&tensor).iter().all(|&value| value == sum(3));
                    told.send((result.clone(), right)).unwrap();
                });
                drop(driver.submit(operation, waiting));
            }
        }
        for _ in 0..60 {
            assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), (Ok(()), true));
        }
    }
}

#[test]
fn many_in_flight_are_waited_for_in_any_order_by_several_threads() {
    for drivers in groups(2) {
        on_threads(&drivers, |rank, driver| {
            let mut open = Vec::new();
            for sequence in 1..=200 {
                let tensor = memory(vec![rank as i32 + 1; 40 * sequence as usize]);
                let operation = allreduce(rank, 2, sequence, &tensor);
                open.push((operation.completion.clone(), tensor));
                drop(driver.submit(operation, WaitIntent::Later));
            }
            let next = AtomicUsize::new(0);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        loop {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            if index >= open.len() {
                                return;
                            }
                            // 77 and 200 have no common divisor: every index once, out of order.
                            let (completion, tensor) = &open[index * 77 % 200];
                            wait(driver, completion);
                            assert!(values(tensor).iter().all(|&value| value == 3));
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn a_leader_that_falls_asleep_before_it_is_told_is_woken() {
    let drivers = drivers(tcp(2), SpinPolicy::Sleep);
    let tensors = [memory([1]), memory([2])];
    let operation = allreduce(0, 2, 1, &tensors[0]);
    let completion = operation.completion.clone();
    drop(drivers[0].submit(operation, WaitIntent::Soon));
    // The thread that ends it is held up before it notifies others, until the leader sleeps.
    let (reached, is_reached) = mpsc::channel();
    let slow = Arc::downgrade(&drivers[0]);
    drivers[0].set_before_telling(move || {
        let _ = reached.send(());
        while slow.upgrade().is_some_and(|driver| !driver.is_leader_asleep()) {
            thread::yield_now();
        }
    });
    drop(drivers[1].submit(allreduce(1, 2, 1, &tensors[1]), WaitIntent::Later));
    let (ends_it, awaited) = (drivers[0].clone(), completion.clone());
    thread::spawn(move || {
        while !awaited.is_done() {
            ends_it.turn_in_background();
        }
    });
    is_reached.recv_timeout(PATIENCE).unwrap();
    let (woken, is_woken) = mpsc::channel();
    let (driver, until) = (drivers[0].clone(), Instant::now() + 2 * PATIENCE);
    thread::spawn(move || woken.send(driver.wait(&completion, Some(until))));
    assert_eq!(is_woken.recv_timeout(PATIENCE), Ok(true), "it sleeps although it is told");
}

#[test]
fn an_expired_wait_harms_nothing() {
    for drivers in groups(2) {
        let tensor = memory([1]);
        let operation = allreduce(0, 2, 1, &tensor);
        let completion = operation.completion.clone();
        drop(drivers[0].submit(operation, WaitIntent::Soon));
        assert!(!drivers[0].wait(&completion, Some(Instant::now() + Duration::from_millis(5))));
        assert!(!drivers[0].wait(&completion, Some(Instant::now())));
        let other = memory([2]);
        drop(drivers[1].submit(allreduce(1, 2, 1, &other), WaitIntent::Later));
        wait(&drivers[0], &completion);
        assert_eq!(values(&tensor), [3]);
    }
}

#[test]
fn an_abort_from_another_thread_ends_a_wait() {
    for drivers in groups(3) {
        let errors = thread::scope(|scope| {
            let waiting: Vec<_> = (1..3)
                .map(|rank: u32| {
                    let driver = &drivers[rank as usize];
                    let operation = allreduce(rank, 3, 1, &memory([1]));
                    let completion = operation.completion.clone();
                    drop(driver.submit(operation, WaitIntent::Soon));
                    scope.spawn(move || {
                        wait(driver, &completion);
                        completion.error().unwrap()
                    })
                })
                .collect();
            drivers[1].break_with(Abort::User { rank: 1, why: "enough".to_owned() });
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for error in errors {
            assert!(matches!(
                &error,
                Error::Aborted { rank: 1, why, collective, .. }
                    if why.contains("enough") && collective == "allreduce"
            ));
        }
    }
}

#[test]
fn a_deadline_ends_a_wait_and_an_operation_of_the_background() {
    for waiting in [WaitIntent::Soon, WaitIntent::Later, WaitIntent::OtherThread] {
        for drivers in groups(2) {
            let mut operation = allreduce(0, 2, 1, &memory([1]));
            operation.deadline = Instant::now() + Duration::from_millis(20);
            let completion = operation.completion.clone();
            let (told, hears) = mpsc::channel();
            completion.on_done(move |result| told.send(result.clone()).unwrap());
            drop(drivers[0].submit(operation, waiting));
            if waiting == WaitIntent::Soon {
                wait(&drivers[0], &completion);
            }
            let result = hears.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(result, Err(Error::CollectiveTimeout { .. })), "{result:?}");
        }
    }
}

#[test]
fn a_callback_may_issue_the_next_operation() {
    for drivers in groups(2) {
        let (told, hears) = mpsc::channel();
        for (rank, driver) in (0..).zip(&drivers) {
            let first = allreduce(rank, 2, 1, &memory([1]));
            let (again, told) = (driver.clone(), told.clone());
            first.completion.on_done(move |_| {
                let tensor = memory([5]);
                let second = allreduce(rank, 2, 2, &tensor);
                second.completion.on_done(move |_| told.send(values(&tensor)).unwrap());
                drop(again.submit(second, WaitIntent::Later));
            });
            drop(driver.submit(first, WaitIntent::Later));
        }
        for _ in 0..2 {
            assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), [10]);
        }
    }
}

#[test]
fn a_rank_that_goes_without_a_goodbye_is_noticed_by_idle_ranks() {
    for spin in SPINS {
        let mut drivers = drivers(tcp(4), spin);
        // All have slept once, so that the background runs.
        on_threads(&drivers, |rank, driver| {
            let operation = allreduce(rank, 4, 1, &memory([1]));
            let completion = operation.completion.clone();
            drop(driver.submit(operation, WaitIntent::Later));
            wait(driver, &completion);
        });
        // Rank 3 waits; its neighbours 0 and 2 are idle; rank 1 vanishes.
        let operation = allreduce(3, 4, 2, &memory([1]));
        let completion = operation.completion.clone();
        let (told, hears) = mpsc::channel();
        completion.on_done(move |result| told.send(result.clone()).unwrap());
        drop(drivers[3].submit(operation, WaitIntent::Later));
        drivers[1].vanish();
        drivers.remove(1);
        let result = hears.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(result, Err(Error::RankFailed { rank: 1, .. })), "{result:?}");
    }
}

#[test]
fn messages_pass_between_threads() {
    for drivers in groups(2) {
        on_threads(&drivers, |rank, driver| {
            for round in 0..50_i32 {
                let count = if round % 2 == 0 { 4 } else { 50_000 };
                let buffer = memory(vec![round * (1 - rank as i32); count]);
                let completion = Arc::new(Completion::new());
                let message = Message {
                    peer: Some(1 - rank),
                    tag: 3,
                    dtype: crate::generated::dtype::DType::I32,
                    memory: buffer.clone(),
                    deadline: Instant::now() + PATIENCE,
                    finish: None,
                    completion: completion.clone(),
                };
                match rank {
                    0 => drop(driver.send(message, WaitIntent::Soon)),
                    _ => drop(driver.recv(message, WaitIntent::Soon)),
                }
                wait(driver, &completion);
                assert_eq!(completion.result(), Some(Ok(())));
                assert_eq!(values(&buffer), vec![round; count]);
            }
        });
    }
}
