//! Ranks of Python and Node over NCCL, whose part a double plays: nothing here runs on a device.
//! The pairwise conformance cases with device tensors, and what each language has of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Output;

use polyrank_tests::cases;
use polyrank_tests::languages::{CASES, Language, Program};
use polyrank_tests::nccl::{program, without_double};

/// What the ranks said, if all ended well.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

fn the_pairwise_cases(language: Language) {
    for world in [1, 2, 3, 4] {
        let Some(output) = program(language, CASES, world) else { return };
        let said = said(&output);
        // With strides, some ranks may have a block of one element, and no reason to refuse.
        let passed = cases::pairwise(world).iter().filter(|(_, case)| !case.strided).count();
        assert!(passed > 50, "{passed} cases for {world} ranks");
        for rank in 0..world {
            let line = format!("{language:?} rank {rank} of {world}: {passed} passed, 0 failed");
            assert!(said.contains(&line), "{line}\n{said}");
        }
    }
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
    let Some(output) = without_double(Language::Node, script, 1) else { return };
    assert!(said(&output).contains("ok 0"));
}
