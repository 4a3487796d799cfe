//! Pages of the site that are written by hand name everything that they promise to name.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_error_has_its_line_in_troubleshooting() {
    let errors = std::fs::read_to_string(root().join("idl/errors.webidl")).unwrap();
    let page = std::fs::read_to_string(root().join("site/concepts/troubleshooting.md")).unwrap();
    let classes = errors.lines().filter(|line| line.starts_with("[Error")).map(|line| {
        let (_, rest) = line.split_once("Python=").unwrap();
        rest.split([',', ']']).next().unwrap()
    });
    let classes: Vec<&str> = classes.collect();
    assert!(classes.len() > 20, "{classes:?}");
    let missing: Vec<&&str> =
        classes.iter().filter(|class| !page.contains(&format!("`{class}`"))).collect();
    assert!(missing.is_empty(), "site/concepts/troubleshooting.md says nothing of {missing:?}");
}
