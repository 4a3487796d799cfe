//! The WebAssembly of the page that opens flight recorders' files: a module of its own, so that the
//! browser package need not carry it. Knows the tools; nothing of what the module does.

use anyhow::Result;

use crate::progress::Progress;
use crate::wasm::{self, Module};
use crate::workspace::Workspace;

/// The module; where it and its glue go is not checked in.
const MODULE: Module = Module {
    package: "polyrank-trace-page",
    file: "polyrank_trace_page.wasm",
    name: "trace",
    output: "site/src/trace/wasm",
    has_types: true,
    says_panics: false,
};

/// Builds the module, where the compiler is in place.
///
/// # Errors
/// A tool is missing or fails.
pub(crate) fn build(workspace: &Workspace, progress: &Progress) -> Result<()> {
    // As the browser package is built, whose standard library it shares.
    let compiled = wasm::compile(workspace, progress, wasm::Build::Full, &MODULE)?;
    wasm::glue(&compiled, workspace, &MODULE)
}
