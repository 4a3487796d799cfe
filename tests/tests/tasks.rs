//! Everything that takes time as futures on a runtime of a single thread, over stores that block:
//! the thread is never held.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use polyrank::distributed::{self, InitOptions, NewGroupOptions};
use polyrank::rendezvous::{leave_async, rendezvous_async};
use polyrank::store::{FileStore, HashStore, Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupOptions, ProcessGroup, SplitOptions};
use polyrank_tests::LIMIT;
use polyrank_tests::folder::Folder;
use polyrank_tests::processes::{ReservedPort, bare_processes, with_variable};
use tokio::task::{LocalSet, yield_now};

/// Where the file is over which the processes of a test wait for one another.
const GATES: &str = "POLYRANK_TEST_GATES";

/// Runs `main` on a runtime whose only thread is this one.
fn on_one_thread<T>(main: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, main)
}

/// The result of `waits`, which is polled first. It ends only when somebody opens `gate`, and that
/// is for this thread to do, after it has gone on for a while.
async fn going_on<T>(gates: &FileStore, gate: &str, waits: impl Future<Output = T>) -> T {
    let mut waits = pin!(waits);
    let mut ticks = pin!(async {
        for _ in 0..100 {
            yield_now().await;
        }
        gates.set(gate, b"").unwrap();
        std::future::pending::<()>().await;
    });
    poll_fn(|context| {
        let waited = waits.as_mut().poll(context);
        if waited.is_pending() {
            let _ = ticks.as_mut().poll(context);
        }
        waited
    })
    .await
}

#[test]
fn the_default_group_is_made_split_met_in_and_left_while_the_thread_goes_on() {
    let test = "the_default_group_is_made_split_met_in_and_left_while_the_thread_goes_on";
    let folder = Folder::new();
    let gates = folder.text_of("gates");
    let ended = with_variable(GATES, &gates, || {
        bare_processes(test, 3, || {
            let gates = FileStore::new(std::env::var(GATES).unwrap(), None).unwrap();
            let options = InitOptions::default().timeout(LIMIT);
            let wait = |gate: &str| gates.wait(&[gate], Some(LIMIT)).unwrap();
            if std::env::var("RANK").unwrap() != "1" {
                // As rank 1 does, but later: it is the one that is waited for.
                wait("init");
                let group = distributed::init_process_group(options).unwrap();
                wait("new_group");
                distributed::new_group(NewGroupOptions::default()).unwrap().unwrap();
                wait("split_group");
                group.split_group(&[1, 0, 2], SplitOptions::default()).unwrap().unwrap();
                wait("monitored_barrier");
                group.monitored_barrier(None, true).unwrap();
                return distributed::destroy_process_group(None).unwrap();
            }
            on_one_thread(async {
                let init = distributed::init_process_group_async(options);
                let group = going_on(&gates, "init", init).await.unwrap();
                let all = distributed::new_group_async(NewGroupOptions::default());
                going_on(&gates, "new_group", all).await.unwrap().unwrap();
                let split = group.split_group_async(&[1, 0, 2], SplitOptions::default());
                going_on(&gates, "split_group", split).await.unwrap().unwrap();
                let barrier = group.monitored_barrier_async(None, true);
                going_on(&gates, "monitored_barrier", barrier).await.unwrap();
                distributed::destroy_process_group_async(None).await.unwrap();
            });
        })
    });
    for rank in ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
}

#[test]
fn ranks_are_tasks_of_one_thread() {
    let folder = Folder::new();
    let file = folder.path().join("store");
    let port = ReservedPort::new();
    for url in [format!("tcp://127.0.0.1:{}", port.number()), format!("file://{}", file.display())]
    {
        on_one_thread(async {
            // The last rank comes first, before there is a store.
            let ranks: Vec<_> = (0..3)
                .rev()
                .map(|rank| tokio::task::spawn_local(rank_of_a_task(url.clone(), rank)))
                .collect();
            for rank in ranks {
                rank.await.unwrap();
            }
        });
    }
}

async fn rank_of_a_task(url: String, rank: u32) {
    let met = rendezvous_async(&url, Some(rank), Some(3), LIMIT).await.unwrap();
    let (store, hosting) = (met.store.clone(), met.hosting);
    let options = GroupOptions::default().timeout(LIMIT);
    let group = ProcessGroup::new_async(store.clone(), rank, 3, "tasks", options).await.unwrap();
    let pair = group.split_group_async(&[2, 0], SplitOptions::default()).await.unwrap();
    assert_eq!(pair.is_some(), rank != 1);
    group.monitored_barrier_async(None, false).await.unwrap();
    if let Some(pair) = pair {
        pair.monitored_barrier_async(None, false).await.unwrap();
        pair.shutdown_async().await.unwrap();
    }
    group.shutdown_async().await.unwrap();
    leave_async(&*store, "tasks", (rank, 3), hosting, LIMIT).await.unwrap();
}

#[test]
fn requests_of_a_task_wait_for_those_of_another() {
    let folder = Folder::new();
    let options = || TcpStoreOptions::new("127.0.0.1", 0).is_master(true).timeout(LIMIT);
    let tcp = TcpStore::new(options().wait_for_workers(false)).unwrap();
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(HashStore::new()),
        Arc::new(FileStore::new(folder.path().join("store"), None).unwrap()),
        Arc::new(tcp),
    ];
    for store in stores {
        on_one_thread(async {
            let other = store.clone_store_async().await.unwrap();
            let mut get = pin!(store.get_async("a key of another task"));
            let mut set = pin!(other.set_async("a key of another task", b"value"));
            let mut is_set = false;
            let value = poll_fn(|context| {
                if let Poll::Ready(value) = get.as_mut().poll(context) {
                    return Poll::Ready(value);
                }
                is_set = is_set || set.as_mut().poll(context).is_ready();
                Poll::Pending
            });
            assert_eq!(value.await.unwrap(), b"value");
            // A wait that nobody wants any more leaves the connection to others.
            let mut never = Box::pin(store.get_async("never"));
            poll_fn(|context| Poll::Ready(never.as_mut().poll(context).is_pending())).await;
            drop(never);
            store.set_timeout(LIMIT);
            store.set_async("after all", b"").await.unwrap();
            assert!(store.check_async(&["after all", "a key of another task"]).await.unwrap());
            let error = store.wait_async(&["never"], Some(std::time::Duration::from_millis(1)));
            assert!(matches!(error.await, Err(Error::StoreTimeout { .. })));
        });
    }
}
