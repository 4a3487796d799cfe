//! How a rank of each language is started, for jobs of several languages. Knows nothing of what the
//! ranks do.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// A language in which ranks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// An example of this package.
    Rust,
    /// A program under the interpreter that has the extension.
    Python,
    /// A JavaScript module in Node.
    Node,
    /// A JavaScript module in a page of a headless Chromium.
    Browser,
}

/// A program in all languages: an example's name, and a path without its ending.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Below `target/…/examples`.
    pub example: &'static str,
    /// Below `tests`: `demo/digits` is `demo/digits.py` and `demo/digits.mjs`.
    pub script: &'static str,
}

/// The digits that the demo learns to read.
pub const DIGITS: Program = Program { example: "digits", script: "demo/digits" };
/// One-sided access to memory of ranks of other languages.
pub const WINDOWS: Program = Program { example: "windows", script: "windows/run" };
/// Meshes of ranks of other languages.
pub const MESHES: Program = Program { example: "device_mesh", script: "device_mesh/run" };
/// Reductions by functions of the program.
pub const REDUCTIONS: Program = Program { example: "reductions", script: "reductions/run" };
/// What ranks of any launcher do: they add each other up.
pub const STEP: Program = Program { example: "step", script: "step/run" };
/// Reductions without end, for tests of what goes wrong meanwhile.
pub const ROUNDS: Program = Program { example: "rounds", script: "rounds/run" };
/// The pairwise conformance cases.
pub const CASES: Program = Program { example: "cases", script: "cases/run" };

impl Language {
    /// What starts a rank of this language.
    ///
    /// # Errors
    /// What is missing here, in words.
    pub fn command(self, program: Program) -> Result<Vec<OsString>, String> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = |ending| tests.join(program.script).with_extension(ending).into_os_string();
        let through = |rank: &str| tests.join("javascript").join(rank).into_os_string();
        match self {
            Language::Rust => Ok(vec![built(&format!("examples/{}", program.example))]),
            Language::Python => {
                let python = std::env::var_os("POLYRANK_PYTHON")
                    .ok_or("POLYRANK_PYTHON names no interpreter that has polyrank")?;
                Ok(vec![python, script("py")])
            }
            Language::Node => {
                is_there("bindings-node/polyrank.node", "cargo xtask node")?;
                Ok(vec!["node".into(), through("node_rank.mjs"), script("mjs")])
            }
            Language::Browser => {
                is_there("bindings-wasm/js/wasm/polyrank_bg.wasm", "cargo xtask wasm")?;
                let mut search = Command::new("node");
                search.arg(through("chromium.mjs")).stdout(Stdio::null());
                if !search.status().is_ok_and(|status| status.success()) {
                    return Err("there is no Chromium; cargo xtask setup installs one".to_owned());
                }
                Ok(vec!["node".into(), through("browser_rank.mjs"), script("mjs")])
            }
        }
    }
}

fn is_there(path: &str, made_by: &str) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if root.join(path).exists() {
        return Ok(());
    }
    Err(format!("{path} is missing; {made_by} makes it"))
}

/// `target/debug/NAME`, which `cargo test --workspace` has built before the suites run.
pub fn built(name: &str) -> OsString {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).map(PathBuf::from).expect("it lies in target/…/deps");
    let path = profile.join(name);
    let shown = path.display();
    assert!(path.exists(), "{shown} is missing: run cargo build --workspace --examples first");
    path.into_os_string()
}

/// Says that the running test, or a part of it, is skipped, where `cargo xtask test` reads it.
pub fn say_skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not by a macro, whose text the test runner keeps to itself where a test passes. If nobody
    // reads the errors, nobody is to be told.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Runs one job with so many ranks of each language, in this order of ranks. `None`, after saying
/// so, where a language is missing here.
pub fn job(program: Program, parts: &[(Language, u32)]) -> Option<Output> {
    let polyrank = built("polyrank");
    let mut launcher = Command::new(&polyrank);
    launcher.arg("run").env("POLYRANK_PROGRAM", polyrank);
    for (index, (language, rank_count)) in parts.iter().enumerate() {
        let command = match language.command(program) {
            Ok(command) => command,
            Err(missing) => {
                say_skipped(&format!("{language:?}: {missing}"));
                return None;
            }
        };
        launcher.args((index > 0).then_some(":")).args(["-n", &rank_count.to_string()]);
        launcher.args(command);
    }
    // Jobs side by side would have more ranks than there are cores, and browsers besides.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Some(launcher.output().expect("the launcher starts"))
}

/// Runs one job as [`job`], which must succeed, and in which each rank says what `ends` makes of
/// its number and the number of ranks: `Rust rank 0 of 3: 5 steps`.
pub fn every_rank_says(
    program: Program,
    parts: &[(Language, u32)],
    ends: impl Fn(usize, u32) -> String,
) {
    let Some(output) = job(program, parts) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let world: u32 = parts.iter().map(|(_, count)| count).sum();
    let ranks = parts.iter().flat_map(|(language, count)| vec![language; *count as usize]);
    for (rank, language) in ranks.enumerate() {
        let line = format!("{language:?} rank {rank} of {world}: {}", ends(rank, world));
        assert!(said.contains(&line), "{line} is missing:\n{said}\n{errors}");
    }
}
