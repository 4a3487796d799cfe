//! The pairwise conformance cases in one group of several languages: Rust, Python, Node and a
//! browser. What each case is, is written in `cases/README.md`; here are exit codes and counts.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use polyrank_tests::cases;
use polyrank_tests::languages::{CASES, Language, job};

use Language::{Browser, Node, Python, Rust};

/// Runs the cases on one job of these ranks; every rank must say that all passed.
fn run(parts: &[(Language, u32)]) {
    let Some(output) = job(CASES, parts) else { return };
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let world: u32 = parts.iter().map(|(_, count)| count).sum();
    let passed = cases::pairwise(world).len();
    let ranks = parts.iter().flat_map(|(language, count)| vec![language; *count as usize]);
    for (rank, language) in ranks.enumerate() {
        let line = format!("{language:?} rank {rank} of {world}: {passed} passed, 0 failed");
        assert!(said.contains(&line), "{line} is missing:\n{said}\n{errors}");
    }
}

#[test]
fn python_alone() {
    for world in 1..=5 {
        run(&[(Python, world)]);
    }
}

#[test]
fn node_alone() {
    for world in 1..=5 {
        run(&[(Node, world)]);
    }
}

#[test]
fn browsers_alone() {
    for world in 1..=3 {
        run(&[(Browser, world)]);
    }
}

#[test]
fn rust_and_python() {
    run(&[(Rust, 2), (Python, 2)]);
    run(&[(Python, 2), (Rust, 3)]);
}

#[test]
fn all_four_in_one_group_of_four() {
    run(&[(Rust, 1), (Python, 1), (Node, 1), (Browser, 1)]);
}

#[test]
fn all_four_in_one_group_of_five() {
    run(&[(Python, 1), (Browser, 1), (Rust, 1), (Node, 1), (Browser, 1)]);
}

#[test]
fn a_browser_in_the_middle_and_at_the_end() {
    run(&[(Node, 1), (Browser, 1), (Rust, 1)]);
    run(&[(Python, 1), (Rust, 1), (Browser, 1)]);
}

#[test]
fn a_browser_may_be_rank_0_if_the_store_stands_beside_it() {
    run(&[(Browser, 1), (Node, 1), (Rust, 1)]);
    run(&[(Browser, 2), (Python, 1)]);
}

#[test]
fn eight_ranks_of_which_three_are_browsers() {
    run(&[(Rust, 2), (Browser, 2), (Python, 2), (Node, 1), (Browser, 1)]);
}
