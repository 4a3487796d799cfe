//! What may be done when a work is done, on whatever thread that is told: issue, send, wait, start
//! again, and panic. Nobody may hang for it. Knows no transport.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(feature = "tcp")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};
use polyrank::{ProcessGroup, ReduceOp};

/// Far beyond what anything here takes; a hang shows instead of lasting.
const PATIENCE: Duration = Duration::from_secs(60);

const ROUNDS: usize = 100;

/// Runs `rank` as each of two ranks, which must come to the end.
fn two_ranks(name: &'static str, rank: impl Fn(ProcessGroup) + Send + Sync + 'static) {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let rank = Arc::new(rank);
    let (told, hears) = mpsc::channel();
    for number in 0..2 {
        let (store, rank, told) = (store.clone(), rank.clone(), told.clone());
        thread::spawn(move || {
            let group = ProcessGroup::new(store, number, 2, name, GroupOptions::default()).unwrap();
            rank(group.clone());
            told.send(number).unwrap();
        });
    }
    for _ in 0..2 {
        hears.recv_timeout(PATIENCE).expect("a rank failed, or hangs");
    }
}

#[test]
fn a_callback_may_wait_for_another_operation() {
    two_ranks("waits", |group| {
        let sums = Arc::new(AtomicUsize::new(0));
        for _ in 0..ROUNDS {
            let work = group.allreduce_async(vec![1u64; 50_000], ReduceOp::Sum).unwrap();
            let (inner, sums) = (group.clone(), sums.clone());
            work.on_done(move |_| {
                let mut tensor = [3u64];
                inner.allreduce(&mut tensor, ReduceOp::Sum).unwrap();
                sums.fetch_add(tensor[0] as usize, Ordering::SeqCst);
            });
            work.wait(None).unwrap();
        }
        group.barrier(()).unwrap();
        // The last callback may still run, on another thread.
        while sums.load(Ordering::SeqCst) < ROUNDS * 6 {
            thread::yield_now();
        }
        assert_eq!(sums.load(Ordering::SeqCst), ROUNDS * 6);
    });
}

#[test]
fn a_callback_may_wait_for_what_ends_with_it() {
    two_ranks("together", |group| {
        if group.rank() == 1 {
            return;
        }
        // Both end when the group does, since the other rank does not come.
        let works = [1u64, 2]
            .map(|value| group.allreduce_async(vec![value; 50_000], ReduceOp::Sum).unwrap());
        let (told, hears) = mpsc::channel();
        let last = works[1].clone();
        works[0].on_done(move |_| told.send(last.wait(None)).unwrap());
        group.abort();
        assert!(hears.recv_timeout(PATIENCE).unwrap().is_err());
    });
}

#[test]
fn a_callback_that_panics_keeps_nothing_from_others() {
    two_ranks("panics", |group| {
        for _ in 0..ROUNDS {
            let works = [1u64, 2]
                .map(|value| group.allreduce_async(vec![value; 50_000], ReduceOp::Sum).unwrap());
            let (told, hears) = mpsc::channel();
            works[0].on_done(|_| panic!("a panic that the test wants"));
            works[0].on_done(move |result| told.send(result.clone()).unwrap());
            // The background, too, continues after a panic.
            assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Ok(()));
            works[1].wait(None).unwrap();
        }
    });
}

#[test]
fn a_callback_may_send_while_another_send_is_issued() {
    two_ranks("sends", |group| {
        let other = 1 - group.rank();
        for round in 0..ROUNDS as u64 {
            let work = group.allreduce_async(vec![1u64; 50_000], ReduceOp::Sum).unwrap();
            let (told, hears) = mpsc::channel();
            let inner = group.clone();
            work.on_done(move |_| told.send(inner.send_async(vec![round], other, 1)).unwrap());
            // The issuer moves what it can, and may be the one that ends the allreduce.
            let mut sends = Vec::new();
            while !work.is_done() && sends.len() < 50 {
                sends.push(group.send_async(vec![round], other, 2).unwrap());
            }
            let _sent = hears.recv_timeout(PATIENCE).unwrap().unwrap();
            let mut counts = [sends.len() as u64];
            group.send(&[counts[0]], other, 3).unwrap();
            group.recv(&mut counts, other, 3).unwrap();
            let mut tensor = [0u64];
            group.recv(&mut tensor, other, 1).unwrap();
            assert_eq!(tensor, [round]);
            for _ in 0..counts[0] {
                group.recv(&mut tensor, other, 2).unwrap();
                assert_eq!(tensor, [round]);
            }
        }
    });
}

#[test]
fn a_callback_may_start_its_prepared_operation_again() {
    two_ranks("again", |group| {
        let operation = Arc::new(group.prepare_allreduce(vec![1u64; 1000], ReduceOp::Sum).unwrap());
        for _ in 0..ROUNDS {
            let work = operation.start().unwrap();
            let (again, (told, hears)) = (operation.clone(), mpsc::channel());
            work.on_done(move |_| {
                again.last_started();
                told.send(again.run()).unwrap();
            });
            // Looking drives it, and may be what ends it.
            work.is_completed();
            work.wait(None).unwrap();
            assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Ok(()));
        }
    });
}
