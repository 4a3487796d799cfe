//! `cargo xtask node`: builds the Node package's native half and puts it where the package looks
//! for it. Knows nothing of what it does.

use std::process::ExitCode;

use anyhow::Result;

use crate::native::Arguments;
use crate::progress::Progress;
use crate::setup;
use crate::workspace::Workspace;

/// The Cargo package.
pub(crate) const PACKAGE: &str = "polyrank-node";
/// What the package loads; not checked in.
const OUTPUT: &str = "bindings-node/polyrank.node";

/// Builds the native half.
///
/// # Errors
/// Set-up or the build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    if !arguments.is_built() {
        progress.clear("node")?;
        setup::node(&workspace, &progress)?;
        arguments.build(&workspace, &progress, "node", PACKAGE)?;
    }
    place(&workspace, arguments.folder())?;
    Ok(ExitCode::SUCCESS)
}

/// Puts what Cargo built in this folder below `target` to where the package looks for it.
///
/// # Errors
/// It was not built, or cannot be copied.
pub(crate) fn place(workspace: &Workspace, folder: &str) -> Result<()> {
    workspace.place_library(folder, "polyrank_node", &workspace.path(OUTPUT))
}
