//! Tells the command which commit it is built from, where that is known: `polyrank bench` writes it
//! into its results. A build that does not know it, as of an archive without git, says nothing.

use std::path::Path;
use std::process::Command;

/// What the command reads, and what a user may set who knows better.
const COMMIT: &str = "POLYRANK_COMMIT";
/// Where `cargo package` leaves the commit of a published crate.
const PACKAGED: &str = ".cargo_vcs_info.json";
/// What is built, as git names it from this folder.
const SOURCES: [&str; 3] = [":/core", ":/Cargo.toml", ":/Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    // A commit of its own for every development build would build it anew after every commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if std::env::var_os(COMMIT).is_some() {
        return;
    }
    let commit = packaged().or_else(|| if is_release { checked_out() } else { None });
    if let Some(commit) = commit {
        println!("cargo::rustc-env={COMMIT}={commit}");
    }
}

/// The commit that this crate was packaged from.
fn packaged() -> Option<String> {
    let text = std::fs::read_to_string(PACKAGED).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// The commit that is checked out here, and whether sources have changed since.
fn checked_out() -> Option<String> {
    // A copy within another project's repository is none of that project's commits.
    if git(&["rev-parse", "--show-prefix"])? != "core/cli/" {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        // A file that is not there would have this run with every build.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    for source in
        ["src", "Cargo.toml", "../src", "../Cargo.toml", "../../Cargo.toml", "../../Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={source}");
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(&[&status[..], &SOURCES].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// What git says; none where there is no git, or it fails.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
