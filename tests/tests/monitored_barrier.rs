//! The barrier that says who is missing: all ranks pass, or all of them fail and name the same.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::sync::Barrier;
use std::time::Duration;

use polyrank::Error;
use polyrank_tests::ranks;

const SHORT: Option<Duration> = Some(Duration::from_millis(300));

#[test]
fn all_pass_if_all_come() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |group| {
            for wait_all_ranks in [false, true, false] {
                group.monitored_barrier(None, wait_all_ranks).unwrap();
            }
            // What a barrier puts into the store, the next one takes away.
            group.barrier(()).unwrap();
            let keys = group.get_group_store().list_keys().unwrap();
            let left = keys.iter().filter(|key| key.starts_with("monitored_barrier/")).count();
            assert_eq!(left, 2, "{keys:?}");
            group.barrier(()).unwrap();
        });
    }
}

#[test]
fn missing_ranks_are_named_on_all_ranks() {
    for (wait_all_ranks, named) in [(false, "Rank 1"), (true, "Ranks 1, 3")] {
        let failed = Barrier::new(5);
        ranks(5, |group| {
            let late = [1, 3].contains(&group.rank());
            if late {
                failed.wait();
            }
            // Rank 0 decides, whose time begins when all came that shall.
            let limit = SHORT.filter(|_| group.rank() == 0);
            if group.rank() == 0 {
                let arrivals = ["monitored_barrier/0/2", "monitored_barrier/0/4"];
                group.get_group_store().wait(&arrivals, None).unwrap();
            }
            let error = group.monitored_barrier(limit, wait_all_ranks).unwrap_err();
            let text = format!("[Rank 0]: {named} failed to pass monitoredBarrier in 300 ms");
            let Error::MonitoredBarrier { rank: 1, missing_ranks, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(missing_ranks[..], [1, 3]);
            assert!(error.to_string().contains(&text), "{error}");
            if !late {
                failed.wait();
            }
            // It harms nothing.
            group.monitored_barrier(None, false).unwrap();
            group.barrier(()).unwrap();
        });
    }
}
