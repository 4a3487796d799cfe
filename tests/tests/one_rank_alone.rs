//! What keeps one rank alone from a group: the others learn at once that it does not come, and why.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::backend::NcclOptions;
use polyrank::distributed::{
    InitOptions, NewGroupOptions, init_process_group, join_group, new_group,
};
use polyrank::store::{HashStore, PrefixStore, Store};
use polyrank::{Error, GroupOptions, ProcessGroup, SplitOptions};
use polyrank_tests::processes::{all_went_well, bare_processes, processes, report, with_variable};
use polyrank_tests::{LIMIT, ranks};

fn is_duplicate(error: &Error, name: &str) -> bool {
    matches!(error, Error::DuplicateGroup { group_name } if group_name == name)
}

/// Checks what rank 0 alone found wrong, and what all others were told of it.
fn check_told(errors: &[Error], name: &str, why: &str) {
    assert!(errors[0].to_string().contains(why), "{}", errors[0]);
    for error in &errors[1..] {
        let told = format!("rank 0 does not join group '{name}'");
        let text = error.to_string();
        assert!(matches!(error, Error::Rendezvous { .. }), "{error:?}");
        assert!(text.contains(&told) && text.contains(why), "{text}");
    }
}

fn named(name: &str) -> SplitOptions {
    SplitOptions::default().name(name)
}

#[test]
fn a_name_that_one_rank_has_is_refused_to_the_members_of_a_split() {
    let errors = ranks(3, |group| {
        // A group of its own, out of a group of two: the others know nothing of it.
        let kept = match group.rank() {
            2 => None,
            rank => {
                let pair = group.split_group(&[0, 1], named("pair")).unwrap().unwrap();
                let alone = (rank == 0).then(|| pair.split_group(&[0], named("weights")));
                Some((pair, alone.map(|made| made.unwrap().unwrap())))
            }
        };
        let error = group.split_group(&[0, 1, 2], named("weights")).unwrap_err();
        // The name is no other's: whoever has left that group has it again.
        drop(kept);
        error
    });
    assert!(is_duplicate(&errors[0], "weights"), "{:?}", errors[0]);
    check_told(&errors, "weights", "'weights' exists already");
}

#[test]
fn what_the_backends_of_one_member_of_a_split_do_not_take_is_told() {
    let errors = ranks(2, |group| {
        let options = match group.rank() {
            0 => SplitOptions::default().backend_options(NcclOptions::default()),
            _ => SplitOptions::default(),
        };
        group.split_group(&[0, 1], options.name("child")).map(drop).unwrap_err()
    });
    check_told(&errors, "child", "groups in which nccl serves a device");
}

fn made(store: Arc<dyn Store>, rank: u32, size: u32, name: &str) -> Result<ProcessGroup, Error> {
    ProcessGroup::new(store, rank, size, name, GroupOptions::default().timeout(LIMIT))
}

#[test]
fn a_rank_is_in_one_group_of_a_name_in_a_store() {
    for size in [1, 2] {
        let store: Arc<dyn Store> = Arc::new(HashStore::new());
        let all = thread::scope(|scope| {
            let store = &store;
            let all: Vec<_> = (0..size)
                .map(|rank| scope.spawn(move || made(store.clone(), rank, size, "one").unwrap()))
                .collect();
            all.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        for rank in 0..size {
            let error = made(store.clone(), rank, size, "one").unwrap_err();
            assert!(is_duplicate(&error, "one"), "{error:?}");
            if size > 1 {
                // Through another handle it is the same store.
                let other: Arc<dyn Store> = store.clone_store().unwrap();
                let error = made(other, rank, size, "one").unwrap_err();
                assert!(is_duplicate(&error, "one"), "{error:?}");
            }
        }
        // In another store there may be one of the same name.
        let elsewhere: Arc<dyn Store> = Arc::new(PrefixStore::new("elsewhere", store));
        thread::scope(|scope| {
            for rank in 0..size {
                let elsewhere = elsewhere.clone();
                scope.spawn(move || made(elsewhere, rank, size, "one").unwrap());
            }
        });
        drop(all);
    }
}

#[test]
fn a_name_that_one_rank_has_is_refused_to_those_that_merge() {
    let merges: Arc<dyn Store> = Arc::new(HashStore::new());
    let errors = ranks(2, |group| {
        let rank = group.rank();
        let taken = (rank == 0).then(|| group.split_group(&[0], named("merged")).unwrap().unwrap());
        let options = named("merged").timeout(LIMIT);
        // The first that comes is rank 0 of the merged group.
        group.barrier(()).unwrap();
        if rank == 1 {
            merges.wait(&["polyrank/merge/name"], Some(LIMIT)).unwrap();
        }
        let error = group.merge_remote_group(merges.clone(), 2, options).unwrap_err();
        drop(taken);
        error
    });
    assert!(is_duplicate(&errors[0], "merged"), "{:?}", errors[0]);
    check_told(&errors, "merged", "'merged' exists already");
}

#[test]
fn merged_groups_of_one_group_have_names_of_their_own() {
    let merges: Arc<dyn Store> = Arc::new(HashStore::new());
    ranks(2, |group| {
        let merge = |name: &str| {
            let store: Arc<dyn Store> = Arc::new(PrefixStore::new(name, merges.clone()));
            group.merge_remote_group(store, 2, SplitOptions::default().timeout(LIMIT)).unwrap()
        };
        let (first, second) = (merge("first"), merge("second"));
        let name = group.group_name();
        assert_eq!(first.group_name(), format!("{name}:merge"));
        assert_eq!(second.group_name(), format!("{name}:merge:2"));
    });
}

#[test]
fn the_name_of_a_group_that_the_process_keeps_is_refused_to_a_group_over_a_store() {
    let test = "the_name_of_a_group_that_the_process_keeps_is_refused_to_a_group_over_a_store";
    let ended = processes(test, 2, |group| {
        let ranks = if group.rank() == 0 { vec![0] } else { vec![1] };
        let name = if group.rank() == 0 { "taken" } else { "other" };
        let options = NewGroupOptions::default().ranks(ranks).group_name(name);
        let kept = new_group(options).unwrap();
        let store = Arc::new(PrefixStore::new("mine", group.get_group_store()));
        report(made(store, group.rank(), 2, "taken").map(drop).unwrap_err());
        // Also `new_group` tells.
        report(new_group(NewGroupOptions::default().group_name("taken")).map(drop).unwrap_err());
        drop(kept);
    });
    for (rank, ended) in ended.iter().enumerate() {
        let told = if rank == 0 { "" } else { "rank 0 does not join group 'taken'" };
        let [constructed, split] = ended.printed.as_slice() else { panic!("{}", ended.output) };
        for line in [constructed, split] {
            let is_told = line.contains(told) && line.contains("'taken' exists already");
            assert!(is_told, "rank {rank}: {line}");
        }
    }
}

#[test]
fn what_one_rank_alone_gives_wrong_is_told_where_the_ranks_meet() {
    let test = "what_one_rank_alone_gives_wrong_is_told_where_the_ranks_meet";
    for wrong in ["0", "1"] {
        let told = with_variable("POLYRANK_TEST_WRONG", wrong, || {
            bare_processes(test, 3, || {
                let wrong = std::env::var("POLYRANK_TEST_WRONG").unwrap();
                let is_wrong = std::env::var("RANK").unwrap() == wrong;
                let options = || InitOptions::default().timeout(LIMIT);
                let nccl = || options().backend_options(NcclOptions::default());
                let named = if is_wrong { options().backend("pigeon") } else { options() };
                report(init_process_group(named).unwrap_err());
                let chosen = if is_wrong { nccl() } else { options() };
                report(join_group("joined", chosen).unwrap_err());
                // The next one is made all the same.
                init_process_group(options()).unwrap();
                polyrank::distributed::destroy_process_group(None).unwrap();
            })
        });
        all_went_well(&told);
        for (rank, ended) in told.iter().enumerate() {
            let [init, join] = ended.printed.as_slice() else { panic!("{}", ended.output) };
            for (line, name, why) in [
                (init, "default_pg", "'pigeon'"),
                (join, "joined", "groups in which nccl serves a device"),
            ] {
                let told = format!("rank {wrong} does not join group '{name}'");
                let is_told = rank.to_string() == wrong || line.contains(&told);
                assert!(is_told && line.contains(why), "rank {rank}: {line}");
            }
        }
    }
}

/// Calls `join_group` wrongly where `is_wrong`, and then rightly, as programs do that try one
/// backend and then another: says how the first call failed.
fn tried_twice(name: &str, is_wrong: bool) -> Error {
    let options = || InitOptions::default().timeout(LIMIT);
    let wrong = || options().backend("pigeon").timeout(Duration::from_millis(500));
    let first = join_group(name, if is_wrong { wrong() } else { options() }).unwrap_err();
    let group = join_group(name, options()).unwrap();
    group.barrier(()).unwrap();
    polyrank::distributed::destroy_process_group(Some(&group)).unwrap();
    first
}

#[test]
fn the_call_after_a_refused_one_meets_the_others_next_calls() {
    let test = "the_call_after_a_refused_one_meets_the_others_next_calls";
    // The ranks that are wrong, in a store that stands and in one that comes with the group.
    for wrong in ["012", "1", "02"] {
        let ended = with_variable("POLYRANK_TEST_WRONG", wrong, || {
            bare_processes(test, 3, || {
                let rank = std::env::var("RANK").unwrap();
                let is_wrong = std::env::var("POLYRANK_TEST_WRONG").unwrap().contains(&rank);
                tried_twice("new", is_wrong);
                let kept = join_group("kept", InitOptions::default().timeout(LIMIT)).unwrap();
                for round in 0..5 {
                    report(tried_twice(&format!("joined {round}"), is_wrong));
                }
                drop(kept);
            })
        });
        all_went_well(&ended);
        for ended in &ended {
            assert_eq!(ended.printed.len(), 5, "{}", ended.output);
            for line in &ended.printed {
                assert!(line.contains("'pigeon'"), "{line}");
            }
        }
    }
}

#[test]
fn a_rank_that_comes_after_the_others_were_refused_is_told_in_its_first_call() {
    let test = "a_rank_that_comes_after_the_others_were_refused_is_told_in_its_first_call";
    for (wrong, late) in [("012", "0"), ("012", "2"), ("1", "0"), ("1", "2")] {
        let ended = with_variable("POLYRANK_TEST_WRONG", wrong, || {
            with_variable("POLYRANK_TEST_LATE", late, || {
                bare_processes(test, 3, || {
                    let variable = |name: &str| std::env::var(name).unwrap();
                    let rank = variable("RANK");
                    let is_wrong = variable("POLYRANK_TEST_WRONG").contains(&rank);
                    let kept = join_group("kept", InitOptions::default().timeout(LIMIT)).unwrap();
                    let store = kept.get_group_store();
                    if variable("POLYRANK_TEST_LATE") == rank {
                        store.wait(&["refused"], Some(LIMIT)).unwrap();
                    } else if rank == "1" {
                        let wrong = InitOptions::default().backend("pigeon");
                        let wrong = wrong.timeout(Duration::from_millis(300));
                        report(join_group("late", wrong).unwrap_err());
                        store.set("refused", b"").unwrap();
                        let right = InitOptions::default().timeout(LIMIT);
                        join_group("late", right).unwrap().barrier(()).unwrap();
                        return;
                    }
                    report(tried_twice("late", is_wrong));
                })
            })
        });
        all_went_well(&ended);
        for ended in &ended {
            let [line] = ended.printed.as_slice() else { panic!("{}", ended.output) };
            assert!(line.contains("'pigeon'"), "{line}");
        }
    }
}
