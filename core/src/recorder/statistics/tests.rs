//! What is counted in groups of threads: all calls, exactly, and for whom a rank waits.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::recorder::{OperationStats, ProcessGroupStats};
use crate::store::{HashStore, Store};
use crate::{GroupOptions, ProcessGroup, record_comm};

/// What each rank's `run` returns in a group of so many threads.
fn in_group<T: Send>(size: u32, run: impl Fn(&ProcessGroup) -> T + Sync) -> Vec<T> {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    std::thread::scope(|scope| {
        let rank = |rank| {
            let (store, run) = (store.clone(), &run);
            scope.spawn(move || {
                let options = GroupOptions::default();
                let group = ProcessGroup::new(store, rank, size, "counted", options).unwrap();
                let result = run(&group);
                // Some tests end with a group that is broken.
                let _ = group.barrier(());
                result
            })
        };
        let ranks: Vec<_> = (0..size).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn of<'a>(stats: &'a ProcessGroupStats, name: &str) -> &'a OperationStats {
    stats.operations.iter().find(|it| it.name == name).unwrap()
}

#[test]
fn all_calls_are_counted_whether_they_are_done_at_once_or_not() {
    for size in [1, 2, 3, 5, 8] {
        let all = in_group(size, |group| {
            let (mut small, mut large) = ([1f32; 3], vec![1f32; 50_000]);
            for _ in 0..200 {
                group.allreduce(&mut small, ()).unwrap();
            }
            for _ in 0..7 {
                group.allreduce(&mut large, ()).unwrap();
                group.broadcast(&mut large, ()).unwrap();
            }
            group.stats().unwrap()
        });
        for (rank, stats) in all.iter().enumerate() {
            assert_eq!((stats.rank as usize, stats.size), (rank, size));
            let (allreduce, broadcast) = (of(stats, "allreduce"), of(stats, "broadcast"));
            assert_eq!((allreduce.count, allreduce.bytes), (207, 200 * 12 + 7 * 200_000));
            assert_eq!((broadcast.count, broadcast.bytes), (7, 7 * 200_000));
            for operation in [allreduce, broadcast] {
                assert_eq!((operation.failed, operation.in_flight), (0, 0));
                assert!(operation.p50_seconds <= operation.p99_seconds);
                assert!(operation.p99_seconds <= operation.max_seconds);
                assert!(operation.max_seconds <= operation.total_seconds);
                assert!(operation.total_seconds <= stats.seconds * 2.0);
            }
            // Those that are not done at once are all timed.
            let bandwidth = broadcast.bytes as f64 / broadcast.total_seconds;
            assert!(size == 1 || (broadcast.algorithm_bandwidth / bandwidth - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn a_receive_is_in_flight_until_it_ends_and_then_counts_as_it_has_ended() {
    let all = in_group(2, |group| {
        if group.rank() == 0 {
            let received = group.recv_async(vec![0f32; 4], Some(1), 9).unwrap();
            let open = group.stats().unwrap();
            assert_eq!((of(&open, "recv").in_flight, of(&open, "recv").count), (1, 0));
            group.barrier(()).unwrap();
            received.wait(None).unwrap();
            let never = group.recv_async(vec![0f32; 4], Some(1), 9).unwrap();
            group.barrier(()).unwrap();
            group.abort();
            never.wait(None).unwrap_err();
        } else {
            group.barrier(()).unwrap();
            group.send(&[1f32; 4], 0, 9).unwrap();
            group.barrier(()).unwrap();
        }
        group.stats().unwrap()
    });
    let received = of(&all[0], "recv");
    assert_eq!((received.count, received.failed, received.in_flight), (2, 1, 0));
    assert_eq!((received.bytes, of(&all[1], "send").bytes), (16, 16));
    // It was called before the message was.
    let waited = |rank: usize| all[rank].peers.iter().map(|peer| peer.rank).collect::<Vec<_>>();
    assert_eq!((waited(0).first(), all[0].slowest_peer), (Some(&1), Some(1)));
}

#[test]
fn of_what_is_forgotten_while_it_is_in_flight_the_end_is_counted() {
    let all = in_group(2, |group| {
        let many = 2500;
        if group.rank() == 0 {
            let receives: Vec<_> =
                (0..many).map(|tag| group.recv_async(vec![0f32], Some(1), tag).unwrap()).collect();
            let stats = group.stats().unwrap();
            assert_eq!(of(&stats, "recv").in_flight + of(&stats, "recv").count, u64::from(many));
            group.barrier(()).unwrap();
            receives.into_iter().for_each(|receive| receive.wait(None).unwrap());
        } else {
            group.barrier(()).unwrap();
            (0..many).for_each(|tag| group.send(&[0f32], 0, tag).unwrap());
        }
        group.stats().unwrap()
    });
    let (received, sent) = (of(&all[0], "recv"), of(&all[1], "send"));
    assert_eq!((received.count, received.in_flight, received.bytes), (2500, 0, 10_000));
    assert_eq!((sent.count, sent.bytes), (2500, 10_000));
}

#[test]
fn what_the_user_calls_otherwise_is_counted_apart() {
    let all = in_group(2, |group| {
        let mut small = [1f32; 3];
        group.allreduce(&mut small, ()).unwrap();
        for name in ["layer 1", "layer 2", "layer 1"] {
            record_comm(name, || group.allreduce(&mut small, ())).unwrap();
        }
        // Of hundreds of names, not all are told apart.
        for step in 0..1000 {
            let name = format!("step {step}");
            record_comm(&name, || group.broadcast(&mut small, ())).unwrap();
        }
        group.stats().unwrap()
    });
    for stats in &all {
        let of = |name: &'static str| stats.operations.iter().filter(move |it| it.name == name);
        let counts: Vec<_> =
            of("allreduce").map(|it| (it.comm_name.as_deref(), it.count)).collect();
        assert_eq!(counts, [(None, 1), (Some("layer 1"), 2), (Some("layer 2"), 1)]);
        assert_eq!(of("broadcast").map(|it| it.count).sum::<u64>(), 1000);
        assert!((200..260).contains(&of("broadcast").count()));
    }
}
