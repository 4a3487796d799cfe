//! `cargo xtask codegen` and `cargo xtask model`: reads the IDL, writes or compares what is
//! generated from it. Knows nothing of what the files say.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use polyrank_codegen::definitions::{self, TestSource};
use polyrank_codegen::files::{self, Change, Files};
use polyrank_codegen::languages::LANGUAGES;
use polyrank_codegen::model::Api;
use polyrank_codegen::reference::{self, Declarations};

use crate::protobuf;
use crate::workspace::Workspace;

/// Folders in which every file with a generated first line is checked.
const PLACES: &[&str] = &[
    "core/src",
    "core/quorum/src",
    "bindings-python",
    "bindings-node",
    "bindings-wasm",
    "site",
    "tests",
];

/// Folders that no language generates into, and that may be large.
const SKIPPED: &[&str] = &["target", "node_modules", "__pycache__", ".venv"];

/// The options of `cargo xtask codegen`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a generated file is missing, stale or left over
    #[arg(long)]
    check: bool,
}

/// The options of `cargo xtask model`.
#[derive(clap::Args)]
pub(crate) struct ModelArguments {
    /// ProcessGroup, ProcessGroup.allreduce, AllreduceOptions.timeout, allreduce, dtypes, …
    name: String,
}

/// Writes the generated files, or compares them.
///
/// # Errors
/// A file cannot be read or written, or rustfmt fails. Mistakes of the IDL, and files that differ
/// under `--check`, are printed, and are an exit code.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let Some(api) = read(&workspace)? else { return Ok(ExitCode::FAILURE) };
    let formats = has_rustfmt(&workspace);
    if !formats && !arguments.check {
        bail!("rustfmt is not installed: generated files cannot be written without it");
    }
    let mut generated = generate(&workspace, &api, formats)?;
    let mut existing = existing(&workspace, &generated)?;
    if !formats {
        eprintln!("rustfmt is not installed: Rust files are compared without their layout");
        [&mut generated, &mut existing].into_iter().for_each(forget_layout);
    }
    let changes = files::changes(&generated, &existing);
    if !arguments.check {
        for (path, change) in &changes {
            apply(&workspace.path(path), *change, generated.get(path))?;
            eprintln!("{path} {}", if *change == Change::LeftOver { "removed" } else { "written" });
        }
        let total = generated.len();
        eprintln!("{total} generated files, {} of them changed", changes.len());
        return Ok(ExitCode::SUCCESS);
    }
    for (path, change) in &changes {
        eprintln!("{path} {}", change.what());
    }
    if changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("run `{}` and commit what it writes", files::COMMAND);
    Ok(ExitCode::FAILURE)
}

/// Prints one item of the model as JSON.
///
/// # Errors
/// The IDL cannot be read, or has nothing of this name.
pub(crate) fn model(arguments: &ModelArguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let Some(api) = read(&workspace)? else { return Ok(ExitCode::FAILURE) };
    match api.find(&arguments.name) {
        Ok(json) => {
            // A reader that closes early, as `head` does, is not a failure.
            let _ = writeln!(std::io::stdout(), "{json}");
            Ok(ExitCode::SUCCESS)
        }
        Err(message) => bail!(message),
    }
}

/// The model of all files of `idl/`; none after its mistakes have been printed.
fn read(workspace: &Workspace) -> Result<Option<Api>> {
    let folder = workspace.path("idl");
    let mut idl = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "webidl") {
            let text = fs::read_to_string(&path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            idl.push((format!("idl/{name}"), text));
        }
    }
    match polyrank_codegen::read(idl) {
        Ok(api) => Ok(Some(api)),
        Err(mistakes) => {
            eprint!("{}", mistakes.render(std::io::stderr().is_terminal()));
            let count = mistakes.diagnostics().len();
            eprintln!("\n{count} mistake{} in idl/", if count == 1 { "" } else { "s" });
            Ok(None)
        }
    }
}

/// All files of all languages; Rust formatted if `formats`.
fn generate(workspace: &Workspace, api: &Api, formats: bool) -> Result<Files> {
    let mut all = Files::new();
    let made = LANGUAGES
        .iter()
        .map(|(language, make)| make(api).with_context(|| format!("generating {language}")));
    for files in made.chain([protobuf::files(workspace)]) {
        for (path, text) in files? {
            let text = match formats && path.ends_with(".rs") {
                true => format_rust(workspace, &text).with_context(|| path.clone())?,
                false => text,
            };
            if all.insert(path.clone(), text).is_some() {
                bail!("two languages generate {path}");
            }
        }
    }
    let declarations = declarations(workspace, &all)?;
    all.extend(reference::files(api, &declarations));
    all.extend(definitions::files(api, &test_sources(workspace)?));
    Ok(all)
}

/// Folders of tests, and the endings of their files.
const TESTS: (&[&str], &[&str]) = (
    &["bindings-node/tests", "bindings-python/tests", "bindings-wasm/tests", "tests"],
    &[".js", ".mjs", ".py", ".rs"],
);

/// The files of tests in all languages, in order of their paths.
fn test_sources(workspace: &Workspace) -> Result<Vec<TestSource>> {
    let mut found = Files::new();
    for folder in TESTS.0 {
        collect(workspace, folder, &mut found)?;
    }
    let is_test = |path: &String| {
        TESTS.1.iter().any(|ending| path.ends_with(ending)) && !files::in_generated_folder(path)
    };
    let found = found.into_iter().filter(|(path, _)| is_test(path));
    Ok(found.map(|(path, text)| TestSource { path, text }).collect())
}

/// What languages declare: in files that are generated, and in others.
fn declarations(workspace: &Workspace, generated: &Files) -> Result<Declarations> {
    let text = |path: String| match generated.get(&path) {
        Some(text) => Ok(text.clone()),
        None => {
            fs::read_to_string(workspace.path(&path)).with_context(|| format!("reading {path}"))
        }
    };
    let modules = ["_core.pyi", "_enums.py", "_coalescing.py", "_compatible.py", "_members.py"];
    let python = modules
        .into_iter()
        .chain(["_memory.py", "_backends.py"])
        .map(|name| text(format!("bindings-python/python/polyrank/{name}")));
    let script = ["index.d.ts", "js/runtime/types.d.ts"].into_iter().chain([
        "js/runtime/backends.d.ts",
        "js/runtime/breakpoint.d.ts",
        "js/runtime/lists.d.ts",
        "js/runtime/stores.d.ts",
    ]);
    let typescript = script.map(|name| text(format!("bindings-node/{name}")));
    Ok(Declarations {
        python: python.collect::<Result<_>>()?,
        typescript: typescript.collect::<Result<_>>()?,
        rust: text("core/public-api.txt".to_owned())?,
    })
}

/// Whether the toolchain has rustfmt; a rustup proxy without the component has not.
fn has_rustfmt(workspace: &Workspace) -> bool {
    let mut command = workspace.command("rustfmt");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn forget_layout(files: &mut Files) {
    for (path, text) in files {
        if path.ends_with(".rs") && files::in_generated_folder(path) {
            *text = files::unformatted(text);
        }
    }
}

/// The text as rustfmt writes it, with the repository's rustfmt.toml.
fn format_rust(workspace: &Workspace, text: &str) -> Result<String> {
    let mut command = workspace.command("rustfmt");
    command.args(["--edition", "2024", "--config-path"]).arg(workspace.path("rustfmt.toml"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut rustfmt = command.spawn().context("cannot run rustfmt")?;
    let mut input = rustfmt.stdin.take().context("rustfmt takes no input")?;
    let sent = text.to_owned();
    // Written by a thread, because rustfmt may fill its output before it has read all input.
    let writer = std::thread::spawn(move || input.write_all(sent.as_bytes()));
    let output = rustfmt.wait_with_output().context("rustfmt does not end")?;
    let written = writer.join();
    if !output.status.success() {
        bail!("rustfmt refuses the text:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    if !matches!(written, Ok(Ok(()))) {
        bail!("rustfmt did not read the text");
    }
    String::from_utf8(output.stdout).context("rustfmt writes no UTF-8")
}

/// The texts of every file that is generated, may be generated, or was.
fn existing(workspace: &Workspace, generated: &Files) -> Result<Files> {
    let mut existing = Files::new();
    for place in PLACES {
        collect(workspace, place, &mut existing)?;
    }
    for path in generated.keys().filter(|path| workspace.path(path).is_file()) {
        let text = fs::read_to_string(workspace.path(path));
        existing.insert(path.clone(), text.with_context(|| format!("reading {path}"))?);
    }
    Ok(existing)
}

fn collect(workspace: &Workspace, folder: &str, existing: &mut Files) -> Result<()> {
    let Ok(entries) = fs::read_dir(workspace.path(folder)) else { return Ok(()) };
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {folder}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(workspace, &path, existing)?;
            }
            continue;
        }
        // What is not text, such as a built library, was not generated.
        if let Ok(text) = fs::read_to_string(entry.path()) {
            existing.insert(path, text);
        }
    }
    Ok(())
}

fn apply(path: &Path, change: Change, text: Option<&String>) -> Result<()> {
    let shown = path.display();
    match (change, text) {
        (Change::LeftOver, _) | (_, None) => {
            fs::remove_file(path).with_context(|| format!("removing {shown}"))
        }
        (Change::Missing | Change::Stale, Some(text)) => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("making a folder for {shown}"))?;
            }
            fs::write(path, text).with_context(|| format!("writing {shown}"))
        }
    }
}
