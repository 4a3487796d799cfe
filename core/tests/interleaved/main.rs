//! Everything that takes time, as futures on one thread that never blocks, over a store that
//! answers later: what a browser does, without a browser. With the feature `tcp` the connections
//! are real; without it there is no other thread at all.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod later_store;
mod ranks;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use polyrank::distributed::{self, InitOptions, NewGroupOptions};
use polyrank::rendezvous::{self, install_store_opener};
use polyrank::store::{PrefixStore, Store};
use polyrank::{Error, GroupOptions, ProcessGroup, ReduceOp, Result, SplitOptions, Work};

use later_store::LaterStore;
use ranks::interleaved;

const SIZES: [u32; 4] = [1, 2, 3, 5];
const LIMIT: Duration = Duration::from_secs(60);

fn options() -> GroupOptions {
    GroupOptions::default().backend("websocket".parse().unwrap()).timeout(LIMIT)
}

async fn group(rank: u32, size: u32, store: &Arc<dyn Store>) -> ProcessGroup {
    ProcessGroup::new_async(store.clone(), rank, size, "page", options()).await.unwrap()
}

async fn numbers(work: Result<Work>) -> Vec<Vec<i32>> {
    let work = work.unwrap();
    work.clone().await.unwrap();
    work.into_result().unwrap().into_iter().map(|tensor| tensor.into_vec().unwrap()).collect()
}

#[test]
fn groups_meet_reduce_split_and_end() {
    for (size, seed) in SIZES.into_iter().flat_map(|size| (0..4).map(move |seed| (size, seed))) {
        interleaved(size, seed, async |rank, store| {
            let group = group(rank, size, &store).await;
            for elements in [1, 1000, 100_000] {
                let given: Vec<i32> = (0..elements).map(|index| index + rank as i32).collect();
                let ranks: i32 = (0..size as i32).sum();
                let expected: Vec<i32> =
                    (0..elements).map(|index| index * size as i32 + ranks).collect();
                let reduced = numbers(group.allreduce_async(given, ReduceOp::Sum)).await;
                assert_eq!(reduced, [expected]);
            }
            group.barrier_async(()).unwrap().await.unwrap();
            let same_parity: Vec<u32> = (0..size).filter(|other| other % 2 == rank % 2).collect();
            let half = group.split_group_async(&same_parity, SplitOptions::default()).await;
            let half = half.unwrap().unwrap();
            assert_eq!(half.ranks(), same_parity);
            let reduced = numbers(half.allreduce_async(vec![rank as i32], ReduceOp::Max)).await;
            assert_eq!(reduced, [[*same_parity.last().unwrap() as i32]]);
            let alone = group.split_group_async(&[0], SplitOptions::default()).await.unwrap();
            assert_eq!(alone.is_some(), rank == 0);
            half.shutdown_async().await.expect("the ranks agree");
            group.shutdown_async().await.expect("the ranks agree");
            assert!(group.is_broken(), "nothing can be issued in a group that was left");
        });
    }
}

#[test]
fn objects_go_from_rank_to_rank() {
    for (size, seed) in SIZES.into_iter().zip(10..) {
        interleaved(size, seed, async |rank, store| {
            let group = group(rank, size, &store).await;
            let text = |rank: u32| format!("rank {rank} ").repeat(rank as usize * 5000 + 1);
            let all: Vec<String> = (0..size).map(text).collect();
            let root = size - 1;
            let mut mine = text(rank);
            group.broadcast_object_async(&mut mine, root).await.unwrap();
            assert_eq!(mine, text(root));
            assert_eq!(group.all_gather_object_async(&text(rank)).await.unwrap(), all);
            let gathered = group.gather_object_async(&text(rank), root).await.unwrap();
            assert_eq!(gathered, (rank == root).then(|| all.clone()));
            let given = if rank == root { all.as_slice() } else { &[] };
            assert_eq!(group.scatter_object_async(given, root).await.unwrap(), text(rank));
            if rank > 0 {
                group.send_object_async(&text(rank), 0).await.unwrap();
            } else {
                for _ in 1..size {
                    let (object, from) = group.recv_object_async::<String>(None).await.unwrap();
                    assert_eq!(object, text(from));
                }
            }
            group.shutdown_async().await.expect("the ranks agree");
        });
    }
}

#[test]
fn groups_merge_in_the_order_in_which_their_ranks_come() {
    for (size, seed) in [2, 3, 5].into_iter().zip(20..) {
        let ranks = interleaved(size, seed, async |rank, store| {
            let own: Arc<dyn Store> = Arc::new(PrefixStore::new(rank.to_string(), store.clone()));
            let alone = ProcessGroup::new_async(own, 0, 1, "alone", options()).await.unwrap();
            let merged = alone.merge_remote_group_async(store, size, SplitOptions::default());
            let merged = merged.await.unwrap();
            let sum = numbers(merged.allreduce_async(vec![1 << rank], ReduceOp::Sum)).await;
            assert_eq!(sum, [[(1 << size) - 1]]);
            merged.shutdown_async().await.expect("the ranks agree");
            merged.rank()
        });
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..size).collect::<Vec<_>>());
    }
}

#[test]
fn barriers_pass_or_name_who_is_missing() {
    for (size, seed) in SIZES.into_iter().zip(30..) {
        interleaved(size, seed, async |rank, store| {
            let group = group(rank, size, &store).await;
            for wait_all_ranks in [false, true] {
                group.monitored_barrier_async(None, wait_all_ranks).await.unwrap();
            }
            let missing = size - 1;
            if size > 1 && rank != missing {
                // Rank 0 decides, and its time begins when all came that shall.
                let limit = (rank == 0).then_some(Duration::from_millis(50));
                if rank == 0 {
                    let came: Vec<String> =
                        (1..missing).map(|rank| format!("monitored_barrier/2/{rank}")).collect();
                    let came: Vec<&str> = came.iter().map(String::as_str).collect();
                    group.get_group_store().wait_async(&came, None).await.unwrap();
                }
                let error = group.monitored_barrier_async(limit, false).await.unwrap_err();
                assert!(matches!(error, Error::MonitoredBarrier { .. }), "{error}");
                assert!(error.to_string().contains(&format!("Rank {missing}")), "{error}");
            }
            store.barrier_async("end", size, None).await.unwrap();
            group.shutdown_async().await.expect("the ranks agree");
        });
    }
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let errors = interleaved(2, 40, async |rank, store| {
        let mut options = options();
        if rank == 0 {
            // Its time begins when the other one has come.
            let came = |key: &String| key.ends_with("/join/1");
            while !store.list_keys_async().await.unwrap().iter().any(came) {}
            options = options.timeout(Duration::from_millis(50));
        }
        ProcessGroup::new_async(store, rank, 3, "page", options).await.unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, Error::RendezvousTimeout { .. }), "{error}");
        assert!(error.to_string().contains("rank 2 of 3"), "{error}");
    }
}

/// Each waits for the other's tensor, so that no frame tells: they compare through the store.
#[test]
#[cfg(not(feature = "tcp"))]
fn ranks_that_disagree_where_no_frame_tells_find_it_out() {
    let errors = interleaved(2, 45, async |rank, store| {
        let group = group(rank, 2, &store).await;
        let nothing: Vec<Vec<i32>> = Vec::new();
        let work = group.scatter_async(vec![0; 4], nothing, 1 - rank).unwrap();
        work.await.unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, Error::CollectiveMismatch { .. }), "{error}");
    }
}

#[test]
fn calls_that_block_say_that_they_cannot() {
    let store: Arc<dyn Store> = Arc::new(LaterStore::new());
    let errors = [
        ProcessGroup::new(store.clone(), 0, 2, "page", options()).unwrap_err(),
        rendezvous::join(&*store, "page", 0, 2, LIMIT).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("_async"), "{error}");
    }
}

/// The default group is the process's, so that it has one rank here.
#[test]
fn the_default_group_comes_and_goes() {
    install_store_opener(|url, options| {
        Box::pin(async move {
            assert_eq!((url.as_str(), options.timeout), ("wss://example.org:4/path", LIMIT));
            assert_eq!(options.reconnect_grace, Some(Duration::from_secs(60)));
            let store: Arc<dyn Store> = Arc::new(polyrank::store::HashStore::new());
            Ok(store)
        })
    });
    interleaved(1, 50, async |_, store| {
        let by_url = InitOptions::default()
            .init_method("wss://example.org:4/path?rank=0&world_size=1&reconnect_grace_ms=60000")
            .timeout(LIMIT);
        let by_store = InitOptions::default().store(store.clone()).rank(0).world_size(1);
        let elsewhere: Arc<dyn Store> = Arc::new(PrefixStore::new("elsewhere", store.clone()));
        let with_nobody = InitOptions::default().store(elsewhere).rank(0).world_size(2);
        let with_nobody = with_nobody.backend("websocket").timeout(LIMIT);
        let mut forming = Box::pin(distributed::init_process_group_async(with_nobody));
        let first = poll_fn(|context| Poll::Ready(forming.as_mut().poll(context))).await;
        assert!(first.is_pending());
        let twice = distributed::init_process_group_async(by_store.clone()).await.unwrap_err();
        assert_eq!(twice, Error::AlreadyInitialized);
        drop(forming);
        for init in [by_store.clone(), by_url, by_store] {
            let init = init.backend("websocket").timeout(LIMIT);
            let group = distributed::init_process_group_async(init.clone()).await.unwrap();
            let again = distributed::init_process_group_async(init).await.unwrap_err();
            assert_eq!(again, Error::AlreadyInitialized);
            let new = NewGroupOptions::default();
            let other = distributed::new_group_async(new).await.unwrap().unwrap();
            assert_eq!(distributed::get_pg_count(), 2);
            distributed::monitored_barrier_async(None, true).await.unwrap();
            distributed::destroy_process_group_async(Some(&other)).await.unwrap();
            distributed::destroy_process_group_async(None).await.unwrap();
            assert!(!distributed::is_initialized() && group.is_broken());
        }
    });
}
