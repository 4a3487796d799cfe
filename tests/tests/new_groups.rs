//! Groups out of a group: made by several threads, in other orders on other ranks, and while a rank
//! dies.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyrank::distributed::{NewGroupOptions, new_group};
use polyrank::store::{Store, TcpStore, TcpStoreOptions};
use polyrank::{Error, GroupOptions, ProcessGroup, SplitOptions};
use polyrank_tests::LIMIT;
use polyrank_tests::processes::{die, dies_between_operations, processes, report, with_variable};

/// Runs `rank_main` on `size` ranks of this process, each with a client of its own of a TCP store.
fn over_tcp<R: Send>(size: u32, rank_main: impl Fn(&ProcessGroup) -> R + Sync) -> Vec<R> {
    let options = |port| TcpStoreOptions::new("127.0.0.1", port).timeout(LIMIT);
    let host = TcpStore::new(options(0).is_master(true).wait_for_workers(false)).unwrap();
    let (port, rank_main) = (host.port(), &rank_main);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                scope.spawn(move || {
                    let store = TcpStore::new(options(port)).unwrap();
                    let options = GroupOptions::default().timeout(LIMIT);
                    let store: Arc<dyn Store> = Arc::new(store);
                    let group = ProcessGroup::new(store, rank, size, "world", options).unwrap();
                    let result = rank_main(&group);
                    // Ranks that raised may disagree on what they ran.
                    let _ = group.shutdown();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn split(group: &ProcessGroup, ranks: &[u32], name: &str) -> Result<ProcessGroup, Error> {
    let options = SplitOptions::default().name(name);
    group.split_group(ranks, options).map(|group| group.unwrap())
}

/// Waits until `rank` has come to the new group `name`.
fn until_in(group: &ProcessGroup, name: &str, rank: u32) {
    let store = group.get_group_store().clone_store().unwrap();
    store.wait(&[&format!("polyrank/{name}/assembly/join/{rank}")], Some(LIMIT)).unwrap();
}

fn sum(group: &ProcessGroup, number: u32) -> u32 {
    let mut numbers = [number];
    group.allreduce(&mut numbers, ()).unwrap();
    numbers[0]
}

#[test]
fn threads_make_overlapping_groups_in_any_order() {
    let sums = over_tcp(3, |group| {
        let rank = group.rank();
        let pair = || sum(&split(group, &[0, 1], "pair").unwrap(), rank + 1);
        let all = || sum(&split(group, &[0, 1, 2], "all").unwrap(), rank + 1);
        thread::scope(|scope| match rank {
            0 => {
                let pair = scope.spawn(pair);
                until_in(group, "pair", 0);
                let all = all();
                (pair.join().unwrap(), all)
            }
            1 => {
                let all = scope.spawn(all);
                until_in(group, "all", 1);
                (pair(), all.join().unwrap())
            }
            _ => (0, all()),
        })
    });
    assert_eq!(sums, [(3, 6), (3, 6), (0, 6)]);
}

#[test]
fn of_two_groups_of_one_name_that_threads_make_at_the_same_time_one_is_made() {
    let sums = over_tcp(2, |group| {
        let made = || split(group, &[0, 1], "same");
        let both =
            thread::scope(|scope| [scope.spawn(made), scope.spawn(made)].map(|it| it.join()));
        let mut sums = Vec::new();
        // All are kept until the end: the name of a group that is gone is free.
        for made in both.iter().map(|made| made.as_ref().unwrap()) {
            match made {
                Ok(made) => sums.push(sum(made, group.rank() + 1)),
                Err(error) => assert!(matches!(error, Error::DuplicateGroup { .. }), "{error:?}"),
            }
        }
        sums
    });
    assert_eq!(sums, [[3], [3]]);
}

#[test]
fn ranks_that_make_groups_in_other_orders_hear_which_calls_cross() {
    for size in [2, 3, 5] {
        let everybody: Vec<u32> = (0..size).rev().collect();
        let errors = over_tcp(size, |group| match group.rank() {
            0 => split(group, &[0, 1], "pair").map(drop).unwrap_err(),
            _ => split(group, &everybody, "all").map(drop).unwrap_err(),
        });
        for (rank, error) in errors.into_iter().enumerate() {
            assert!(matches!(error, Error::Rendezvous { .. }), "{error:?}");
            let text = error.to_string();
            let all = format!("rank 1 waits for rank 0 in split_group of ranks {everybody:?}");
            for named in ["rank 0 waits for rank 1 in split_group of ranks [0, 1]", &all] {
                assert!(text.contains(named), "rank {rank}: {text}");
            }
        }
    }
}

#[test]
fn calls_that_wait_for_one_another_in_a_circle_are_all_named() {
    for size in [3, 5, 8] {
        let errors = over_tcp(size, |group| {
            let (rank, next) = (group.rank(), (group.rank() + 1) % size);
            split(group, &[rank, next], &format!("from {rank}")).map(drop).unwrap_err().to_string()
        });
        for error in errors {
            for rank in 0..size {
                let next = (rank + 1) % size;
                let named = format!(
                    "rank {rank} waits for rank {next} in split_group of ranks [{rank}, {next}]"
                );
                assert!(error.contains(&named), "{error}");
            }
        }
    }
}

#[test]
fn threads_that_made_groups_and_have_ended_hide_no_calls_that_cross() {
    let errors = over_tcp(2, |group| {
        for name in ["first", "second"] {
            let group = group.clone();
            let made = thread::spawn(move || split(&group, &[0, 1], name).map(drop));
            made.join().unwrap().unwrap();
        }
        let ranks = if group.rank() == 0 { [0, 1] } else { [1, 0] };
        split(group, &ranks, &format!("{ranks:?}")).map(drop).unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        for named in ["split_group of ranks [0, 1]", "split_group of ranks [1, 0]"] {
            assert!(text.contains("calls cross") && text.contains(named), "{text}");
        }
    }
}

#[test]
fn calls_that_cross_are_told_apart_by_the_names_of_their_groups_where_nothing_else_differs() {
    let errors = over_tcp(2, |group| {
        let name = ["one", "other"][group.rank() as usize];
        split(group, &[0, 1], name).map(drop).unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        for named in [
            "rank 0 waits for rank 1 in split_group of ranks [0, 1] (group 'one')",
            "rank 1 waits for rank 0 in split_group of ranks [0, 1] (group 'other')",
        ] {
            assert!(text.contains(named), "{text}");
        }
    }
}

#[test]
fn a_thread_makes_a_group_while_another_runs_operations() {
    let sums = over_tcp(2, |group| {
        let rank = group.rank();
        let made = |name: &str| sum(&split(group, &[0, 1], name).unwrap(), rank + 1);
        thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let first = made("first");
                if rank == 1 {
                    // The other thread waits in the operation meanwhile, for one that waits for
                    // this thread, and has looked for the reason a few times.
                    let store = group.get_group_store().clone_store().unwrap();
                    store.wait(&["calls/0"], Some(LIMIT)).unwrap();
                    for _ in 0..4 {
                        store.delete_key("stalled/1").unwrap();
                        store.wait(&["stalled/1"], Some(LIMIT)).unwrap();
                    }
                }
                first + made("second")
            });
            if rank == 0 {
                until_in(group, "second", 1);
            }
            (sum(group, rank + 1), maker.join().unwrap())
        })
    });
    assert_eq!(sums, [(3, 6), (3, 6)]);
}

#[test]
fn no_group_is_made_out_of_one_that_was_aborted() {
    let errors = over_tcp(3, |group| {
        if group.rank() == 0 {
            group.abort();
        }
        // The others come before they learn of it, or after.
        split(group, &[0, 1, 2], "late").unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        assert!(matches!(error, Error::Aborted { .. }), "rank {rank}: {error}");
        assert!(
            error.to_string().contains("aborted by rank 0: it called abort()"),
            "rank {rank}: {error}"
        );
    }
}

#[test]
fn a_member_that_has_left_is_not_waited_for() {
    let errors = over_tcp(3, |group| {
        assert_eq!(sum(group, 1), 3);
        // Rank 1 goes away while the others wait for it, or before.
        (group.rank() != 1).then(|| split(group, &[0, 1, 2], "late").unwrap_err().to_string())
    });
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        let error = error.as_ref().unwrap();
        let says = format!(
            "split_group of ranks [0, 1, 2] (group 'late') on rank {rank}: rank 1 does not come: \
             it has left group 'world'"
        );
        assert_eq!(*error, says);
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_with_the_call() {
    let errors = over_tcp(3, |group| {
        if group.rank() == 1 {
            // The others are told that this one did not come.
            until_in(group, "all", 0);
            let verdict = "polyrank/all/assembly/join/verdict";
            group.get_group_store().wait(&[verdict], Some(LIMIT)).unwrap();
        }
        let timeout = match group.rank() {
            0 => {
                until_in(group, "all", 2);
                Duration::from_millis(50)
            }
            _ => LIMIT,
        };
        let options = SplitOptions::default().name("all").timeout(timeout);
        group.split_group(&[0, 1, 2], options).map(drop).unwrap_err()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        assert!(matches!(error, Error::RendezvousTimeout { .. }), "{error:?}");
        let text = error.to_string();
        let call = format!("split_group of ranks [0, 1, 2] (group 'all') on rank {rank}: ");
        assert!(text.starts_with(&call), "{text}");
        assert!(text.contains("of 3 did not join within 50 ms"), "{text}");
        assert_eq!(
            text.ends_with("when the timeout of another rank had passed"),
            rank != 0,
            "{text}"
        );
    }
}

#[test]
fn a_group_that_is_left_last_tells_of_those_that_were_split_off_it() {
    let told = over_tcp(2, |group| {
        let child = split(group, &[0, 1], "child").unwrap();
        // Each is the root, and receives nothing from the other.
        child.broadcast(&mut [1f32; 4], group.rank()).unwrap_or_default();
        let first = child.shutdown().err();
        first.or(group.shutdown().err()).map(|error| error.to_string()).unwrap_or_default()
    });
    for (rank, told) in told.iter().enumerate() {
        assert!(told.contains("root 0") && told.contains("root 1"), "rank {rank}: {told}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_as_a_rank_of_the_default_group() {
    let errors = over_tcp(4, |group| {
        let fails = |timeout| {
            let options = SplitOptions::default().name("some").timeout(timeout);
            Some(group.split_group(&[3, 2, 0], options).map(drop).unwrap_err())
        };
        let error = match group.rank() {
            0 => fails(LIMIT),
            3 => {
                until_in(group, "some", 2);
                fails(Duration::from_millis(50))
            }
            _ => None,
        };
        group.get_group_store().barrier("over", 4, Some(LIMIT)).unwrap();
        error
    });
    for error in errors.into_iter().flatten() {
        let Error::RendezvousTimeout { rank: 2, missing_ranks, message } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(missing_ranks[..], [2]);
        let says = "rank 1 of 3 did not join within 50 ms (global ranks [2])";
        assert!(message.contains(says), "{error}");
    }
}

#[test]
fn the_name_of_a_group_that_was_destroyed_is_refused_with_advice() {
    over_tcp(2, |group| {
        split(group, &[0, 1], "once").unwrap().shutdown().unwrap();
        let error = split(group, &[0, 1], "once").map(drop).unwrap_err();
        let call = format!("split_group of ranks [0, 1] (group 'once') on rank {}: ", group.rank());
        let why = " joined twice: two processes came to group 'once' with the same rank, or the \
                   name was used before. It serves one group of a store, also after that was \
                   destroyed: give the new group another name, or none";
        let text = error.to_string();
        assert!(text.starts_with(&call) && text.ends_with(why), "{text}");
        // Without a name, as often as they like.
        for _ in 0..2 {
            let unnamed = group.split_group(&[0, 1], SplitOptions::default()).unwrap().unwrap();
            assert_eq!(sum(&unnamed, 1), 2);
            unnamed.shutdown().unwrap();
        }
    });
}

fn kind_of(error: &Error) -> String {
    match error {
        Error::RankFailed { rank, collective, group, .. } => {
            format!("rank {rank} of {group} failed in {collective}")
        }
        other => format!("{other:?}"),
    }
}

/// What the others report that wait for `victim` in `waits`.
fn while_a_rank_dies(test: &str, victim: u32, waits: impl Fn(&ProcessGroup) -> Error) {
    for transport in ["tcp", "auto"] {
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            processes(test, 3, |group| {
                group.barrier(()).unwrap();
                if group.rank() == victim {
                    // Rank 2 waits by now, unless it is the one that dies.
                    until_waiting(&group, if victim == 2 { 0 } else { 2 });
                    die();
                }
                report(kind_of(&waits(&group)));
                std::process::exit(0);
            })
        });
        for (rank, ended) in (0..).zip(ended).filter(|(rank, _)| *rank != victim) {
            let expected = format!("rank {victim} of default_pg failed in ");
            let said = ended.printed.first().map(String::as_str).unwrap_or_default();
            assert!(said.starts_with(&expected), "rank {rank}: {}", ended.output);
        }
    }
}

/// Waits until `rank` has come to a new group or a monitored barrier of `group`.
fn until_waiting(group: &ProcessGroup, rank: u32) {
    let (came, arrived) = (format!("/join/{rank}"), format!("monitored_barrier/0/{rank}"));
    let store = group.get_group_store();
    loop {
        let keys = store.list_keys().unwrap();
        let is_new = |key: &&String| key.contains("/assembly/") && key.ends_with(&came);
        if keys.iter().any(|key| is_new(&key) || key.ends_with(&arrived)) {
            return;
        }
        thread::yield_now();
    }
}

fn make_a_group(_: &ProcessGroup) -> Error {
    new_group(NewGroupOptions::default()).map(drop).unwrap_err()
}

#[test]
fn a_rank_that_is_known_to_be_gone_is_not_waited_for_and_the_others_may_go_on() {
    let test = "a_rank_that_is_known_to_be_gone_is_not_waited_for_and_the_others_may_go_on";
    let ended = processes(test, 3, |group| {
        group.barrier(()).unwrap();
        dies_between_operations(&group, 1);
        group.barrier(()).unwrap_err();
        let with_it = group.split_group(&[0, 1, 2], SplitOptions::default()).map(drop);
        report(kind_of(&with_it.unwrap_err()));
        let without = split(&group, &[0, 2], "survivors").unwrap();
        report(sum(&without, group.rank() + 1).to_string());
        without.shutdown().unwrap();
        std::process::exit(0);
    });
    for rank in [0, 2] {
        let expected = ["rank 1 of default_pg failed in split_group", "4"];
        assert_eq!(ended[rank].printed, expected, "{}", ended[rank].output);
    }
}

#[test]
fn a_rank_that_dies_does_not_end_the_making_of_a_group_without_it() {
    let test = "a_rank_that_dies_does_not_end_the_making_of_a_group_without_it";
    let ended = processes(test, 3, |group| {
        group.barrier(()).unwrap();
        match group.rank() {
            1 => {
                until_waiting(&group, 0);
                die();
            }
            // Rank 0 hears of the loss from this one, if not by itself, while it waits.
            2 => drop(group.barrier(()).unwrap_err()),
            _ => {}
        }
        let without = split(&group, &[0, 2], "survivors").unwrap();
        report(sum(&without, group.rank() + 1).to_string());
        without.shutdown().unwrap();
        std::process::exit(0);
    });
    for rank in [0, 2] {
        assert_eq!(ended[rank].printed, ["4"], "{}", ended[rank].output);
    }
}

// Each victim has a test of its own: a started process runs the first job of its test.
#[test]
fn new_group_names_the_host_of_the_store_that_dies() {
    while_a_rank_dies("new_group_names_the_host_of_the_store_that_dies", 0, make_a_group);
}

#[test]
fn new_group_names_a_rank_that_dies() {
    while_a_rank_dies("new_group_names_a_rank_that_dies", 1, make_a_group);
}

#[test]
fn new_group_names_the_last_rank_that_dies() {
    while_a_rank_dies("new_group_names_the_last_rank_that_dies", 2, make_a_group);
}

#[test]
fn split_group_names_a_rank_that_dies() {
    while_a_rank_dies("split_group_names_a_rank_that_dies", 1, |group| {
        group.split_group(&[2, 1, 0], SplitOptions::default()).map(drop).unwrap_err()
    });
}

#[test]
fn monitored_barrier_names_a_rank_that_dies() {
    let test = "monitored_barrier_names_a_rank_that_dies";
    let ended = processes(test, 3, |group| {
        group.barrier(()).unwrap();
        if group.rank() == 1 {
            until_waiting(&group, 2);
            die();
        }
        let error = group.monitored_barrier(None, false).unwrap_err();
        report(error.to_string().replace('\n', " "));
        std::process::exit(0);
    });
    for rank in [0, 2] {
        let said = ended[rank].printed.first().map(String::as_str).unwrap_or_default();
        assert!(said.contains("Rank 1 failed to pass"), "{}", ended[rank].output);
        assert!(said.contains("rank 1 of group 'default_pg' is gone"), "{}", ended[rank].output);
    }
}
