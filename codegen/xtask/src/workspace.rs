//! Where things lie, and the environment in which the tools run. Knows nothing of the tasks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The checkout that this task runner was built from.
#[derive(Clone)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// Finds the root from the place of this package, and the target folder from this program's.
    ///
    /// # Errors
    /// The program does not lie in a target folder, or its source is gone.
    pub(crate) fn find() -> Result<Workspace> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = package.join("../..").canonicalize().context("the checkout is gone")?;
        let program = std::env::current_exe().context("cannot find the running program")?;
        // <target>/debug/xtask
        let target = program.ancestors().nth(2).context("xtask does not run in a target folder")?;
        Ok(Workspace { target: target.to_owned(), root })
    }

    /// A path in the checkout.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside)
    }

    /// A path in the target folder.
    pub(crate) fn target(&self, inside: &str) -> PathBuf {
        self.target.join(inside)
    }

    /// The interpreter of the virtual environment.
    pub(crate) fn python(&self) -> PathBuf {
        self.path(".venv/bin/python")
    }

    /// A command that runs in the root, sees the virtual environment first, and gives the same
    /// environment to every build, so that nothing is compiled twice.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            if is_of_this_package(&name) {
                command.env_remove(name);
            }
        }
        command
            .env("PATH", self.search_path())
            .env("VIRTUAL_ENV", self.path(".venv"))
            .env("PYO3_PYTHON", self.python())
            // The interpreter that loads the extension brings Python's symbols, as maturin says.
            .env("PYO3_BUILD_EXTENSION_MODULE", "1")
            .env("POLYRANK_PYTHON", self.python())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_TERM_COLOR", "never");
        command
    }

    /// Cargo with these words.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        let mut command = self.command("cargo");
        command.args(words);
        command
    }

    /// The same for what runs beside the suites, with a target folder of its own: neither waits for
    /// the other's.
    pub(crate) fn cargo_beside(&self, words: &[&str]) -> Command {
        let mut command = self.cargo(words);
        command.env("CARGO_TARGET_DIR", self.target_beside());
        command
    }

    /// The target folder of [`cargo_beside`](Self::cargo_beside).
    pub(crate) fn target_beside(&self) -> PathBuf {
        self.target("beside")
    }

    /// Builds everything that suites start, with the very features that [`cargo_for_suites`]
    /// has: one more or less, even of a dependency, and all above it would be compiled again.
    ///
    /// [`cargo_for_suites`]: Self::cargo_for_suites
    pub(crate) fn build_for_suites(&self) -> Command {
        self.cargo(&["build", "--workspace", "--all-features", "--lib", "--bins", "--examples"])
    }

    /// `cargo test` of the Rust suites. Python's package can only be linked by what loads it into
    /// Python, and has none.
    pub(crate) fn cargo_for_suites(&self, words: &[&str]) -> Command {
        let all = ["test", "--workspace", "--exclude", "polyrank-python", "--all-features"];
        self.cargo(&[&all[..], words].concat())
    }

    /// Copies the dynamic library `name` that Cargo built in this folder below `target` to
    /// `output`.
    ///
    /// # Errors
    /// It was not built, or cannot be copied.
    pub(crate) fn place_library(&self, folder: &str, name: &str, output: &Path) -> Result<()> {
        let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let built = self.target(&format!("{folder}/{start}{name}{end}"));
        // A process that runs may have the old file mapped: it is replaced, not written over.
        let beside = output.with_extension("new");
        fs::copy(&built, &beside).with_context(|| format!("cannot copy {}", built.display()))?;
        fs::rename(&beside, output).with_context(|| format!("cannot write {}", output.display()))
    }

    fn search_path(&self) -> OsString {
        let old = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.path(".venv/bin"), self.path("tests/node_modules/.bin")];
        let all = own.into_iter().chain(std::env::split_paths(&old));
        // A folder whose name holds a ":" cannot be in PATH; then the old one has to do.
        std::env::join_paths(all).unwrap_or(old)
    }
}

/// What `cargo run` tells about this package and must not reach other packages' builds.
fn is_of_this_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|start| name.starts_with(start))
        || matches!(&*name, "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE" | "OUT_DIR")
}
