//! Ranks over NCCL on the CUDA devices of this host, each a process: the contract that the double
//! keeps in the other suites, kept by NCCL, and the death of a process. Where there are no devices
//! it is the double here, too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::{Command, Output};
use std::time::Duration;

use polyrank::backend::nccl::NcclOptions;
use polyrank::{ProcessGroup, Request};
use polyrank_tests::cases;
use polyrank_tests::languages::{CASES, Language, Program, say_skipped};
use polyrank_tests::nccl::contract::{self, allreduce, finish};
use polyrank_tests::nccl::devices::{device_job, device_processes, device_ranks, has_device};
use polyrank_tests::nccl::{NcclSetup, is_same_in_all_languages};
use polyrank_tests::processes::{die, dies_between_operations, report, with_variable};

fn bound() -> NcclSetup {
    NcclSetup { bound: true, ..NcclSetup::default() }
}

/// Both backends.
fn both() -> NcclSetup {
    NcclSetup { backend: "cpu:tcp,cuda:nccl", bound: true, ..NcclSetup::default() }
}

/// Runs `rank_main` on groups of these sizes, in the test `test`.
fn run(test: &str, sizes: &[u32], made: &NcclSetup, rank_main: impl Fn(&ProcessGroup)) {
    for &size in sizes {
        device_ranks(test, size, made, &rank_main);
    }
}

#[test]
fn every_dtype_operator_root_and_small_size() {
    let test = "every_dtype_operator_root_and_small_size";
    run(test, &[1, 2], &bound(), |group| contract::every_small(group, &[0, 1, 7]));
}

#[test]
fn the_pairwise_cases() {
    let test = "the_pairwise_cases";
    run(test, &[1, 2, 3, 5], &bound(), contract::pairwise);
}

#[test]
fn large_tensors() {
    let test = "large_tensors";
    run(test, &[1, 2, 3], &NcclSetup::default(), contract::large);
}

#[test]
fn two_hundred_operations_in_flight_on_two_groups() {
    let test = "two_hundred_operations_in_flight_on_two_groups";
    run(test, &[3], &NcclSetup::default(), contract::two_hundred_in_flight);
}

#[test]
fn waiting_orders_the_stream_and_operations_come_after_it() {
    let test = "waiting_orders_the_stream_and_operations_come_after_it";
    run(test, &[2], &bound(), contract::waiting_orders_the_stream);
}

#[test]
fn waiting_orders_the_stream_of_the_thread_that_waits() {
    let test = "waiting_orders_the_stream_of_the_thread_that_waits";
    run(test, &[2], &bound(), contract::waiting_orders_the_stream_of_the_thread_that_waits);
}

#[test]
fn memory_is_let_go_of_when_the_device_is_done_with_it() {
    let test = "memory_is_let_go_of_when_the_device_is_done_with_it";
    run(test, &[2], &bound(), contract::memory_is_let_go_of_when_the_device_is_done_with_it);
}

#[test]
fn an_operation_that_nobody_waits_for_ends_all_the_same() {
    let test = "an_operation_that_nobody_waits_for_ends_all_the_same";
    run(
        test,
        &[1, 2],
        &NcclSetup::default(),
        contract::an_operation_that_nobody_waits_for_ends_all_the_same,
    );
}

#[test]
fn messages_that_go_together_meet_in_any_order() {
    let test = "messages_that_go_together_meet_in_any_order";
    run(test, &[3], &bound(), contract::messages_that_go_together_meet_in_any_order);
}

#[test]
fn a_group_of_two_backends_routes_by_device() {
    let test = "a_group_of_two_backends_routes_by_device";
    run(test, &[2], &both(), contract::a_group_of_two_backends_routes_by_device);
}

#[test]
fn slices_of_cudarc_go_in_and_come_back() {
    let test = "slices_of_cudarc_go_in_and_come_back";
    run(test, &[1, 2], &NcclSetup::default(), contract::slices_of_cudarc_go_in_and_come_back);
}

#[test]
fn an_operation_past_its_deadline_names_who_is_late() {
    let test = "an_operation_past_its_deadline_names_who_is_late";
    run(
        test,
        &[2],
        &NcclSetup::default(),
        contract::an_operation_past_its_deadline_names_who_is_late,
    );
}

#[test]
fn ranks_that_call_different_things_learn_of_it() {
    let test = "ranks_that_call_different_things_learn_of_it";
    run(test, &[2], &NcclSetup::default(), contract::ranks_that_call_different_things_learn_of_it);
}

#[test]
fn what_passes_unnoticed_is_told_when_the_ranks_leave() {
    let test = "what_passes_unnoticed_is_told_when_the_ranks_leave";
    run(
        test,
        &[2],
        &NcclSetup::default(),
        contract::what_passes_unnoticed_is_told_when_the_ranks_leave,
    );
}

#[test]
fn abort_returns_at_once_and_all_ranks_learn_of_it() {
    let test = "abort_returns_at_once_and_all_ranks_learn_of_it";
    run(
        test,
        &[3],
        &NcclSetup::default(),
        contract::abort_returns_at_once_and_all_ranks_learn_of_it,
    );
}

#[test]
fn a_rank_that_left_is_named() {
    let test = "a_rank_that_left_is_named";
    run(test, &[2], &NcclSetup::default(), contract::a_rank_that_left_is_named);
}

#[test]
fn several_groups_are_split_off_at_once_and_a_rank_stays_out() {
    let test = "several_groups_are_split_off_at_once_and_a_rank_stays_out";
    run(test, &[5], &bound(), contract::several_groups_are_split_off_at_once_and_a_rank_stays_out);
}

#[test]
fn a_child_over_another_backend_leaves_the_communicator_alone() {
    let test = "a_child_over_another_backend_leaves_the_communicator_alone";
    run(test, &[3], &both(), contract::a_child_over_another_backend_leaves_the_communicator_alone);
}

#[test]
fn calls_without_tensors_need_a_device_to_run_on() {
    let test = "calls_without_tensors_need_a_device_to_run_on";
    run(test, &[2], &bound(), contract::calls_without_tensors_need_a_device_to_run_on);
}

#[test]
fn what_would_pass_unnoticed_is_found_at_level_detail() {
    let test = "what_would_pass_unnoticed_is_found_at_level_detail";
    with_variable("POLYRANK_DEBUG", "DETAIL", || {
        run(test, &[2], &bound(), contract::what_would_pass_unnoticed_is_found_at_level_detail);
    });
}

#[test]
fn bound_groups_and_others_are_split() {
    for made in [bound(), NcclSetup::default()] {
        let nccl = Some(NcclOptions::default().is_high_priority_stream(true));
        let made = NcclSetup { nccl, ..made };
        // The ranks of the first end with it.
        let which = if made.bound { "bound" } else { "others" };
        let is_other = std::env::var(WHICH).is_ok_and(|it| it != which);
        if !is_other {
            with_variable(WHICH, which, || {
                run("bound_groups_and_others_are_split", &[3], &made, contract::a_group_is_split);
            });
        }
    }
}

/// Says which of two kinds of groups a rank belongs to.
const WHICH: &str = "POLYRANK_TEST_WHICH";

#[test]
fn with_blocking_wait_the_thread_waits_for_the_device() {
    let test = "with_blocking_wait_the_thread_waits_for_the_device";
    let nccl = Some(NcclOptions::default().blocking_wait(true));
    let made = NcclSetup { nccl, ..NcclSetup::default() };
    run(test, &[2], &made, contract::with_blocking_wait_the_thread_waits_for_the_device);
}

/// Rank 2 of 3 is killed after an operation; the others are in one of so many elements then.
fn a_rank_dies(test: &str, elements: usize) {
    let ended = device_processes(test, 3, &NcclSetup::default(), |group| {
        finish(group, allreduce(group, 10)).unwrap();
        dies_between_operations(group, 2);
        let error = finish(group, allreduce(group, elements)).unwrap_err();
        report(format!("{}: {error}", error.kind()));
        let again = group.run(allreduce(group, 1)).unwrap_err();
        assert_eq!(again.kind(), "RankFailed", "{again}");
    });
    let Some((dead, alive)) = ended.split_last() else { return };
    assert_eq!(dead.signal, Some(9), "{}", dead.output);
    for rank in alive {
        let line = rank.printed.concat();
        assert!(line.starts_with("RankFailed: rank 2"), "{line}\n{}", rank.output);
    }
}

#[test]
fn the_death_of_a_rank_is_an_error_that_names_it() {
    a_rank_dies("the_death_of_a_rank_is_an_error_that_names_it", 10);
}

#[test]
fn the_death_of_a_rank_to_which_nccl_would_connect_is_an_error_that_names_it() {
    let test = "the_death_of_a_rank_to_which_nccl_would_connect_is_an_error_that_names_it";
    a_rank_dies(test, 100_000);
}

#[test]
fn who_waits_for_the_first_operation_of_others_hears_of_their_death() {
    let test = "who_waits_for_the_first_operation_of_others_hears_of_their_death";
    let ended = device_processes(test, 3, &bound(), |group| {
        let store = group.get_group_store();
        if group.rank() == 2 {
            store.wait(&["there/0", "there/1"], None).unwrap();
            die();
        }
        store.set(&format!("there/{}", group.rank()), b"").unwrap();
        let error = finish(group, allreduce(group, 10)).unwrap_err();
        report(format!("{}: {error}", error.kind()));
    });
    for rank in ended.iter().take(2) {
        let line = rank.printed.concat();
        assert!(line.starts_with("RankFailed: rank 2"), "{line}\n{}", rank.output);
    }
}

#[test]
fn who_breaks_the_group_and_ends_is_not_taken_for_one_that_died() {
    let test = "who_breaks_the_group_and_ends_is_not_taken_for_one_that_died";
    let ended = device_processes(test, 2, &bound(), |group| {
        finish(group, allreduce(group, 10)).unwrap();
        let late = allreduce(group, 10);
        if group.rank() == 1 {
            let late = Request { timeout: Some(Duration::from_millis(500)), ..late };
            let error = finish(group, late).unwrap_err();
            assert_eq!(error.kind(), "CollectiveTimeout", "{error}");
            std::process::exit(0);
        }
        while !group.is_broken() {
            std::thread::yield_now();
        }
        report(finish(group, late).unwrap_err().kind());
        std::process::exit(0);
    });
    let Some(waited) = ended.first() else { return };
    assert_eq!(waited.printed, ["CollectiveTimeout"], "{}", waited.output);
}

#[test]
fn ranks_may_end_without_leaving() {
    let test = "ranks_may_end_without_leaving";
    run(test, &[3], &bound(), |group| {
        finish(group, allreduce(group, 10)).unwrap();
        let store = group.get_group_store();
        match group.rank() {
            // The store ends with it.
            0 => store.wait(&["done/1", "done/2"], None).unwrap(),
            rank => store.set(&format!("done/{rank}"), b"").unwrap(),
        }
        std::process::exit(0);
    });
}

#[test]
fn ranks_whose_first_operations_differ_learn_of_it() {
    let test = "ranks_whose_first_operations_differ_learn_of_it";
    run(test, &[2], &bound(), contract::ranks_whose_first_operations_differ_learn_of_it);
}

#[test]
fn the_pairwise_cases_in_other_languages() {
    use Language::{Node, Python, Rust};
    for languages in [vec![Python], vec![Node], vec![Python, Rust], vec![Rust, Python, Node]] {
        let parts: Vec<_> = languages.iter().map(|&language| (language, 1)).collect();
        let Some(output) = device_job(CASES, &parts) else { continue };
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "{languages:?}\n{said}\n{errors}");
        for (rank, language) in languages.iter().enumerate() {
            let world = languages.len() as u32;
            let cases = cases::pairwise(world).into_iter();
            let passed = cases.filter(|(_, case)| is_same_in_all_languages(case, world)).count();
            let line = format!("{language:?} rank {rank} of {world}: {passed} passed, 0 failed");
            assert!(said.contains(&line), "{line}\n{said}");
        }
    }
}

#[test]
fn tensors_of_pytorch_and_cupy() {
    if !has_device() || !has_torch() {
        return say_skipped("it needs a CUDA device, NCCL, and PyTorch in POLYRANK_PYTHON");
    }
    for size in [1, 2, 3] {
        let program = Program { example: "", script: "nccl/torch_tensors" };
        let Some(output) = device_job(program, &[(Language::Python, size)]) else { return };
        let (said, errors) = texts(&output);
        assert!(output.status.success(), "{said}\n{errors}");
        for rank in 0..size {
            assert!(said.lines().any(|line| line == format!("ok {rank}")), "{said}\n{errors}");
        }
    }
}

fn has_torch() -> bool {
    let Some(python) = std::env::var_os("POLYRANK_PYTHON") else { return false };
    let search = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)";
    Command::new(python).args(["-c", search]).status().is_ok_and(|status| status.success())
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
