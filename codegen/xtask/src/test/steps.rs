//! The steps of `cargo xtask test`: which tool is called how, and what must have succeeded before.
//! Knows nothing of how they are run and counted.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress::Progress;
use crate::workspace::Workspace;
use crate::{public_api, setup};

const PYTHON_PACKAGE: &str = "bindings-python";
const NODE_PACKAGE: &str = "bindings-node";
/// Features that a program may take alone, with the names of the steps that try that.
const FEATURES: [(&str, &str); 2] = [("only-tcp", "tcp"), ("only-websocket", "websocket")];
/// Tells the suites in Rust to run their longest tests, too.
const LONG_TESTS: &str = "POLYRANK_LONG_TESTS";
/// Where cargo-deny takes known weaknesses from; no package registry has them.
const ADVISORIES: &str = "https://github.com/RustSec/advisory-db";

/// One line of the table.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Steps that must have succeeded before.
    pub(super) needs: &'static [&'static str],
    /// Steps that it waits for if they run, however they go.
    pub(super) after: &'static [&'static str],
    /// Whether it runs beside the others, with what they leave of the processor.
    pub(super) runs_beside: bool,
    /// Whether it is worth its time before a release rather than after each change.
    pub(super) is_long: bool,
    pub(super) action: Action,
}

pub(super) enum Action {
    /// Do this.
    Prepare(fn(&Workspace, &Progress) -> Result<()>),
    /// Run this.
    Run(Command),
    /// Run this if the second command works, else report the step as skipped.
    RunIf(Command, Command),
}

/// All steps, in the order in which they run: what fails fast first, what others need before them.
///
/// With `all`, suites run their longest tests, too.
///
/// # Errors
/// This program's own path is unknown.
pub(super) fn steps(workspace: &Workspace, all: bool) -> Result<Vec<Step>> {
    let tools = Tools { workspace, own: std::env::current_exe().context("where am I?")? };
    let all = [
        tools.checks(),
        tools.beside(),
        tools.builds(),
        // The browser package is made meanwhile.
        tools.python_suites(),
        tools.node_suites(),
        tools.suites(all),
        tools.browser_suites(),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Installs what some suites need; they say what they miss.
fn install_programs(workspace: &Workspace, progress: &Progress) -> Result<()> {
    if let Err(error) = setup::cargo_deny(workspace, progress) {
        eprintln!("what needs cargo-deny will be skipped: {error:#}");
    }
    if let Err(error) = setup::chromium(workspace, progress) {
        eprintln!("what needs a browser will be skipped: {error:#}");
    }
    if let Err(error) = setup::mpi(progress) {
        eprintln!("what needs MPI will be skipped: {error:#}");
    }
    if let Err(error) = setup::mpi_wheels(workspace, progress) {
        eprintln!("what needs MPI 5's ABI, or Open MPI 5, will be skipped: {error:#}");
    }
    if let Err(error) = setup::torchft(workspace, progress) {
        eprintln!("what needs torchft will be skipped: {error:#}");
    }
    if let Err(error) = setup::slurm(workspace, progress) {
        eprintln!("what needs Slurm will be skipped: {error:#}");
    }
    if let Err(error) = setup::debugger(progress) {
        eprintln!("what needs gdb will be skipped: {error:#}");
    }
    Ok(())
}

/// The tools, as they are called from here.
struct Tools<'workspace> {
    workspace: &'workspace Workspace,
    /// This program.
    own: PathBuf,
}

fn step(
    name: &'static str,
    about: &'static str,
    needs: &'static [&'static str],
    action: Action,
) -> Step {
    Step { name, about, needs, after: &[], runs_beside: false, is_long: false, action }
}

impl Tools<'_> {
    /// What needs no build.
    fn checks(&self) -> Vec<Step> {
        let format = ["fmt", "--all", "--", "--check", "--color", "never"];
        let generate = ["tests/cases/generate.py", "--check"];
        let mut cases = self.workspace.command(self.workspace.python());
        cases.args(generate);
        vec![
            step(
                "setup",
                "packages of Python and Node",
                &[],
                Action::Prepare(|workspace, progress| {
                    setup::python(workspace, progress)?;
                    setup::node(workspace, progress)
                }),
            ),
            step(
                "format",
                "rustfmt --check",
                &[],
                Action::RunIf(self.cargo(&format), self.cargo(&["fmt", "--version"])),
            ),
            step(
                "codegen",
                "generated files are what the IDL says",
                &[],
                self.own(&["codegen", "--check"]),
            ),
            step(
                "webidl2",
                "the W3C's parser accepts the IDL",
                &["setup"],
                self.node(&["tests/webidl2.mjs"]),
            ),
            step(
                "cases",
                "the conformance cases are what IDL and NumPy say",
                &["setup"],
                Action::Run(cases),
            ),
        ]
    }

    /// Fails where the database of weaknesses cannot be fetched.
    fn advisory_database(&self) -> Command {
        let mut command = self.workspace.command("git");
        command.args(["-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=10", "ls-remote"]);
        command.args(["--exit-code", ADVISORIES, "HEAD"]).env("GIT_TERMINAL_PROMPT", "0");
        command
    }

    /// The packages of the other languages.
    fn builds(&self) -> Vec<Step> {
        vec![
            step(
                "build",
                "build the command, the Python and Node packages and what stands for NCCL",
                &["setup"],
                Action::Run(self.workspace.build_for_suites()),
            ),
            step(
                "extension",
                "install the Python package into .venv",
                &["build"],
                self.own(&["python", "--place"]),
            ),
            step(
                "node",
                "put the Node package in its place",
                &["build"],
                self.own(&["node", "--place"]),
            ),
        ]
    }

    /// What runs in Rust, or starts what it needs from there, and what crosses languages.
    fn suites(&self, all: bool) -> Vec<Step> {
        let mut rust = self.workspace.cargo_for_suites(&["--no-fail-fast"]);
        if all {
            rust.env(LONG_TESTS, "1");
        }
        vec![
            Step {
                // Its suites that cross languages start what these have built.
                after: &["programs", "extension", "node", "wasm"],
                ..step(
                    "rust",
                    "Rust suites, and those that cross languages",
                    // Those that cross languages say what they miss; the others still tell.
                    &["setup"],
                    Action::Run(rust),
                )
            },
            self.over_tcp(),
            self.by_attach(),
            Step {
                // Who has no processor commits no steps.
                after: &["rust", "over-tcp", "by-attach"],
                ..step(
                    "churn",
                    "replicas of three languages are killed, stopped, slowed and added",
                    &["build", "extension", "node"],
                    self.own(&["churn", "--built", "--events", "14", "--pace-ms", "40"]),
                )
            },
            step(
                "strangers",
                "strangers, closed and suspended tabs, encrypted connections, examples of the docs",
                &["node", "wasm", "build"],
                self.node(&[
                    "--test",
                    "--test-concurrency=1",
                    "--test-reporter=tap",
                    "tests/javascript/hostile.test.mjs",
                    "tests/javascript/closed_tab.test.mjs",
                    "tests/javascript/encrypted.test.mjs",
                    "tests/javascript/standing_store.test.mjs",
                    "tests/javascript/examples.test.mjs",
                ]),
            ),
        ]
    }

    /// What runs in a browser, beside the last of the other suites: before, those would take the
    /// processor that tabs need to answer in time.
    fn browser_suites(&self) -> Vec<Step> {
        let steps = [
            step(
                "web",
                "browser package under Node, in tabs and in Workers of Chromium",
                &["wasm", "build", "node"],
                self.node(&[
                    "--test",
                    "--test-concurrency=1",
                    "--test-reporter=tap",
                    "bindings-wasm/tests/package.test.mjs",
                    "bindings-wasm/tests/definitions.test.mjs",
                    "bindings-wasm/tests/node.test.mjs",
                    "bindings-wasm/tests/chromium.test.mjs",
                    "bindings-wasm/tests/groups.test.mjs",
                    "bindings-wasm/tests/workers.test.mjs",
                    "bindings-wasm/tests/worker_stores.test.mjs",
                    "bindings-wasm/tests/readme.test.mjs",
                    "bindings-wasm/tests/foreign.test.mjs",
                    "bindings-wasm/tests/stalls.test.mjs",
                    "bindings-wasm/tests/words.test.mjs",
                    "bindings-wasm/tests/watch.test.mjs",
                    "bindings-wasm/tests/unyielding.test.mjs",
                ]),
            ),
            step(
                "site",
                "the site and its demos, in a browser",
                &["node", "wasm", "extension"],
                Action::RunIf(self.task(&["site", "--test"]), self.chromium()),
            ),
        ];
        steps.map(|step| Step { after: &["rust"], runs_beside: true, ..step }).into()
    }

    /// What no suite but those in a browser waits for, and much of it on one core.
    fn beside(&self) -> Vec<Step> {
        let mut rustdoc = self.workspace.cargo_beside(&public_api::DOCUMENT);
        rustdoc.env("RUSTDOCFLAGS", "-D warnings");
        let steps = [
            step(
                "programs",
                "Chromium, MPI, torchft, Slurm, gdb and cargo-deny, as far as they can be had",
                &["setup"],
                Action::Prepare(install_programs),
            ),
            step("wasm", "build the browser package", &["setup"], self.own(&["wasm"])),
            self.lints(
                "clippy",
                "lints, warnings are errors",
                &["--workspace", "--all-targets", "--all-features"],
            ),
            self.lints(
                "few-features",
                "lints of the crate without what its features add",
                &["-p", "polyrank", "--no-default-features", "--features", "internals"],
            ),
            step(
                "deny",
                "licences, sources and duplicates of all dependencies, by cargo-deny",
                &["programs"],
                Action::RunIf(
                    self.cargo(&["deny", "--all-features", "check", "bans", "licenses", "sources"]),
                    self.cargo(&["deny", "--version"]),
                ),
            ),
            step(
                "advisories",
                "no dependency with a known weakness, by the RustSec database",
                &["programs"],
                Action::RunIf(
                    self.cargo(&["deny", "check", "advisories"]),
                    self.advisory_database(),
                ),
            ),
            step("rustdoc", "documentation, warnings are errors", &[], Action::Run(rustdoc)),
            step(
                "public-api",
                "what Rust users can name is what is listed",
                &[],
                self.own(&["public-api", "--check"]),
            ),
        ];
        let steps = steps.into_iter().chain(self.beside_and_long());
        steps.map(|step| Step { runs_beside: true, ..step }).collect()
    }

    /// What compiles the crate again, and hardly ever finds anything.
    fn beside_and_long(&self) -> impl Iterator<Item = Step> {
        let steps = [
            step(
                "usual-features",
                "the crate as `cargo add polyrank` has it compiles",
                &["setup"],
                Action::Run(self.workspace.cargo_beside(&["check", "-p", "polyrank"])),
            ),
            self.with_few_features(
                "threadless",
                "ranks as tasks of one thread, as in a browser",
                "internals,objects",
                "interleaved",
            ),
            // It compiles a package of its own: with few features, few dependencies.
            self.with_few_features(
                "misuse",
                "misuse does not compile, and the compiler says why",
                "objects",
                "compile_fail",
            ),
        ];
        let alone = FEATURES.map(|(name, feature)| self.feature_alone(name, feature));
        steps.into_iter().chain(alone).map(|step| Step { is_long: true, ..step })
    }

    /// The crate with one of its features, and what that needs.
    fn feature_alone(&self, name: &'static str, feature: &'static str) -> Step {
        let words = ["check", "-p", "polyrank", "--no-default-features", "--features", feature];
        let about = "the crate compiles with this feature alone";
        step(name, about, &["setup"], Action::Run(self.workspace.cargo_beside(&words)))
    }

    /// Clippy's judgement of what `words` select.
    fn lints(&self, name: &'static str, about: &'static str, words: &[&str]) -> Step {
        let words = [&["clippy"], words, &["--", "-D", "warnings"]].concat();
        let lints = self.workspace.cargo_beside(&words);
        step(name, about, &["setup"], Action::RunIf(lints, self.cargo(&["clippy", "--version"])))
    }

    /// A suite of the core that needs no threads and no sockets.
    fn with_few_features(
        &self,
        name: &'static str,
        about: &'static str,
        features: &'static str,
        suite: &'static str,
    ) -> Step {
        let features = ["--no-default-features", "--features", features];
        let words = [&["test", "-p", "polyrank"], &features[..], &["--test", suite]].concat();
        step(name, about, &[], Action::Run(self.workspace.cargo_beside(&words)))
    }

    fn over_tcp(&self) -> Step {
        let what =
            "conformance and failures over TCP, which ranks of one host use only if asked to";
        self.otherwise("over-tcp", what, ("POLYRANK_TRANSPORT", "tcp"))
    }

    fn by_attach(&self) -> Step {
        let what = "conformance and failures with all long messages read from the sender's memory";
        self.otherwise("by-attach", what, ("POLYRANK_COPY", "attach"))
    }

    /// What depends on how ranks of one host reach each other, where `variable` says how.
    fn otherwise(&self, name: &'static str, about: &'static str, variable: (&str, &str)) -> Step {
        let suites = ["--test", "conformance", "--test", "failures", "--test", "killed"];
        let words = [&["--no-fail-fast"], &suites[..]].concat();
        let mut cargo = self.workspace.cargo_for_suites(&words);
        cargo.env(variable.0, variable.1);
        step(name, about, &[], Action::Run(cargo))
    }

    fn node_suites(&self) -> Vec<Step> {
        let options = ["--test", "--test-concurrency=1", "--test-reporter=tap"];
        let files = [self.test_files("tests/layer"), self.test_files("tests")].concat();
        let words = options.into_iter().chain(files.iter().map(String::as_str));
        let words: Vec<&str> = words.collect();
        let suite = step("node-suite", "Node suite", &["node", "build"], self.node(&words));
        vec![Step { after: &["programs"], ..suite }]
    }

    /// The test files in a folder of the Node package, from the root.
    fn test_files(&self, folder: &str) -> Vec<String> {
        let folder = format!("{NODE_PACKAGE}/{folder}");
        let entries = std::fs::read_dir(self.workspace.path(&folder)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut files: Vec<String> = names
            .filter(|name| name.ends_with(".test.js"))
            .map(|name| format!("{folder}/{name}"))
            .collect();
        files.sort_unstable();
        files
    }

    fn python_suites(&self) -> Vec<Step> {
        let mut pyright =
            self.workspace.command(self.workspace.path("tests/node_modules/.bin/pyright"));
        pyright.arg("--pythonpath").arg(self.workspace.python());
        pyright.current_dir(self.workspace.path(PYTHON_PACKAGE));
        vec![
            Step {
                after: &["programs"],
                ..step(
                    "pytest",
                    "Python suite",
                    &["extension", "build"],
                    self.python(&["pytest", "-q", "-rs"]),
                )
            },
            step("mypy", "Python types, by mypy", &["extension"], self.python(&["mypy"])),
            step("pyright", "Python types, by pyright", &["extension"], Action::Run(pyright)),
            step(
                "stubtest",
                "the stubs say what the module does",
                &["extension"],
                self.python(&["mypy.stubtest", "polyrank"]),
            ),
        ]
    }

    fn cargo(&self, words: &[&str]) -> Command {
        self.workspace.cargo(words)
    }

    /// A task of this program.
    fn own(&self, words: &[&str]) -> Action {
        Action::Run(self.task(words))
    }

    fn task(&self, words: &[&str]) -> Command {
        let mut command = self.workspace.command(&self.own);
        command.args(words);
        command
    }

    /// Fails where there is no browser.
    fn chromium(&self) -> Command {
        let mut command = self.workspace.command("node");
        command.arg("tests/javascript/chromium.mjs");
        command
    }

    /// A module of the virtual environment, in the Python package's folder.
    fn python(&self, words: &[&str]) -> Action {
        let mut command = self.workspace.command(self.workspace.python());
        command.arg("-m").args(words).current_dir(self.workspace.path(PYTHON_PACKAGE));
        Action::Run(command)
    }

    fn node(&self, words: &[&str]) -> Action {
        let mut command = self.workspace.command("node");
        command.args(words).env("POLYRANK_TARGET", self.workspace.target("debug"));
        Action::Run(command)
    }
}
