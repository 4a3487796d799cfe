//! `cargo xtask demo`: builds what the demo needs and runs it. What the demo does is written in
//! `tests/demo/digits.py`, `tests/demo/digits.mjs` and `tests/examples/digits.rs`.
//!
//! A person waits for it. So one call of Cargo builds the ranks of all languages, which compiles
//! the core only once, and packages are installed while the compiler runs.

use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::progress::Progress;
use crate::setup::NodeFolder;
use crate::workspace::Workspace;
use crate::{node, python, setup, wasm};

/// The options of `cargo xtask demo`.
#[derive(Clone, Copy, clap::Args)]
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
/// A build fails, or something is missing that other ranks than those in browsers need.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let total = arguments.python + arguments.rust + arguments.node + arguments.browser;
    ensure!(total > 0, "the demo needs at least one rank");
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    let started = Instant::now();
    let browser_ranks = prepare(&workspace, &progress, arguments)?;
    eprintln!("[demo] everything is built after {:.0} s", started.elapsed().as_secs_f64());
    train(&workspace, &Arguments { browser: browser_ranks, ..*arguments })
}

/// Installs and builds what the ranks need, as much as possible in parallel. Returns how many ranks
/// can run in browsers.
fn prepare(workspace: &Workspace, progress: &Progress, ranks: &Arguments) -> Result<u32> {
    // Missing programs are reported before the user waits for the compiler.
    if ranks.python > 0 {
        setup::python_environment(workspace, progress)?;
    }
    if ranks.node + ranks.browser > 0 {
        setup::node_programs(progress)?;
    }
    thread::scope(|scope| {
        let python = (ranks.python > 0).then(|| {
            scope.spawn(|| timed("Python packages", || setup::python(workspace, progress)))
        });
        let browser = (ranks.browser > 0)
            .then(|| scope.spawn(|| browser_ranks(workspace, progress, ranks.browser)));
        let node = (ranks.node > 0).then(|| {
            scope.spawn(|| {
                timed("Node packages", || {
                    setup::node_packages(workspace, progress, &[NodeFolder::Node])
                })
            })
        });
        timed("Rust, Python and Node ranks", || build(workspace, progress, ranks))?;
        python.map_or(Ok(()), |thread| joined(thread.join()))?;
        node.map_or(Ok(()), |thread| joined(thread.join()))?;
        browser.map_or(Ok(0), |thread| Ok(thread.join().unwrap_or_default()))
    })
}

/// Runs a part of the preparation and says how long it took.
fn timed(part: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    let result = run();
    say_time(part, started.elapsed());
    result
}

fn say_time(part: &str, took: Duration) {
    eprintln!("[demo] {part}: {:.0} s", took.as_secs_f64());
}

fn joined(result: thread::Result<Result<()>>) -> Result<()> {
    result.unwrap_or_else(|_| Err(anyhow!("a part of the preparation panicked")))
}

/// Prepares ranks in browsers, `wanted` of them. If a browser or a compiler for WebAssembly cannot
/// be installed, the others train without them.
fn browser_ranks(workspace: &Workspace, progress: &Progress, wanted: u32) -> u32 {
    let prepared = timed("browser and compiler for WebAssembly", || {
        setup::browser_and_compiler(workspace, progress)?;
        setup::node_packages(workspace, progress, &[NodeFolder::Web, NodeFolder::Tests])
    });
    let built = prepared.and_then(|()| {
        timed("browser ranks", || wasm::build(workspace, progress, wasm::Build::Quick))
    });
    match built {
        Ok(()) => wanted,
        Err(error) => {
            eprintln!("[demo] training goes on without a rank in a browser: {error:#}");
            0
        }
    }
}

/// Builds the launcher and the native ranks.
fn build(workspace: &Workspace, progress: &Progress, ranks: &Arguments) -> Result<()> {
    let mut words = vec!["build", "-p", "polyrank-cli", "--bin", "polyrank"];
    words.extend(["-p", "polyrank-tests", "--example", "digits", "--lib"]);
    words.extend((ranks.python > 0).then_some(["-p", python::PACKAGE]).into_iter().flatten());
    words.extend((ranks.node > 0).then_some(["-p", node::PACKAGE]).into_iter().flatten());
    progress.clear("demo")?;
    progress.demand("demo", &mut workspace.cargo(&words))?;
    if ranks.python > 0 {
        python::place(workspace, "debug")?;
    }
    if ranks.node > 0 {
        node::place(workspace, "debug")?;
    }
    Ok(())
}

/// Runs all ranks as one job.
fn train(workspace: &Workspace, ranks: &Arguments) -> Result<ExitCode> {
    let through = |rank: &str| workspace.path(&format!("tests/javascript/{rank}"));
    let script = |ending: &str| workspace.path(&format!("tests/demo/digits.{ending}"));
    let parts: [(&str, u32, Vec<OsString>); 4] = [
        ("Python", ranks.python, vec![workspace.python().into(), script("py").into()]),
        ("Rust", ranks.rust, vec![workspace.target("debug/examples/digits").into()]),
        ("Node", ranks.node, vec![through("node_rank.mjs").into(), script("mjs").into()]),
        ("Browser", ranks.browser, vec![through("browser_rank.mjs").into(), script("mjs").into()]),
    ];
    let launcher = workspace.target("debug/polyrank");
    let mut launch = workspace.command(&launcher);
    launch.arg("run").env("POLYRANK_PROGRAM", &launcher);
    launch.env("PYTHONPATH", python::search_path(workspace));
    let mut names = Vec::new();
    for (language, rank_count, command) in parts.iter().filter(|(_, count, _)| *count > 0) {
        launch.args((!names.is_empty()).then_some(":"));
        launch.args(["-n", &rank_count.to_string()]).args(command);
        names.push(format!("{rank_count} {language}"));
    }
    ensure!(!names.is_empty(), "no rank is left to train");
    eprintln!("[demo] training on digits.csv, ranks: {}", names.join(", "));
    let status = launch.status().context("cannot start the launcher")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
