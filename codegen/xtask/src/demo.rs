//! `cargo xtask demo`: builds what the demo needs and runs it. What the demo does is written in
//! `tests/demo/digits.py`, `tests/demo/digits.mjs` and `tests/examples/digits.rs`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::workspace::Workspace;
use crate::{node, setup, wasm};

/// Cargo's profile, and its folder below `target`.
const PROFILE: &str = "demo";

/// The options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Ranks that run the Python program
    #[arg(long, default_value_t = 1)]
    python: u32,
    /// Ranks that run the Rust program
    #[arg(long, default_value_t = 1)]
    rust: u32,
    /// Ranks that run the JavaScript program in Node
    #[arg(long, default_value_t = 1)]
    node: u32,
    /// Ranks that run the JavaScript program in a browser
    #[arg(long, default_value_t = 1)]
    browser: u32,
}

/// Trains on the handwritten digits with ranks in every language.
///
/// # Errors
/// Set-up or a build fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { python, rust, node, browser } = *arguments;
    ensure!(python + rust + node + browser > 0, "the demo needs at least one rank");
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("demo")?;
    let browser = browsers(&workspace, &progress, browser)?;
    build(&workspace, &progress, &Arguments { browser, ..*arguments })?;
    let through = |rank: &str| workspace.path(&format!("tests/javascript/{rank}"));
    let script = |ending: &str| workspace.path(&format!("tests/demo/digits.{ending}"));
    let parts: [(&str, u32, Vec<OsString>); 4] = [
        ("Python", python, vec![workspace.python().into(), script("py").into()]),
        ("Rust", rust, vec![workspace.target(&format!("{PROFILE}/examples/digits")).into()]),
        ("Node", node, vec![through("node_rank.mjs").into(), script("mjs").into()]),
        ("Browser", browser, vec![through("browser_rank.mjs").into(), script("mjs").into()]),
    ];
    let launcher = workspace.target(&format!("{PROFILE}/polyrank"));
    let mut launch = workspace.command(&launcher);
    launch.arg("run").env("POLYRANK_PROGRAM", &launcher);
    let mut names = Vec::new();
    for (language, rank_count, command) in parts.iter().filter(|(_, count, _)| *count > 0) {
        launch.args((!names.is_empty()).then_some(":"));
        launch.args(["-n", &rank_count.to_string()]).args(command);
        names.push(format!("{rank_count} {language}"));
    }
    eprintln!("[demo] training on digits.csv, ranks: {}", names.join(", "));
    let status = launch.status().context("cannot start the launcher")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many ranks in browsers there can be: none where there is no browser.
fn browsers(workspace: &Workspace, progress: &Progress, wanted: u32) -> Result<u32> {
    if wanted == 0 {
        return Ok(0);
    }
    setup::node(workspace, progress)?;
    if let Err(error) = setup::chromium(workspace, progress) {
        eprintln!("[demo] without a rank in a browser: {error:#}");
        return Ok(0);
    }
    Ok(wanted)
}

fn build(workspace: &Workspace, progress: &Progress, ranks: &Arguments) -> Result<()> {
    let run = |command: &mut std::process::Command| -> Result<()> {
        let finished = progress.run("demo", command)?;
        ensure!(finished.success, "this failed:\n{}", finished.output.trim_end());
        Ok(())
    };
    let packages = ["-p", "polyrank-cli", "-p", "polyrank-tests"];
    let targets = ["--bin", "polyrank", "--example", "digits"];
    run(
        &mut workspace.cargo(&[&["build", "--profile", PROFILE], &packages[..], &targets].concat())
    )?;
    if ranks.python > 0 {
        setup::python(workspace, progress)?;
        let mut maturin = workspace.command(workspace.python());
        maturin.args(["-m", "maturin", "develop", "--profile", PROFILE]);
        run(maturin.args(["--manifest-path", "bindings-python/Cargo.toml"]))?;
    }
    if ranks.node > 0 {
        setup::node(workspace, progress)?;
        node::build(workspace, progress, PROFILE)?;
    }
    if ranks.browser > 0 {
        wasm::build(workspace, progress, false)?;
    }
    Ok(())
}
