//! The crates as they are published: their files, what the registry shows of them, and the oldest
//! Rust that they are built with.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What Rust users get.
const PUBLISHED: [&str; 6] = [
    "polyrank",
    "polyrank-cli",
    "polyrank-log",
    "polyrank-quorum",
    "polyrank-replicas",
    "polyrank-trace",
];

fn cargo(words: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let output = command.args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn packages() -> Vec<Value> {
    let words = ["metadata", "--no-deps", "--format-version=1", "--offline"];
    let metadata: Value = serde_json::from_str(&cargo(&words)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn what_is_published_has_its_licences_and_its_front_page() {
    for name in PUBLISHED {
        let words = ["package", "--list", "--allow-dirty", "--offline", "-p", name];
        let listed = cargo(&words);
        let files: BTreeSet<&str> = listed.lines().collect();
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "src/lib.rs"] {
            assert!(files.contains(file), "{name} is published without {file}");
        }
    }
}

#[test]
fn what_is_published_says_what_it_is_and_the_rest_stays_here() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let is_kept = package["publish"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(!is_kept, PUBLISHED.contains(&name), "{name}");
        if is_kept {
            continue;
        }
        let texts = ["description", "license", "repository", "homepage", "documentation", "readme"];
        for field in texts {
            assert!(package[field].as_str().is_some_and(|it| !it.is_empty()), "{name}: {field}");
        }
        for field in ["keywords", "categories"] {
            assert!(package[field].as_array().is_some_and(|it| !it.is_empty()), "{name}: {field}");
        }
        // The registry takes a dependency by its version, not by its path.
        for dependency in package["dependencies"].as_array().unwrap() {
            let (on, version) = (&dependency["name"], &dependency["req"]);
            assert_ne!(version, "*", "{name} depends on {on} of any version");
        }
    }
}

#[test]
fn the_page_of_the_crate_shows_all_features_that_users_have() {
    let all = packages();
    let core = all.iter().find(|package| package["name"] == "polyrank").unwrap();
    let features = core["features"].as_object().unwrap();
    let shown = core["metadata"]["docs"]["rs"]["features"].as_array().unwrap();
    let shown: BTreeSet<&str> = shown.iter().map(|name| name.as_str().unwrap()).collect();
    let defaults = features["default"].as_array().unwrap();
    for name in features.keys().map(String::as_str) {
        // `cuda` comes with `nccl`, and `internals` are not for users.
        let is_shown = shown.contains(name) || defaults.iter().any(|it| it == name);
        assert!(is_shown || ["default", "cuda", "internals"].contains(&name), "{name}");
    }
}

#[test]
fn the_oldest_rust_that_is_supported_is_the_one_that_builds_everything() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rust-toolchain.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let channel = text.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.expect("the file pins a toolchain").trim_matches('"');
    for package in packages() {
        let (name, oldest) = (&package["name"], package["rust_version"].as_str().unwrap());
        assert!(channel == oldest || channel.starts_with(&format!("{oldest}.")), "{name}");
    }
}
