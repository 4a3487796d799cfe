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

#[test]
fn a_timeout_of_zero_waits_for_nobody() {
    const ZERO: Option<Duration> = Some(Duration::ZERO);
    for size in [1, 2, 3, 5] {
        let (arrived, failed) = (Barrier::new(size), Barrier::new(size));
        ranks(size as u32, |group| {
            let here = group.rank();
            let others: Vec<String> =
                (1..group.size()).map(|rank| format!("monitored_barrier/0/{rank}")).collect();
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            if here == 0 {
                group.get_group_store().wait(&others, None).unwrap();
            }
            // Those that are there already are enough.
            group.monitored_barrier(ZERO.filter(|_| here == 0), false).unwrap();
            arrived.wait();
            if here == 0 {
                let last = group.monitored_barrier(ZERO, true).map_err(|error| error.to_string());
                let missing = (1..group.size()).map(|rank| rank.to_string()).collect::<Vec<_>>();
                let text = format!(
                    "[Rank 0]: Ranks {} failed to pass monitoredBarrier in 0 ms",
                    missing.join(", ")
                );
                assert_eq!(last, if size == 1 { Ok(()) } else { Err(text) });
            }
            failed.wait();
            if here > 0 {
                group.monitored_barrier(ZERO, true).unwrap_err();
            }
        });
    }
}

#[test]
fn rank_0_decides_although_it_comes_last_and_nobody_has_time() {
    ranks(3, |group| {
        if group.rank() == 0 {
            let arrivals = ["monitored_barrier/0/1", "monitored_barrier/0/2"];
            group.get_group_store().wait(&arrivals, None).unwrap();
        }
        group.monitored_barrier(Some(Duration::ZERO), true).unwrap();
        // Nobody passes the next one before rank 2, which is really missing, was named.
        if group.rank() == 2 {
            group.get_group_store().wait(&["monitored_barrier/1/verdict"], None).unwrap();
        }
        if group.rank() == 0 {
            group.get_group_store().wait(&["monitored_barrier/1/1"], None).unwrap();
        }
        let failed = group.monitored_barrier(Some(Duration::ZERO), true).unwrap_err();
        let Error::MonitoredBarrier { missing_ranks, .. } = &failed else { panic!("{failed}") };
        assert_eq!(missing_ranks[..], [2], "{failed}");
    });
}

#[test]
fn a_timeout_below_a_millisecond_is_a_limit() {
    ranks(2, |group| {
        let half = Duration::from_micros(500);
        let limit = group.timeout();
        group.set_timeout(half).unwrap();
        assert_eq!(group.timeout(), half);
        let store = group.get_group_store();
        if group.rank() == 0 {
            let error = group.allreduce(&mut [1], ()).unwrap_err();
            assert!(matches!(error, polyrank::Error::CollectiveTimeout { .. }), "{error}");
            store.set("over", b"").unwrap();
        }
        store.wait(&["over"], Some(limit)).unwrap();
    });
}

#[test]
fn a_group_whose_timeout_is_zero_has_no_limit() {
    ranks(3, |group| {
        group.set_timeout(Duration::ZERO).unwrap();
        let mut sum = vec![group.rank(); 100_000];
        group.allreduce(&mut sum, ()).unwrap();
        group.barrier(()).unwrap();
        group.monitored_barrier(None, false).unwrap();
        // An operation's own limit of zero is none, whatever the group's is.
        group.set_timeout(Duration::from_nanos(1)).unwrap();
        group
            .barrier(polyrank::options::BarrierOptions::default().timeout(Duration::ZERO))
            .unwrap();
        group.set_timeout(Duration::ZERO).unwrap();
        let child = group.split_group(&[2, 0], polyrank::SplitOptions::default()).unwrap();
        if let Some(child) = child {
            assert_eq!(child.timeout(), Duration::ZERO);
            child.barrier(()).unwrap();
        }
        assert_eq!(sum[99_999], 3);
    });
}
