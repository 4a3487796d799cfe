//! Where the Python package's native half is built and where the package looks for it. Knows
//! nothing of what it does; packages for others are maturin's to make.

use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::Workspace;

/// The Cargo package.
pub(crate) const PACKAGE: &str = "polyrank-python";
/// The folder with the package's Python modules.
const MODULES: &str = "bindings-python/python";

/// Puts what Cargo built into the package's folder.
///
/// # Errors
/// It was not built, or cannot be copied.
pub(crate) fn place(workspace: &Workspace) -> Result<()> {
    let output = workspace.path(&format!("{MODULES}/polyrank/_core.abi3.so"));
    workspace.place_library("debug", "_core", &output)
}

/// What Python's search path has to hold for the package to be found where it was not installed.
pub(crate) fn search_path(workspace: &Workspace) -> PathBuf {
    workspace.path(MODULES)
}
