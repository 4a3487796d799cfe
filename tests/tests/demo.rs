//! The demo across languages, unoptimised: ranks of one job train the same weights. What it checks
//! is written in the programs; here are only their exit codes and a few lines.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::Command;

use polyrank_tests::languages::{DIGITS, Language, built, job, say_skipped};

/// Runs the parts, each a language and its number of ranks, as one job.
fn train(parts: &[(Language, u32)]) {
    let Some(output) = job(DIGITS, parts) else { return };
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    // What a page's console says (`tests/javascript/browser_rank.mjs`).
    for word in ["[warning]", "[error]"] {
        assert!(!errors.contains(word), "{errors}");
    }
    let languages: Vec<String> = parts
        .iter()
        .flat_map(|(language, count)| vec![format!("{language:?}"); *count as usize])
        .collect();
    let table: Vec<Vec<&str>> = said
        .lines()
        .skip_while(|line| !line.contains("weights"))
        .skip(1)
        .take(languages.len())
        .map(|line| line.trim_start_matches("[rank 0]").split_whitespace().collect())
        .collect();
    for (rank, (row, language)) in table.iter().zip(&languages).enumerate() {
        assert_eq!(row[..2], [&rank.to_string(), language], "{said}");
    }
    let weights = BTreeSet::from_iter(table.iter().map(|row| row[4]));
    assert_eq!((table.len(), weights.len()), (languages.len(), 1), "{said}");
    let same = format!("the same bits on all {} ranks", languages.len());
    assert!(said.contains(&same), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("epoch ")).count(), 40, "{said}");
}

#[test]
fn a_rank_of_every_language() {
    use Language::*;
    train(&[(Python, 1), (Rust, 1), (Node, 1), (Browser, 1)]);
}

#[test]
fn javascript_first_and_several_of_each() {
    use Language::*;
    train(&[(Node, 2), (Rust, 1), (Browser, 2)]);
}

#[test]
fn two_python_and_two_rust_ranks() {
    train(&[(Language::Python, 2), (Language::Rust, 2)]);
}

#[test]
fn an_odd_number_of_ranks_with_rust_first() {
    train(&[(Language::Rust, 2), (Language::Python, 3)]);
}

#[test]
fn ranks_of_one_language() {
    train(&[(Language::Rust, 3)]);
    train(&[(Language::Python, 2)]);
    train(&[(Language::Node, 2)]);
}

#[test]
fn the_python_lines_of_the_readme_do_what_they_say() {
    let Some(python) = std::env::var_os("POLYRANK_PYTHON") else {
        say_skipped("Python: POLYRANK_PYTHON names no interpreter that has polyrank");
        return;
    };
    let readme = include_str!("../../README.md");
    let lines = readme.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut launcher = Command::new(built("polyrank"));
    launcher.args(["run", "-n", "3"]).arg(python).args(["-c", lines.unwrap()]);
    expect_sums(launcher);
}

/// Runs the job of three ranks, each of which must say the sum of the ranks once.
fn expect_sums(mut launcher: Command) {
    let output = launcher.output().unwrap();
    let mut said: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    said.sort();
    // JavaScript writes a whole number without a point.
    let expected = |sum| [0, 1, 2].map(|rank| format!("[rank {rank}] rank {rank} of 3: {sum}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said == expected("3.0") || said == expected("3"), "{said:?}\n{errors}");
}

#[test]
fn the_javascript_lines_of_the_readme_do_what_they_say() {
    if let Err(missing) = Language::Node.command(DIGITS) {
        say_skipped(&format!("Node: {missing}"));
        return;
    }
    let readme = include_str!("../../README.md");
    let lines = readme.split("```js\n").nth(1).and_then(|rest| rest.split("```").next());
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings-node/js/index.js");
    let program = lines.unwrap().replace("\"polyrank\"", &format!("{package:?}"));
    let mut launcher = Command::new(built("polyrank"));
    launcher.args(["run", "-n", "3", "node", "--input-type=module", "-e", &program]);
    expect_sums(launcher);
}

#[test]
fn a_single_rank_needs_nobody() {
    train(&[(Language::Rust, 1)]);
}
