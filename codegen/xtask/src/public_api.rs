//! `cargo xtask public-api`: lists what a Rust user can name in the crates that are libraries, so
//! that a change of it is seen in a review. Hidden items (`#[doc(hidden)]`) are for polyrank's own
//! packages and are not listed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::progress::Progress;
use crate::workspace::Workspace;

/// The lists, which are checked in, and the crates of which they are.
const LISTS: [(&str, &str); 3] = [
    ("core/public-api.txt", "polyrank"),
    ("core/quorum/public-api.txt", "polyrank_quorum"),
    ("core/replicas/public-api.txt", "polyrank_replicas"),
];
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

/// Writes the lists, or compares them.
///
/// # Errors
/// The crates cannot be documented; a list is stale, or cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    document(&workspace, &progress)?;
    for (list, name) in LISTS {
        let items = items(&workspace, name)?;
        let path = workspace.path(list);
        if arguments.check {
            compare(list, &fs::read_to_string(&path).unwrap_or_default(), &items)?;
        } else {
            fs::write(&path, items).with_context(|| format!("cannot write {list}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An error where what is `listed` is not what there is.
fn compare(list: &str, listed: &str, items: &str) -> Result<()> {
    let (listed, items): (Vec<&str>, Vec<&str>) =
        (listed.lines().collect(), items.lines().collect());
    let gone = listed.iter().filter(|item| !items.contains(item)).map(|item| format!("- {item}"));
    let new = items.iter().filter(|item| !listed.contains(item)).map(|item| format!("+ {item}"));
    let changes: Vec<String> = gone.chain(new).collect();
    ensure!(
        listed == items,
        "{list} is stale: `cargo xtask public-api` writes it\n{}",
        changes.join("\n")
    );
    Ok(())
}

/// Has rustdoc describe all crates, as JSON.
fn document(workspace: &Workspace, progress: &Progress) -> Result<()> {
    let mut cargo = workspace.cargo_beside(&DOCUMENT);
    cargo.env("RUSTDOC", unstable_rustdoc(workspace)?);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    progress.clear("public-api")?;
    progress.demand("public-api", &mut cargo)
}

/// One line for each item of a crate, in order of their names.
fn items(workspace: &Workspace, name: &str) -> Result<String> {
    let described = workspace.target_beside().join(format!("doc/{name}.json"));
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
