//! `cargo xtask bench-check`: builds the Python package of this checkout and of an earlier
//! revision, and runs `tests/bench/check.py` on both. Not a part of the tests, since other machines
//! and other load give other figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::workspace::Workspace;
use crate::{python, setup};

/// The program that measures.
const CHECK: &str = "tests/bench/check.py";
/// The branch whose builds are the measure of others.
const MAIN: &str = "main";

/// The options of `cargo xtask bench-check`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Revision to compare with [default: main; its last commit but one if nothing differs from it]
    #[arg(long, value_name = "REVISION")]
    base: Option<String>,
    /// Highest ratio of times, this checkout to the base, that passes
    #[arg(long, default_value_t = 1.10)]
    limit: f64,
    /// Times that the ranks of both builds are started anew
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Alternating turns of each build in a round
    #[arg(long, default_value_t = 15)]
    turns: u32,
}

/// Builds both and compares them; fails if a cell is slower than the limit allows.
///
/// # Errors
/// The revision is not known, or a build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("bench-check")?;
    let base = revision(&workspace, arguments.base.as_deref())?;
    eprintln!("[bench-check] base: {base}");
    setup::python(&workspace, &progress)?;
    let this = build_this(&workspace, &progress)?;
    let base = build_base(&workspace, &progress, &base)?;
    let mut check = workspace.command(workspace.python());
    check.arg(workspace.path(CHECK)).arg("--base").arg(base);
    let Arguments { limit, rounds, turns, .. } = arguments;
    let numbers = [limit.to_string(), rounds.to_string(), turns.to_string()];
    for (name, number) in ["--limit", "--rounds", "--turns"].into_iter().zip(numbers) {
        check.args([name, &number]);
    }
    check.env("PYTHONPATH", this);
    let status = check.status().with_context(|| format!("cannot run {CHECK}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The commit to compare with.
fn revision(workspace: &Workspace, asked: Option<&str>) -> Result<String> {
    if let Some(asked) = asked {
        return commit(workspace, asked);
    }
    let main = commit(workspace, MAIN)?;
    let is_changed =
        !git(workspace, &["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    if is_changed || main != commit(workspace, "HEAD")? {
        return Ok(main);
    }
    commit(workspace, &format!("{MAIN}~1"))
}

fn commit(workspace: &Workspace, name: &str) -> Result<String> {
    git(workspace, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
        .with_context(|| format!("'{name}' is not a revision of this checkout"))
}

/// What git prints.
fn git(workspace: &Workspace, words: &[&str]) -> Result<String> {
    let output = workspace.command("git").args(words).output().context("cannot run git")?;
    let command = words.join(" ");
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {command} failed: {}", why.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Builds the package of this checkout, beside the one that other tasks use; what Python's search
/// path has to hold for it.
fn build_this(workspace: &Workspace, progress: &Progress) -> Result<PathBuf> {
    let words = ["build", "--release", "-p", python::PACKAGE];
    progress.demand("bench-check", &mut workspace.cargo(&words))?;
    let modules = workspace.target("bench-check/this");
    copy_modules(&workspace.path(python::MODULES), &modules)?;
    workspace.place_library("release", "_core", &modules.join("polyrank/_core.abi3.so"))?;
    Ok(modules)
}

/// The same of a commit, which is built once.
fn build_base(workspace: &Workspace, progress: &Progress, commit: &str) -> Result<PathBuf> {
    let modules = workspace.target(&format!("bench-check/{commit}"));
    let library = modules.join("polyrank/_core.abi3.so");
    if library.exists() {
        return Ok(modules);
    }
    // One folder for the sources of all commits, so that Cargo finds what did not change; it has
    // the objects of this checkout.
    let sources = workspace.target("bench-check/sources");
    if !sources.exists() {
        let mut clone = workspace.command("git");
        clone.args(["clone", "--quiet", "--shared", "--no-checkout", "."]).arg(&sources);
        progress.demand("bench-check", &mut clone)?;
    }
    let mut checkout = workspace.command("git");
    let words = ["checkout", "--quiet", "--force", "--detach", commit];
    progress.demand("bench-check", checkout.current_dir(&sources).args(words))?;
    let mut cargo = workspace.cargo(&["build", "--release", "-p", python::PACKAGE]);
    cargo.current_dir(&sources).env("CARGO_TARGET_DIR", workspace.target("bench-check/build"));
    progress.demand("bench-check", &mut cargo)?;
    copy_modules(&sources.join(python::MODULES), &modules)?;
    workspace.place_library("bench-check/build/release", "_core", &library)?;
    Ok(modules)
}

/// Copies the Python modules of the package, without what was built for another place.
fn copy_modules(from: &Path, to: &Path) -> Result<()> {
    copy_folder(&from.join("polyrank"), &to.join("polyrank"))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy_folder(&path, &to.join(name))?;
        } else if path.extension().is_some_and(|end| end == "py") {
            fs::copy(&path, to.join(name))
                .with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}
