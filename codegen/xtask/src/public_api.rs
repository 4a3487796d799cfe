//! `cargo xtask public-api`: lists what a Rust user can name in the crate `polyrank`, so that a
//! change of it is seen in a review. Hidden items (`#[doc(hidden)]`) are for polyrank's own
//! packages and are not listed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::workspace::Workspace;

/// The list; checked in.
const LIST: &str = "core/public-api.txt";
/// The command that documents all packages except Python's, which has Python's documentation.
pub(crate) const DOCUMENT: [&str; 6] =
    ["doc", "--workspace", "--exclude", "polyrank-python", "--no-deps", "--all-features"];

/// The options of `cargo xtask public-api`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only compare the list with the crate
    #[arg(long)]
    check: bool,
}

/// Writes the list, or compares it.
///
/// # Errors
/// The crate cannot be documented; the list is stale, or cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    let items = items(&workspace, &progress)?;
    let path = workspace.path(LIST);
    if !arguments.check {
        fs::write(&path, items).with_context(|| format!("cannot write {LIST}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let (listed, items): (Vec<&str>, Vec<&str>) =
        (listed.lines().collect(), items.lines().collect());
    let gone = listed.iter().filter(|item| !items.contains(item)).map(|item| format!("- {item}"));
    let new = items.iter().filter(|item| !listed.contains(item)).map(|item| format!("+ {item}"));
    let changes: Vec<String> = gone.chain(new).collect();
    ensure!(
        listed == items,
        "{LIST} is stale: `cargo xtask public-api` writes it\n{}",
        changes.join("\n")
    );
    Ok(ExitCode::SUCCESS)
}

/// One line for each item, in order of their names.
fn items(workspace: &Workspace, progress: &Progress) -> Result<String> {
    let mut cargo = workspace.cargo_beside(&DOCUMENT);
    cargo.env("RUSTDOC", unstable_rustdoc(workspace)?);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    progress.clear("public-api")?;
    progress.demand("public-api", &mut cargo)?;
    let described = workspace.target_beside().join("doc/polyrank.json");
    let api = public_api::Builder::from_rustdoc_json(described)
        .sorted(true)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// The rustdoc of the pinned toolchain, which is told that its JSON is unstable: only it, so that
/// nothing else is compiled anew for that.
fn unstable_rustdoc(workspace: &Workspace) -> Result<PathBuf> {
    let script = workspace.target("xtask/rustdoc");
    fs::write(&script, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")
        .and_then(|()| fs::set_permissions(&script, PermissionsExt::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", script.display()))?;
    Ok(script)
}
