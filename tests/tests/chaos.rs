//! `POLYRANK_CHAOS`: faults on purpose, in real processes, and what the other ranks learn of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrank::distributed::{InitOptions, NewGroupOptions, init_process_group, new_group};
use polyrank::store::HashStore;
use polyrank::{Error, ProcessGroup};
use polyrank_tests::processes::{
    all_went_well, bare_processes, is_rank, lines_of_survivors, processes, report, with_variable,
};

const CHAOS: &str = "POLYRANK_CHAOS";

/// Runs operations until one fails; its number in the order of this rank's calls, and its error.
fn until_failure(mut operation: impl FnMut(u32) -> polyrank::Result<()>) -> (u32, Error) {
    (1..=1000).find_map(|number| Some((number, operation(number).err()?))).unwrap()
}

#[test]
fn a_rank_is_killed_before_its_operation_and_the_others_learn_it() {
    for size in [2, 3, 5] {
        let test = "a_rank_is_killed_before_its_operation_and_the_others_learn_it";
        let ended = with_variable(CHAOS, "kill=1#40", || {
            processes(test, size, |group| {
                let (number, error) =
                    until_failure(|_| group.allreduce(&mut [1.0f32], ()).map(drop));
                let Error::RankFailed { rank, .. } = error else { panic!("{error}") };
                report(format!("{number}: rank {rank} failed"));
                std::process::exit(0);
            })
        });
        for (_, line) in lines_of_survivors(&ended, 1) {
            // A rank that is not its neighbour may not have got all of the one before.
            assert!(["40: rank 1 failed", "39: rank 1 failed"].contains(&line), "{line}");
        }
        let said = "polyrank: POLYRANK_CHAOS: rank 1 kills itself before its operation 40, \
                    ALLREDUCE of default_pg\n";
        assert!(ended[1].output.contains(said), "{}", ended[1].output);
        let warned = "polyrank: POLYRANK_CHAOS asks for faults: rank 1 is killed before its \
                      operation 40\n";
        for end in &ended {
            assert_eq!(end.output.matches(warned).count(), 1, "{}", end.output);
        }
    }
}

#[test]
fn operations_are_counted_over_all_groups_and_of_all_kinds() {
    let test = "operations_are_counted_over_all_groups_and_of_all_kinds";
    let ended = with_variable(CHAOS, "kill=1#5", || {
        processes(test, 2, |group| {
            // What makes groups, and a monitored barrier, are no operations.
            let other = new_group(NewGroupOptions::default().group_name("other")).unwrap().unwrap();
            group.monitored_barrier(None, false).unwrap();
            let (number, error) = until_failure(|number| match number {
                1 => group.barrier(()),
                2 => other.allreduce(&mut [1.0f64], ()).map(drop),
                3 if group.rank() == 0 => other.send(&[1u8], 1, 0).map(drop),
                3 => other.recv(&mut [0u8], 0, 0).map(drop),
                4 => group.broadcast(&mut vec![0u8; 1 << 20], 0).map(drop),
                _ => other.barrier(()),
            });
            report(format!("{number}: {}", matches!(error, Error::RankFailed { rank: 1, .. })));
            std::process::exit(0);
        })
    });
    assert_eq!(lines_of_survivors(&ended, 1), [(0, "5: true")]);
    let said = "rank 1 kills itself before its operation 5, BARRIER of other\n";
    assert!(ended[1].output.contains(said), "{}", ended[1].output);
}

#[test]
fn a_rank_is_late_by_the_time_that_was_asked_for() {
    let test = "a_rank_is_late_by_the_time_that_was_asked_for";
    let ended = with_variable(CHAOS, "delay=20ms@2", || {
        processes(test, 3, |group| {
            let began = Instant::now();
            for _ in 0..10 {
                group.allreduce(&mut [1.0f32], ()).unwrap();
            }
            // All ranks wait for the late one.
            assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
            report("done");
        })
    });
    all_went_well(&ended);
    assert!(ended.iter().all(|end| end.printed == ["done"]));
}

#[test]
fn a_stopped_rank_goes_on_when_it_is_told_to() {
    let test = "a_stopped_rank_goes_on_when_it_is_told_to";
    let ended = with_variable(CHAOS, "stop=1#2", || {
        processes(test, 2, |group| {
            let store = group.get_group_store();
            store
                .set(&format!("id {}", group.rank()), std::process::id().to_string().as_bytes())
                .unwrap();
            group.barrier(()).unwrap();
            if group.rank() == 0 {
                let id = String::from_utf8(store.get("id 1").unwrap()).unwrap();
                let state = || {
                    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
                    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
                };
                while state() != 'T' {
                    std::thread::yield_now();
                }
                report("it stopped");
                let told = std::process::Command::new("kill").args(["-CONT", &id]).status();
                assert!(told.unwrap().success());
            }
            group.barrier(()).unwrap();
            report("done");
        })
    });
    all_went_well(&ended);
    assert_eq!(ended[0].printed, ["it stopped", "done"]);
}

#[test]
fn a_lost_connection_is_a_failed_rank_on_both_sides() {
    for transport in ["tcp", "shm"] {
        let test = "a_lost_connection_is_a_failed_rank_on_both_sides";
        let ended = with_variable("POLYRANK_TRANSPORT", transport, || {
            with_variable(CHAOS, "drop=0-1#4", || {
                processes(test, 3, |group| {
                    // Long ones, so that bytes travel between all neighbours.
                    let mut tensor = vec![1.0f32; 1 << 20];
                    let (number, error) =
                        until_failure(|_| group.allreduce(&mut tensor, ()).map(drop));
                    assert!(matches!(error, Error::RankFailed { .. }), "{error}");
                    report(number);
                    std::process::exit(0);
                })
            })
        });
        all_went_well(&ended);
        assert_eq!(ended[0].printed, ["4"], "{transport}: {}", ended[0].output);
        for end in &ended[1..] {
            // The others may not have got all of the third when they learn it.
            let is_it = end.printed == ["4"] || end.printed == ["3"];
            assert!(is_it, "{transport}: {:?} {}", end.printed, end.output);
        }
        let said = "rank 0 loses its connection to rank 1 before its operation 4, ALLREDUCE of \
                    default_pg\n";
        assert!(ended[0].output.contains(said), "{}", ended[0].output);
    }
}

#[test]
fn random_delays_are_the_same_with_the_same_seed_which_is_told() {
    let test = "random_delays_are_the_same_with_the_same_seed_which_is_told";
    let ended = with_variable(CHAOS, "delay=1us-2us@*", || {
        processes(test, 1, |group| group.barrier(()).unwrap())
    });
    all_went_well(&ended);
    let said = "every rank is 1µs to 2µs late before each operation; with seed=";
    assert!(ended[0].output.contains(said), "{}", ended[0].output);
}

#[test]
fn what_is_not_a_fault_is_refused_when_a_group_is_made() {
    let test = "what_is_not_a_fault_is_refused_when_a_group_is_made";
    let ended = with_variable(CHAOS, "kill=1", || {
        bare_processes(test, 2, || {
            let error = init_process_group(InitOptions::default()).unwrap_err();
            report(format!("{error} {}", matches!(error, Error::InvalidArgument { .. })));
        })
    });
    all_went_well(&ended);
    let expected = "POLYRANK_CHAOS is 'kill=1': 'kill=1' is not a fault; expected kill=RANK#N \
                    with N from 1, as kill=1#40 true";
    for end in &ended {
        assert_eq!(end.printed, [expected], "{}", end.output);
    }
}

#[test]
fn without_the_variable_operations_are_not_observed() {
    assert!(!is_rank());
    let store = Arc::new(HashStore::new());
    let group = ProcessGroup::new(store, 0, 1, "alone", Default::default()).unwrap();
    assert!(!group.is_observed());
}
