//! `cargo xtask wasm`: builds the browser package's WebAssembly: the compiler, the JavaScript glue,
//! the optimiser, and the limit on its size. Knows the tools; nothing of what the module does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use wasm_bindgen_cli_support::Bindgen;

use crate::progress::Progress;
use crate::setup;
use crate::wasm_compiler::{self, TARGET, has_target};
use crate::wasm_order;
use crate::workspace::Workspace;

/// Where the module and its glue go; not checked in.
const OUTPUT: &str = "bindings-wasm/js/wasm";
/// Beside the module: the profile that it was built with.
const PROFILE_STAMP: &str = "profile.txt";
/// The hand-written JavaScript, which is in Node's package, and where this one has it; not
/// checked in.
const RUNTIME: (&str, &str) = ("bindings-node/js/runtime", "bindings-wasm/js/runtime");
/// What the files are called.
const NAME: &str = "polyrank";
/// The browser package's module.
const MODULE: Module = Module {
    package: "polyrank-wasm",
    file: "polyrank_wasm.wasm",
    name: NAME,
    output: OUTPUT,
    has_types: false,
    says_panics: true,
};
/// The optimiser of the npm package `binaryen`.
const OPTIMISER: &str = "bindings-wasm/node_modules/.bin/wasm-opt";
/// What the module may use.
const FEATURES: [&str; 7] = [
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];
/// The most that a page may have to load, bytes after gzip. What is aimed at is 400 KiB: windows
/// and groups whose members change took 57, backends from outside and meshes another 50; prefix
/// reductions, operators and functions as such, sparse sums and what goes by pairs about 40;
/// topologies, stores that are objects, compression and prepared operations 41; hints, what ranks
/// compare of exchanges, limits of stores, and Workers of one page about 8;
/// short calls, which are three times as fast, about 9; ordering the functions for gzip gave 12
/// back; options of a group for backends that are written in JavaScript about 2;
/// groups that are made at once, refusals that belong to one call, and what errors say about 12;
/// failures that leave earlier operations alone about 2; debug levels, and schedules of thousands
/// of ranks that are built without comparing all steps to all, about 2; breakpoints about 1;
/// torchft's `configure`, and stores by their addresses, about 9.
const LIMIT_BYTES: u64 = 617 << 10;

/// The options of `cargo xtask wasm`.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Build again although nothing seems to have changed
    #[arg(long)]
    force: bool,
    /// Have a panic say where it is, on the console of the browser: a larger module
    #[arg(long)]
    panic_messages: bool,
}

/// Builds the module, and says how large it is.
///
/// # Errors
/// A tool is missing or fails, or the module is larger than it may be.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("wasm")?;
    setup::node(&workspace, &progress)?;
    setup::wasm_compiler(&progress)?;
    if arguments.force {
        let stamp = workspace.path(OUTPUT).join(PROFILE_STAMP);
        ensure!(
            !stamp.exists() || fs::remove_file(&stamp).is_ok(),
            "{}: cannot remove",
            stamp.display()
        );
    }
    let how = if arguments.panic_messages { Build::Diagnostic } else { Build::Full };
    build(&workspace, &progress, how)?;
    Ok(ExitCode::SUCCESS)
}

/// A crate that becomes a module with its JavaScript glue.
pub(crate) struct Module {
    pub(crate) package: &'static str,
    /// What the compiler calls it.
    pub(crate) file: &'static str,
    /// What its files are called.
    pub(crate) name: &'static str,
    /// The folder of its files.
    pub(crate) output: &'static str,
    /// Whether TypeScript is told what is in it.
    pub(crate) has_types: bool,
    /// Whether it can say where a panic is.
    pub(crate) says_panics: bool,
}

/// What a build is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// To be published: as small as can be. A panic, which is a bug, says nothing.
    Full,
    /// To find out where a panic is: as [`Build::Full`], with what panics say.
    Diagnostic,
    /// For somebody who waits. The module is several times as large.
    Quick,
}

impl Build {
    /// Cargo's profile, and the name of its folder.
    fn profile(self) -> &'static str {
        match self {
            Build::Full | Build::Diagnostic => "wasm",
            Build::Quick => "wasm-quick",
        }
    }

    /// What is written beside the module.
    fn stamp(self) -> &'static str {
        match self {
            Build::Diagnostic => "wasm with panic messages",
            Build::Full | Build::Quick => self.profile(),
        }
    }

    /// Whether panics say what they are. Only a standard library that is built here can leave that
    /// out.
    fn has_panic_messages(self) -> bool {
        self != Build::Full || has_target()
    }
}

/// As [`run`], where the compiler and the Node packages are in place.
///
/// # Errors
/// As [`run`].
pub(crate) fn build(workspace: &Workspace, progress: &Progress, how: Build) -> Result<()> {
    take_runtime(&workspace.path(RUNTIME.0), &workspace.path(RUNTIME.1))?;
    let compiled = compile(workspace, progress, how, &MODULE)?;
    let output = workspace.path(OUTPUT);
    let module = output.join(format!("{NAME}_bg.wasm"));
    let stamp = output.join(PROFILE_STAMP);
    let is_same = fs::read_to_string(&stamp).is_ok_and(|built| built == how.stamp());
    if !is_same || !is_newer(&module, &compiled) {
        glue(&compiled, workspace, &MODULE)?;
        if how != Build::Quick {
            optimise(workspace, progress, &module)?;
        }
        fs::write(&stamp, how.stamp())?;
    }
    if how == Build::Quick {
        return Ok(());
    }
    let (raw, zipped) = sizes(&module)?;
    let kib = |bytes: u64| bytes.div_ceil(1024);
    let limit = kib(LIMIT_BYTES);
    eprintln!("[wasm] {}: {} KiB, gzipped {} of {limit} KiB", NAME, kib(raw), kib(zipped));
    ensure!(
        zipped <= LIMIT_BYTES || how.has_panic_messages(),
        "the module is too large: {zipped} bytes gzipped"
    );
    Ok(())
}

/// Makes the folder `to` what the folder `from` is.
fn take_runtime(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let files = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for file in files {
        let file = file.with_context(|| format!("cannot read {}", from.display()))?;
        let copy = to.join(file.file_name());
        fs::copy(file.path(), &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    Ok(())
}

/// Compiles a crate; where the module lies.
///
/// # Errors
/// The compiler fails.
pub(crate) fn compile(
    workspace: &Workspace,
    progress: &Progress,
    how: Build,
    module: &Module,
) -> Result<PathBuf> {
    let profile = how.profile();
    let (mut cargo, target) = wasm_compiler::cargo_build(workspace, how.has_panic_messages());
    cargo.args(["--profile", profile, "--target", TARGET, "-p", module.package]);
    if how.has_panic_messages() && module.says_panics {
        cargo.args(["--features", "panic-messages"]);
    }
    progress.demand("wasm", &mut cargo)?;
    Ok(target.join(TARGET).join(profile).join(module.file))
}

/// Writes a module and its JavaScript glue.
///
/// # Errors
/// What was compiled cannot be read, or its folder cannot be written.
pub(crate) fn glue(compiled: &Path, workspace: &Workspace, module: &Module) -> Result<()> {
    let output = workspace.path(module.output);
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let mut bindgen = Bindgen::new();
    bindgen.input_path(compiled).out_name(module.name).typescript(module.has_types);
    // Without the default path, the module cannot be loaded without saying where it lies.
    bindgen.web(true)?.omit_default_module_path(false).remove_producers_section(true);
    bindgen.generate(output).context("wasm-bindgen cannot read what was compiled")
}

/// Makes the module smaller and faster in place.
fn optimise(workspace: &Workspace, progress: &Progress, module: &Path) -> Result<()> {
    let optimiser = |arguments: &[&str]| {
        let mut optimiser = workspace.command(workspace.path(OPTIMISER));
        optimiser.args(arguments).args(FEATURES);
        optimiser.arg(module).arg("-o").arg(module);
        progress.demand("wasm", &mut optimiser)
    };
    // Nothing lies in the first KiB, the far end of the stack: so a constant that is added to an
    // address can become the offset of a load or store.
    optimiser(&["-Os", "--converge", "--low-memory-unused", "--strip-target-features"])?;
    let bytes = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let named = wasm_order::with_ordered_names(&bytes)?;
    fs::write(module, named).with_context(|| format!("cannot write {}", module.display()))?;
    // A second pass finds what the first has left, also where that did not change any more.
    optimiser(&["-Os", "--low-memory-unused", "--reorder-functions-by-name"])
}

/// Bytes of the module, and of the module after gzip.
fn sizes(module: &Path) -> Result<(u64, u64)> {
    let bytes = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    zip.write_all(&bytes)?;
    Ok((bytes.len() as u64, zip.finish()?.len() as u64))
}

/// Whether `product` is there and not older than `source`.
fn is_newer(product: &Path, source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    matches!((time(product), time(source)), (Some(product), Some(source)) if product >= source)
}
