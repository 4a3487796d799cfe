//! One process in many groups: what they hold open and in memory is bounded, and nothing of them
//! stays. Every rank is a process, whose descriptors and memory are counted.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use polyrank::distributed::{
    InitOptions, NewGroupOptions, destroy_process_group, init_process_group, new_group,
};
use polyrank::{Error, ProcessGroup};
use polyrank_tests::processes::{bare_processes, dies_between_operations, processes, report};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

/// What most systems let a process have open.
const MAX_OPEN: usize = 1024;

/// What groups may add to the memory of a process.
const MAX_BYTES: usize = 64 << 20;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of this process that are in memory, shared ones included.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Waits until `count` gives no more than `most`.
fn until_no_more_than(most: usize, what: &str, count: impl Fn() -> usize) {
    let begin = Instant::now();
    while count() > most {
        assert!(begin.elapsed() < LIMIT, "{} {what}, not {most}", count());
        std::thread::yield_now();
    }
}

/// Checks a sum of `elements` numbers, which every rank gives as its own number.
fn is_usable(group: &ProcessGroup, elements: usize) {
    let mut sum = vec![u64::from(group.rank()); elements];
    group.allreduce(&mut sum, ()).unwrap();
    let size = u64::from(group.size());
    assert_eq!(sum, vec![size * (size - 1) / 2; elements]);
}

/// The `number`th group: of all ranks, or of those that a number of its own leaves out.
fn group_of(number: u32, rank: u32, size: u32) -> Option<ProcessGroup> {
    let all: Vec<u32> = (0..size).collect();
    let members: Vec<u32> = match number % 4 {
        3 => all.into_iter().filter(|member| *member != number / 4 % size).collect(),
        _ => all,
    };
    let is_member = members.contains(&rank);
    let group = new_group(NewGroupOptions::default().ranks(members)).unwrap();
    assert_eq!(group.is_some(), is_member);
    group
}

fn is_in_a_hundred_groups(default: &ProcessGroup) {
    is_usable(default, 1);
    let (open, bytes) = (descriptors(), resident_bytes());
    let (rank, size) = (default.rank(), default.size());
    let mut groups = Vec::new();
    for number in 0..100 {
        groups.extend(group_of(number, rank, size));
        assert!(descriptors() <= MAX_OPEN, "while group {number} is made");
    }
    for group in &groups {
        is_usable(group, 1);
        is_usable(group, 1001);
        // More than the memory through which two ranks send long messages.
        is_usable(group, 300_001);
    }
    default.barrier(()).unwrap();
    assert!(descriptors() <= MAX_OPEN, "{} descriptors", descriptors());
    until_no_more_than(bytes + MAX_BYTES, "bytes", resident_bytes);
    for group in &groups {
        destroy_process_group(Some(group)).unwrap();
    }
    default.barrier(()).unwrap();
    // Threads that slept may have left one descriptor each for the next that sleeps.
    until_no_more_than(open + 2, "descriptors", descriptors);
}

#[test]
fn a_hundred_groups_of_eight_ranks_fit_a_process() {
    let test = "a_hundred_groups_of_eight_ranks_fit_a_process";
    for rank in processes(test, 8, |group| is_in_a_hundred_groups(&group)) {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
}

#[test]
fn a_death_is_told_to_every_group_of_its_process_and_harms_no_other() {
    let test = "a_death_is_told_to_every_group_of_its_process_and_harms_no_other";
    let ended = bare_processes(test, 3, || {
        let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
        let of = |ranks: &[u32]| {
            let made = (0..5).map(|_| new_group(NewGroupOptions::default().ranks(ranks.to_vec())));
            made.filter_map(|made| made.unwrap()).collect::<Vec<_>>()
        };
        let (with, without) = (of(&[0, 1, 2]), of(&[0, 1]));
        with.iter().chain(&without).for_each(|group| is_usable(group, 1));
        dies_between_operations(&group, 2);
        for group in &with {
            let lost = group.allreduce(&mut [1_u32], ()).unwrap_err();
            assert!(matches!(lost, Error::RankFailed { rank: 2, .. }), "{lost}");
        }
        without.iter().for_each(|group| is_usable(group, 100_000));
        report("told");
        // Rank 0 has the store.
        is_usable(&without[0], 1);
    });
    for rank in &ended[..2] {
        assert_eq!((rank.code, &rank.printed[..]), (Some(0), &["told".to_owned()][..]), "{rank:?}");
    }
}

#[test]
fn a_thousand_default_groups_leave_nothing_open() {
    let ended = bare_processes("a_thousand_default_groups_leave_nothing_open", 2, || {
        let mut most = 0;
        for round in 0..1000 {
            let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
            if round % 10 == 0 {
                is_usable(&group, 1);
            }
            most = most.max(descriptors());
            destroy_process_group(None).unwrap();
        }
        assert!(most <= 64, "{most} descriptors at a time");
    });
    for rank in ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
}
