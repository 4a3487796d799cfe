//! `cargo xtask node`: builds the Node package's native half and puts it where the package looks
//! for it. Knows nothing of what it does.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::setup;
use crate::workspace::Workspace;

/// What the package loads; not checked in.
const OUTPUT: &str = "bindings-node/polyrank.node";

/// The options of `cargo xtask node`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// With optimisation, as it is published
    #[arg(long)]
    release: bool,
}

/// Builds the native half.
///
/// # Errors
/// Set-up or the build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("node")?;
    setup::node(&workspace, &progress)?;
    build(&workspace, &progress, if arguments.release { "release" } else { "dev" })?;
    Ok(ExitCode::SUCCESS)
}

/// As [`run`], where Node is in place, with Cargo's `profile`.
///
/// # Errors
/// The build fails, or its output cannot be copied.
pub(crate) fn build(workspace: &Workspace, progress: &Progress, profile: &str) -> Result<()> {
    let mut cargo = workspace.cargo(&["build", "-p", "polyrank-node", "--profile", profile]);
    let finished = progress.run("node", &mut cargo)?;
    ensure!(finished.success, "this failed:\n{}", finished.output.trim_end());
    let folder = if profile == "dev" { "debug" } else { profile };
    let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let built = workspace.target(&format!("{folder}/{start}polyrank_node{end}"));
    let output = workspace.path(OUTPUT);
    // A process that runs may have the old file mapped: it is replaced, not written over.
    let beside = output.with_extension("new");
    fs::copy(&built, &beside).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&beside, &output).with_context(|| format!("cannot write {}", output.display()))
}
