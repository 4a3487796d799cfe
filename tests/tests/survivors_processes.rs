//! Calls of those that are left of a group, over real processes that are killed: `agree` and
//! `shrink_group`, in groups of several sizes, made in a store or by `reconfigure`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::time::Duration;

use polyrank::process_group::ReconfigureOptions;
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, ProcessGroup, ReduceOp, WorkResult};
use polyrank_tests::LIMIT;
use polyrank_tests::processes::{
    ProcessEnd, die, dies_between_operations, lines_of_survivors, processes, report, with_variable,
};

/// Where ranks find a store that none of them hosts: this test's.
const STORE: &str = "POLYRANK_TEST_EXCHANGE";

/// Runs `rank_main` on `size` processes with the default group, whose store rank 0 hosts, and with
/// a store that outlives them.
fn ranks(test: &str, size: u32, rank_main: impl FnOnce(ProcessGroup, TcpStore)) -> Vec<ProcessEnd> {
    let options = TcpStoreOptions::new("127.0.0.1", 0).is_master(true);
    let store = TcpStore::new(options).unwrap();
    with_variable(STORE, &store.port().to_string(), || {
        processes(test, size, |group| {
            let port = std::env::var(STORE).unwrap().parse().unwrap();
            let options = TcpStoreOptions::new("127.0.0.1", port).wait_for_workers(false);
            rank_main(group, TcpStore::new(options).unwrap());
        })
    })
}

/// The handles of `members`, which exchange them in `store`.
fn exchange(group: &ProcessGroup, store: &TcpStore, round: &str, members: &[u32]) -> Vec<String> {
    let handle = group.get_reconfigure_handle().unwrap();
    store.set(&format!("{round}/{}", group.rank()), handle.as_bytes()).unwrap();
    let keys: Vec<String> = members.iter().map(|rank| format!("{round}/{rank}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let handles = store.multi_get(&keys).unwrap();
    handles.into_iter().map(|handle| String::from_utf8(handle).unwrap()).collect()
}

/// Checks that all who are left reduce.
fn reduces(group: &ProcessGroup) {
    let mut ones = [1f64; 3];
    group.allreduce(&mut ones, ReduceOp::Sum).unwrap();
    assert_eq!(ones, [f64::from(group.size()); 3]);
}

/// The group breaks, `victim` is killed after that, and the others go on without it.
fn is_killed_when_broken(test: &str, size: u32, victim: u32) {
    let ended = ranks(test, size, |group, store| {
        reduces(&group);
        assert_eq!(group.get_error(), WorkResult::Success);
        let looked = |rank: u32| format!("looked/{rank}");
        store.set(&looked(group.rank()), b"").unwrap();
        if group.rank() == (victim + 1) % size {
            let all: Vec<String> = (0..size).map(looked).collect();
            store.wait(&all.iter().map(String::as_str).collect::<Vec<_>>(), None).unwrap();
            group.revoke().unwrap();
        }
        assert!(group.barrier(()).is_err());
        assert_eq!(group.get_error(), WorkResult::CommError);
        if group.rank() == victim {
            die();
        }
        assert_eq!(group.agree(0b110, Some(LIMIT)).unwrap(), 0b110);
        let error = group.shrink_group(&[], Some(LIMIT)).and_then(|work| work.wait(None));
        let error = error.unwrap_err();
        assert!(matches!(error, Error::RankFailed { rank, .. } if rank == victim), "{error:?}");
        assert!(error.to_string().contains(&format!("rank {victim}")), "{error}");
        group.shrink_group(&[victim], Some(LIMIT)).unwrap().wait(None).unwrap();
        assert_eq!(group.get_error(), WorkResult::Success);
        reduces(&group);
        assert_eq!(group.agree(0b11, Some(LIMIT)).unwrap(), 0b11);
        report(format!("rank {} of {}", group.rank(), group.size()));
    });
    check(&ended, victim);
}

fn check(ended: &[ProcessEnd], victim: u32) {
    let size = ended.len();
    for (place, (rank, line)) in lines_of_survivors(ended, victim).into_iter().enumerate() {
        assert_eq!(line, format!("rank {place} of {}", size - 1), "rank {rank}");
    }
}

#[test]
fn a_rank_of_two_is_killed_after_the_group_broke() {
    is_killed_when_broken("a_rank_of_two_is_killed_after_the_group_broke", 2, 1);
}

#[test]
fn a_rank_of_three_is_killed_after_the_group_broke() {
    is_killed_when_broken("a_rank_of_three_is_killed_after_the_group_broke", 3, 1);
}

#[test]
fn a_rank_of_five_is_killed_after_the_group_broke() {
    is_killed_when_broken("a_rank_of_five_is_killed_after_the_group_broke", 5, 4);
}

/// That `error` says whose store is gone, and what to do.
fn names_the_host(error: &Error, host: u32) {
    assert!(matches!(error, Error::RankFailed { rank, .. } if *rank == host), "{error:?}");
    let text = error.to_string();
    for said in ["it hosted the store", "get_reconfigure_handle()", &format!("rank {host}")] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn the_host_of_the_store_is_killed() {
    let test = "the_host_of_the_store_is_killed";
    let ended = ranks(test, 3, |group, store| {
        let _ = group.get_reconfigure_handle().unwrap();
        reduces(&group);
        dies_between_operations(&group, 0);
        assert!(group.barrier(()).is_err());
        // Without a limit: that the host is gone ends them.
        names_the_host(&group.agree(1, Some(Duration::ZERO)).unwrap_err(), 0);
        let shrunk = group.shrink_group(&[0], Some(Duration::ZERO));
        names_the_host(&shrunk.and_then(|work| work.wait(None)).unwrap_err(), 0);
        let handles = exchange(&group, &store, "after", &[1, 2]);
        group.reconfigure(ReconfigureOptions::new(1, handles)).unwrap().wait(None).unwrap();
        reduces(&group);
        report(format!("rank {} of {}", group.rank(), group.size()));
    });
    check(&ended, 0);
}

#[test]
fn the_host_of_the_store_is_stopped() {
    let test = "the_host_of_the_store_is_stopped";
    let ended = ranks(test, 3, |group, store| {
        reduces(&group);
        if group.rank() == 0 {
            store.set("host", std::process::id().to_string().as_bytes()).unwrap();
            signal(std::process::id(), "-STOP");
        }
        let host = String::from_utf8(store.get("host").unwrap()).unwrap().parse().unwrap();
        while !is_stopped(host) {
            std::thread::yield_now();
        }
        group.revoke().unwrap();
        // It lives, and may come back: nobody says that it is gone.
        let error = group.agree(1, Some(Duration::from_millis(500))).unwrap_err();
        assert!(matches!(error, Error::RendezvousTimeout { rank: 0, .. }), "{error:?}");
        assert!(error.to_string().contains("which rank 0 hosts, did not answer"), "{error}");
        let _ = exchange(&group, &store, "told", &[1, 2]);
        if group.rank() == 1 {
            signal(host, "-KILL");
        }
        report(format!("rank {} of {}", group.rank() - 1, group.size() - 1));
    });
    check(&ended, 0);
}

fn signal(process: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Whether all threads of a process are stopped (proc(5)).
fn is_stopped(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().any(|line| line.starts_with("State:") && line.contains("T (stopped)"))
}

/// In a group that was reconfigured, `victim` is killed, and the others go on without it.
fn is_killed_after_reconfigure(test: &str, victim: u32) {
    let ended = ranks(test, 4, |group, store| {
        let all = [0, 1, 2, 3];
        let handles = exchange(&group, &store, "first", &all);
        group.reconfigure(ReconfigureOptions::new(1, handles)).unwrap().wait(None).unwrap();
        reduces(&group);
        dies_between_operations(&group, victim);
        assert!(group.barrier(()).is_err());
        // The eldest hosts the store.
        match group.agree(5, Some(LIMIT)) {
            Ok(agreed) => assert_eq!((agreed, victim != 0), (5, true)),
            Err(error) => names_the_host(&error, 0),
        }
        group.shrink_group(&[victim], Some(LIMIT)).unwrap().wait(None).unwrap();
        reduces(&group);
        assert_eq!(group.agree(12, Some(LIMIT)).unwrap(), 12);
        report(format!("rank {} of {}", group.rank(), group.size()));
    });
    check(&ended, victim);
}

#[test]
fn the_eldest_member_is_killed() {
    is_killed_after_reconfigure("the_eldest_member_is_killed", 0);
}

#[test]
fn another_member_is_killed() {
    is_killed_after_reconfigure("another_member_is_killed", 2);
}
