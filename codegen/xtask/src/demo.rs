//! `cargo xtask demo`: builds what the demo needs and runs it. What the demo does is written in
//! `tests/demo/digits.py` and `tests/examples/digits.rs`.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::setup;
use crate::workspace::Workspace;

/// The options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Ranks that run the Python program
    #[arg(long, default_value_t = 2)]
    python: u32,
    /// Ranks that run the Rust program
    #[arg(long, default_value_t = 2)]
    rust: u32,
}

/// Trains on the handwritten digits with ranks in both languages.
///
/// # Errors
/// Set-up or a build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (python_ranks, rust_ranks) = (arguments.python, arguments.rust);
    ensure!(python_ranks + rust_ranks > 0, "the demo needs at least one rank");
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("demo")?;
    setup::python(&workspace, &progress)?;
    let packages = ["-p", "polyrank", "-p", "polyrank-tests"];
    let targets = ["--bin", "polyrank", "--example", "digits"];
    let words = [&["build", "--release"], &packages[..], &targets].concat();
    let mut maturin = workspace.command(workspace.python());
    maturin.args(["-m", "maturin", "develop", "--release"]);
    maturin.args(["--manifest-path", "bindings-python/Cargo.toml"]);
    for command in [&mut workspace.cargo(&words), &mut maturin] {
        let finished = progress.run("demo", command)?;
        ensure!(finished.success, "this failed:\n{}", finished.output.trim_end());
    }
    let mut launch = workspace.command(workspace.target("release/polyrank"));
    launch.arg("run");
    if python_ranks > 0 {
        launch.args(["-n", &python_ranks.to_string()]);
        launch.arg(workspace.python()).arg("tests/demo/digits.py");
    }
    if rust_ranks > 0 {
        launch.args((python_ranks > 0).then_some(":"));
        launch.args(["-n", &rust_ranks.to_string()]);
        launch.arg(workspace.target("release/examples/digits"));
    }
    eprintln!("[demo] {python_ranks} Python and {rust_ranks} Rust ranks train on digits.csv");
    let status = launch.status().context("cannot start the launcher")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
