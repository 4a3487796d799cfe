//! `cargo xtask node`: builds the Node package's native half and puts it where the package looks
//! for it. Knows nothing of what it does.

use std::process::ExitCode;

use anyhow::Result;

use crate::progress::Progress;
use crate::setup;
use crate::workspace::Workspace;

/// The Cargo package.
pub(crate) const PACKAGE: &str = "polyrank-node";
/// What the package loads; not checked in.
const OUTPUT: &str = "bindings-node/polyrank.node";

/// The options of `cargo xtask node`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// With optimisation, as it is published
    #[arg(long)]
    release: bool,
    /// Only put in its place what Cargo has built for the suites
    #[arg(long, conflicts_with = "release")]
    place: bool,
}

/// Builds the native half.
///
/// # Errors
/// Set-up or the build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    if arguments.place {
        place(&workspace, "debug")?;
        return Ok(ExitCode::SUCCESS);
    }
    progress.clear("node")?;
    setup::node(&workspace, &progress)?;
    let (profile, folder) =
        if arguments.release { ("release", "release") } else { ("dev", "debug") };
    let words = ["build", "-p", PACKAGE, "--profile", profile];
    progress.demand("node", &mut workspace.cargo(&words))?;
    place(&workspace, folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Puts what Cargo built in this folder below `target` to where the package looks for it.
///
/// # Errors
/// It was not built, or cannot be copied.
pub(crate) fn place(workspace: &Workspace, folder: &str) -> Result<()> {
    workspace.place_library(folder, "polyrank_node", &workspace.path(OUTPUT))
}
