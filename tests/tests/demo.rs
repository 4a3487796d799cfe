//! The demo across languages, unoptimised: Python and Rust ranks of one job train the same weights.
//! What it checks is written in the two programs; here are only their exit codes and a few lines.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `target/debug/NAME`, which `cargo test --workspace` has built before this runs.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    let shown = path.display();
    assert!(path.exists(), "{shown} is missing: run cargo build --workspace --examples first");
    path
}

/// Runs the parts, each a language and its number of ranks, as one job.
fn train(parts: &[(&str, u32)]) {
    // `cargo xtask test` sets this, and has built the Python package before.
    let python = std::env::var_os("POLYRANK_PYTHON");
    if python.is_none() && parts.iter().any(|(language, _)| *language == "Python") {
        eprintln!("skipped: POLYRANK_PYTHON names no interpreter that has polyrank");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut launcher = Command::new(built("polyrank"));
    launcher.arg("run");
    for (index, (language, rank_count)) in parts.iter().enumerate() {
        launcher.args((index > 0).then_some(":")).args(["-n", &rank_count.to_string()]);
        match *language {
            "Python" => launcher.args(python.as_ref()).arg(root.join("demo/digits.py")),
            _ => launcher.arg(built("examples/digits")),
        };
    }
    let output = launcher.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let size: u32 = parts.iter().map(|(_, rank_count)| rank_count).sum();
    let weights: Vec<&str> =
        said.lines().filter_map(|line| Some(line.split_once(", weights ")?.1)).collect();
    assert_eq!(weights.len(), size as usize, "{said}");
    assert_eq!(BTreeSet::from_iter(weights).len(), 1, "{said}");
    assert!(said.contains(&format!("the same bits on all {size} ranks")), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("epoch ")).count(), 40, "{said}");
}

#[test]
fn two_python_and_two_rust_ranks() {
    train(&[("Python", 2), ("Rust", 2)]);
}

#[test]
fn an_odd_number_of_ranks_with_rust_first() {
    train(&[("Rust", 2), ("Python", 3)]);
}

#[test]
fn ranks_of_one_language() {
    train(&[("Rust", 3)]);
    train(&[("Python", 2)]);
}

#[test]
fn the_python_lines_of_the_readme_do_what_they_say() {
    let Some(python) = std::env::var_os("POLYRANK_PYTHON") else {
        eprintln!("skipped: POLYRANK_PYTHON names no interpreter that has polyrank");
        return;
    };
    let readme = include_str!("../../README.md");
    let lines = readme.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut launcher = Command::new(built("polyrank"));
    launcher.args(["run", "-n", "3"]).arg(python).args(["-c", lines.unwrap()]);
    let output = launcher.output().unwrap();
    let mut said: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    said.sort();
    let expected = [0, 1, 2].map(|rank| format!("[rank {rank}] rank {rank} of 3: 3.0"));
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_single_rank_needs_nobody() {
    train(&[("Rust", 1)]);
}
