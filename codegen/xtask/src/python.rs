//! `cargo xtask python`: builds the Python package's native half, puts it where the package looks
//! for it, and installs the package into the virtual environment. Knows nothing of what it does;
//! packages for others are maturin's to make.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::native::Arguments;
use crate::progress::Progress;
use crate::setup;
use crate::workspace::Workspace;

/// The Cargo package.
pub(crate) const PACKAGE: &str = "polyrank-python";
/// The folder with the package's Python modules.
pub(crate) const MODULES: &str = "bindings-python/python";
/// Installs what was built, with the metadata of a wheel.
const INSTALLER: &str = "bindings-python/install_editable.py";

/// Builds and installs the package.
///
/// # Errors
/// Set-up, the build or the installation fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("python")?;
    if !arguments.is_built() {
        setup::python(&workspace, &progress)?;
        arguments.build(&workspace, &progress, "python", PACKAGE)?;
    }
    place(&workspace, arguments.folder())?;
    let mut install = workspace.command(workspace.python());
    progress.demand("python", install.arg(INSTALLER))?;
    Ok(ExitCode::SUCCESS)
}

/// Puts what Cargo built in this folder below `target` into the package's folder.
///
/// # Errors
/// It was not built, or cannot be copied.
pub(crate) fn place(workspace: &Workspace, folder: &str) -> Result<()> {
    let output = workspace.path(&format!("{MODULES}/polyrank/_core.abi3.so"));
    workspace.place_library(folder, "_core", &output)
}

/// What Python's search path has to hold for the package to be found where it was not installed.
pub(crate) fn search_path(workspace: &Workspace) -> PathBuf {
    workspace.path(MODULES)
}
