//! Pages of the site that are written by hand name everything that they promise to name, and their
//! Rust is what is compiled elsewhere.
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

/// The Rust on the pages is in the README, whose programs are compiled as tests, or in
/// examples of this package or of the crate that a page is about.
#[test]
fn all_rust_on_the_pages_is_compiled() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let files = [
        "README.md",
        "tests/examples/pages.rs",
        "tests/examples/spawn.rs",
        "core/quorum/examples/replica.rs",
    ];
    let compiled = files.map(read);
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let compiled = compiled.map(|text| lines(&text));
    let mut count = 0;
    for folder in ["site", "site/start", "site/concepts", "site/demos"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let page = std::fs::read_to_string(&path).unwrap();
            for block in page.split("\n```rust").skip(1) {
                let (_, block) = block.split_once('\n').unwrap();
                let block = lines(block.split("\n```").next().unwrap());
                count += 1;
                let is_compiled = compiled.iter().any(|text| text.contains(&block));
                assert!(is_compiled, "{}: nothing compiles this:\n{block}", path.display());
            }
        }
    }
    assert!(count >= 4, "only {count} blocks");
}
