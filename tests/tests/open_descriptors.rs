//! Destroying a group closes what was open for it, even while something refers to it. Every rank is
//! a process, whose descriptors are counted.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use polyrank::distributed::{
    InitOptions, NewGroupOptions, destroy_process_group, init_process_group, new_group,
};
use polyrank::{Error, ProcessGroup};
use polyrank_tests::processes::{ReservedPort, bare_processes, processes, with_variable};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until no more than `count` descriptors are open: what other ranks close, and what the
/// background thread waited for, ends a moment later.
fn until_no_more_than(count: usize) {
    let begin = Instant::now();
    while descriptors() > count {
        let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .map(|entry| std::fs::read_link(entry.path()))
            .collect();
        assert!(begin.elapsed() < LIMIT, "{} of {count} descriptors: {open:?}", open.len());
        std::thread::yield_now();
    }
}

fn all_ranks() -> ProcessGroup {
    new_group(NewGroupOptions::default()).unwrap().unwrap()
}

fn groups_that_were_destroyed(group: &ProcessGroup) {
    let used = |group: &ProcessGroup| {
        let mut sum = [1u32; 3];
        group.allreduce(&mut sum, ()).unwrap();
        assert_eq!(sum, [group.size(); 3]);
    };
    let first = all_ranks();
    used(&first);
    destroy_process_group(Some(&first)).unwrap();
    used(group);
    let before = descriptors();
    let groups: Vec<ProcessGroup> = (0..5).map(|_| all_ranks()).collect();
    groups.iter().for_each(used);
    assert!(group.size() == 1 || descriptors() > before, "groups have connections");
    for destroyed in &groups {
        destroy_process_group(Some(destroyed)).unwrap();
    }
    // All have destroyed them: none is connected to another any more.
    used(group);
    until_no_more_than(before);
    for destroyed in &groups {
        let late = destroyed.allreduce(&mut [1u32], ()).unwrap_err();
        assert!(matches!(late, Error::InvalidGroup { .. }), "{late}");
        let store = destroyed.get_group_store().get("key").unwrap_err();
        assert!(store.to_string().contains("the group was destroyed"), "{store}");
    }
}

#[test]
fn destroyed_groups_keep_nothing_open_while_they_are_referred_to() {
    let test = "destroyed_groups_keep_nothing_open_while_they_are_referred_to";
    for transport in ["auto", "tcp"] {
        for world in [1, 2, 3, 5] {
            let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
                processes(test, world, |group| groups_that_were_destroyed(&group))
            });
            for rank in ended {
                assert_eq!(rank.code, Some(0), "{transport}, {world}: {}", rank.output);
            }
        }
    }
}

#[test]
fn a_default_group_that_is_referred_to_leaves_its_port() {
    let ended = bare_processes("a_default_group_that_is_referred_to_leaves_its_port", 2, || {
        let mut kept: Vec<ProcessGroup> = Vec::new();
        let mut count = 0;
        for round in 0..20 {
            let group = init_process_group(InitOptions::default().timeout(LIMIT)).unwrap();
            group.barrier(()).unwrap();
            kept.push(group);
            destroy_process_group(None).unwrap();
            // A handle that another thread, as a collector, drops some time.
            let dropped = (round % 3 == 2).then(|| kept.remove(0));
            std::thread::spawn(move || drop(dropped));
            if round == 2 {
                count = descriptors();
            }
        }
        until_no_more_than(count);
    });
    for rank in ended {
        assert_eq!(rank.code, Some(0), "{}", rank.output);
    }
}

#[test]
fn the_port_of_a_store_whose_last_handle_is_dropped_by_another_thread_can_be_had() {
    let reserved = ReservedPort::new();
    let port = reserved.number();
    let options = || {
        let url = format!("tcp://127.0.0.1:{port}?rank=0&world_size=1");
        InitOptions::default().init_method(url).timeout(LIMIT)
    };
    for _ in 0..50 {
        let group = init_process_group(options()).unwrap();
        let store = group.get_group_store();
        destroy_process_group(None).unwrap();
        let dropped = std::thread::spawn(move || drop((store, group)));
        // Whether the server still stands, ends just now, or has ended.
        let next = init_process_group(options()).unwrap();
        dropped.join().unwrap();
        destroy_process_group(None).unwrap();
        drop(next);
    }
}
