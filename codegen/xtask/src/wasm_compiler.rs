//! The compiler of the browser package: rustup's where it has the target, else Debian's, which
//! brings no standard library but its sources. Knows nothing of what is compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;

/// The target of browsers.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
/// Debian's compiler.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// Debian's cargo, which belongs to that compiler.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
/// The sources of the standard library of Debian's compiler.
const DEBIAN_LIBRARY: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";
/// Linkers for WebAssembly as Debian installs them, the one of [`DEBIAN_PACKAGES`] first. The
/// compiler's own default is `rust-lld`, of a package that brings all of LLVM for it.
const DEBIAN_LINKERS: [&str; 3] = ["/usr/bin/wasm-ld-22", "/usr/bin/wasm-ld", "/usr/bin/rust-lld"];
/// The Debian packages that hold all of the above.
pub(crate) const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-22"];

/// The `cargo build` of that compiler, and its target folder. Only a standard library that is built
/// here can leave out what panics say.
pub(crate) fn cargo_build(workspace: &Workspace, has_panic_messages: bool) -> (Command, PathBuf) {
    if has_target() {
        (workspace.cargo(&["build"]), workspace.target(""))
    } else {
        debian_cargo(workspace, has_panic_messages)
    }
}

/// Whether the toolchain has a standard library for the target. Its folder is named even where
/// there is none.
pub(crate) fn has_target() -> bool {
    let words = ["--print", "target-libdir", "--target", TARGET];
    let Ok(answer) = Command::new("rustc").args(words).output() else { return false };
    let folder = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("libstd-") && name.ends_with(".rlib"))
}

/// What of Debian's compiler is missing here, as paths; empty where all is in place.
pub(crate) fn missing_of_debian() -> Vec<&'static str> {
    let files = [DEBIAN_RUSTC, DEBIAN_CARGO, DEBIAN_LIBRARY].into_iter();
    let missing = files.filter(|path| !Path::new(path).exists());
    missing.chain(debian_linker().is_none().then_some(DEBIAN_LINKERS[0])).collect()
}

/// The linker to name to Debian's compiler.
fn debian_linker() -> Option<&'static str> {
    DEBIAN_LINKERS.into_iter().find(|path| Path::new(path).exists())
}

/// Debian's cargo, which builds the standard library too, and its own target folder: its compiler
/// is another version, and would otherwise build everything anew each time.
fn debian_cargo(workspace: &Workspace, has_panic_messages: bool) -> (Command, PathBuf) {
    let target = workspace.target("wasm");
    let mut cargo = workspace.command(DEBIAN_CARGO);
    let old = std::env::var_os("PATH").unwrap_or_default();
    let path = [PathBuf::from("/usr/bin")].into_iter().chain(std::env::split_paths(&old));
    if let Ok(path) = std::env::join_paths(path) {
        cargo.env("PATH", path);
    }
    // The standard library can only be built with features that are not stable.
    cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &target);
    if let Some(linker) = debian_linker() {
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    }
    for name in ["RUSTUP_TOOLCHAIN", "RUSTUP_HOME", "CARGO", "RUSTDOC", "RUSTC_WRAPPER"] {
        cargo.env_remove(name);
    }
    cargo.args(["build", "-Z", "build-std=std,panic_abort"]);
    cargo.args(["-Z", "build-std-features=optimize_for_size"]);
    if !has_panic_messages {
        cargo.args(["-Z", "panic-immediate-abort"]);
        cargo.env("CARGO_PROFILE_WASM_PANIC", "immediate-abort");
        // Who is not told of panics needs no names of files either; these are added to the flags of
        // the configuration.
        let flags = format!("target.{TARGET}.rustflags=['-Zlocation-detail=none']");
        cargo.args(["--config", &flags]);
    }
    (cargo, target)
}
