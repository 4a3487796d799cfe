//! Tells the command which commit it is built from: `polyrank bench` writes it into its results. A
//! build that does not know the commit, such as one of an archive without git, sets nothing.

use std::path::Path;
use std::process::Command;

/// The variable that the command reads when it is compiled. A user may set it to override git.
const COMMIT: &str = "POLYRANK_COMMIT";
/// Where `cargo package` leaves the commit of a published crate.
const PACKAGED: &str = ".cargo_vcs_info.json";
/// The sources of the command, as paths for git, from the root of the repository.
const SOURCES: [&str; 3] = [":/core", ":/Cargo.toml", ":/Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    // Development builds leave it out, or each commit would cause a rebuild.
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
    // In another project's repository, the commit would be that project's.
    if git(&["rev-parse", "--show-prefix"])? != "core/cli/" {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        // Cargo would run this script in every build if the file did not exist.
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

/// What git prints; none if there is no git, or if it fails.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
