//! Ranks of Python and Node over NCCL, whose part a double plays: nothing here runs on a device.
//! The pairwise conformance cases with device tensors, and what each language has of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Output;

use polyrank_tests::cases;
use polyrank_tests::languages::{CASES, Language, Program};
use polyrank_tests::nccl::{is_same_in_all_languages, job, program, without_double};

/// What the ranks said, if all ended well.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

/// Ranks of these languages, in this order, must have passed all cases.
fn the_pairwise_cases_of(languages: &[Language]) {
    let parts: Vec<_> = languages.iter().map(|&language| (language, 1)).collect();
    let Some(output) = job(CASES, &parts) else { return };
    let (said, world) = (said(&output), parts.len() as u32);
    let cases = cases::pairwise(world).into_iter();
    let passed = cases.filter(|(_, case)| is_same_in_all_languages(case, world)).count();
    assert!(passed > 50, "{passed} cases for {world} ranks");
    for (rank, language) in languages.iter().enumerate() {
        let line = format!("{language:?} rank {rank} of {world}: {passed} passed, 0 failed");
        assert!(said.contains(&line), "{line}\n{said}");
    }
}

fn the_pairwise_cases(language: Language) {
    (1..=4).for_each(|world| the_pairwise_cases_of(&vec![language; world]));
}

#[test]
fn the_pairwise_cases_in_python() {
    the_pairwise_cases(Language::Python);
}

#[test]
fn the_pairwise_cases_in_node() {
    the_pairwise_cases(Language::Node);
}

#[test]
fn the_pairwise_cases_in_a_group_of_all() {
    use Language::{Node, Python, Rust};
    the_pairwise_cases_of(&[Rust, Python, Node]);
    the_pairwise_cases_of(&[Node, Python, Rust, Node]);
}

#[test]
fn tensors_of_node() {
    for size in [1, 2, 3] {
        let script = Program { example: "", script: "nccl/tensors" };
        let Some(output) = program(Language::Node, script, size) else { return };
        let said = said(&output);
        for rank in 0..size {
            assert!(said.lines().any(|line| line == format!("ok {rank}")), "{said}");
        }
    }
}

#[test]
fn node_without_a_driver_says_what_was_looked_for() {
    let script = Program { example: "", script: "nccl/no_driver" };
    let Some(output) = without_double(script, &[(Language::Node, 1)]) else { return };
    assert!(said(&output).contains("ok 0"));
}

#[test]
fn a_rank_of_node_that_is_gone_is_an_error_on_the_others() {
    let script = Program { example: "", script: "nccl/gone" };
    let Some(output) = program(Language::Node, script, 3) else { return };
    let said = said(&output);
    assert!(said.contains("ok 0") && said.contains("ok 1"), "{said}");
}
