//! Each rule of the IDL has a file with one mistake and the text that a person gets for it.
//!
//! `UPDATE=1 cargo test -p polyrank-codegen --test mistakes` writes the expected texts anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use polyrank_codegen::idl::Rule;
use polyrank_codegen::read;

#[test]
fn every_rule_has_a_file_with_one_mistake() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut failures = Vec::new();
    for rule in Rule::ALL {
        let path = folder().join(rule.name()).with_extension("webidl");
        let Ok(text) = fs::read_to_string(&path) else {
            failures.push(format!("{} is missing", path.display()));
            continue;
        };
        let name = format!("{}.webidl", rule.name());
        let Err(mistakes) = read(vec![(name.clone(), text)]) else {
            failures.push(format!("{name} has no mistake"));
            continue;
        };
        let rules: Vec<Rule> = mistakes.diagnostics().iter().map(|it| it.rule).collect();
        let rendered = mistakes.render(false);
        if rules != [*rule] {
            failures.push(format!("{name} breaks {rules:?}:\n{rendered}"));
        }
        let expected_path = path.with_extension("txt");
        if update {
            fs::write(&expected_path, &rendered).unwrap();
        } else if fs::read_to_string(&expected_path).ok().as_deref() != Some(&rendered) {
            failures.push(format!("{name} gives another text than its .txt:\n{rendered}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_file_belongs_to_a_rule() {
    let names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(names.contains(&stem), "{} belongs to no rule", path.display());
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes")
}
