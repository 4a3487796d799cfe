//! What the suites share: groups of ranks as threads or processes, and the conformance cases.

#![allow(clippy::expect_used, clippy::unwrap_used, missing_docs)]

pub mod cases;
pub mod checked_in;
pub mod digits;
pub mod folder;
pub mod fork;
pub mod heap;
pub mod languages;
pub mod launch;
pub mod lists;
pub mod members;
pub mod mpi;
pub mod nccl;
pub mod over_store;
pub mod processes;
pub mod rounding;
pub mod slurm;
pub mod support;
pub mod windows;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::ProcessGroup;
use polyrank::process_group::GroupOptions;
use polyrank::store::{HashStore, Store};

/// The Rust lines of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Limit of groups that tests make: long enough for a busy machine, short enough to be seen.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Whether tests run in all sizes and languages, which takes long: `cargo xtask test --all` asks
/// for it.
pub fn runs_long_tests() -> bool {
    std::env::var_os("POLYRANK_LONG_TESTS").is_some()
}

/// Runs `rank_main` on `size` ranks, each a thread with a group over TCP; the results by rank.
pub fn ranks<R: Send>(size: u32, rank_main: impl Fn(ProcessGroup) -> R + Sync) -> Vec<R> {
    ranks_with(size, |_| GroupOptions::default().timeout(LIMIT), rank_main)
}

/// As [`ranks`], with the options of each rank.
pub fn ranks_with<R: Send>(
    size: u32,
    options: impl Fn(u32) -> GroupOptions + Sync,
    rank_main: impl Fn(ProcessGroup) -> R + Sync,
) -> Vec<R> {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let (options, rank_main) = (&options, &rank_main);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let store = store.clone();
                scope.spawn(move || {
                    let group = ProcessGroup::new(store, rank, size, "test", options(rank))
                        .expect("the group is made");
                    let result = rank_main(group.clone());
                    group.shutdown().expect("the ranks agree");
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank did not panic")).collect()
    })
}
