//! The table of environment variables holds all that polyrank reads and nothing else, and the
//! site's page is what the table says. `POLYRANK_WRITE=1` writes the page.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use polyrank::env::variable::{Row, TOPICS};
use polyrank_tests::checked_in;

/// The folders that users get.
const PRODUCT: [&str; 4] = ["core", "bindings-python", "bindings-node", "bindings-wasm"];
/// All variables.
const TABLE: &str = "core/src/env/table.rs";
/// The one file that asks the environment.
const READER: &str = "core/src/env/variable.rs";
/// Not read by what users get: tests, examples, measurements of one package.
const APART: [&str; 4] = ["/tests/", "/tests.rs", "/examples/", "/bench/speed.mjs"];
/// The name of this suite.
const SUITE: &str = "environment";

/// A file of the product that a programming language reads.
struct Source {
    path: String,
    /// Without its tests and comments, where it is Rust.
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether Cargo runs it, and not a user.
    fn is_build_script(&self) -> bool {
        self.path.ends_with("/build.rs")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources() -> Vec<Source> {
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(listed).args(PRODUCT).current_dir(root()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let languages = [".rs", ".py", ".js", ".mjs", ".ts"];
    let is_read = |path: &&str| {
        let is_apart = APART.iter().any(|part| path.contains(part));
        languages.iter().any(|end| path.ends_with(end)) && !is_apart && *path != TABLE
    };
    let read = |path: &str| {
        // A file that is deleted, and not yet committed, is listed still.
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        let mut source = Source { path: path.to_owned(), text };
        if source.is_rust() {
            source.text = without_tests_and_comments(&source.text);
        }
        Some(source)
    };
    let sources: Vec<_> = names.lines().filter(is_read).filter_map(read).collect();
    assert!(sources.len() > 500, "only {} files", sources.len());
    sources
}

/// Tests stand last in a file of Rust.
fn without_tests_and_comments(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn rows() -> impl Iterator<Item = &'static Row> {
    TOPICS.iter().flat_map(|topic| topic.rows)
}

/// The words of `text` that are made of a name's letters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

#[test]
fn the_table_has_every_variable_that_is_named() {
    let known: BTreeSet<&str> = rows().map(|row| row.variable.name()).collect();
    assert_eq!(known.len(), rows().count(), "a variable has two rows");
    let mut missing = BTreeSet::new();
    for source in sources() {
        let ours = words(&source.text).filter(|word| {
            let is_name = |letter: char| letter.is_ascii_uppercase() || letter == '_';
            word.len() > 9 && word.starts_with("POLYRANK_") && word.chars().all(is_name)
        });
        let unknown = ours.filter(|word| !known.contains(word));
        missing.extend(unknown.map(|word| format!("{word}, in {}", source.path)));
    }
    assert!(missing.is_empty(), "{TABLE} lacks {missing:#?}");
}

#[test]
fn everything_that_is_read_is_read_through_the_table() {
    let known: BTreeSet<&str> = rows().map(|row| row.variable.name()).collect();
    let mut offences = BTreeSet::new();
    for source in sources() {
        let asks = ["env::var(", "env::var_os", "env::vars"];
        if source.is_rust() && !source.is_build_script() && source.path != READER {
            offences.extend(
                asks.iter().filter(|ask| source.text.contains(**ask)).map(|ask| {
                    format!("{}: {ask}…: read it as `variable::NAME.text()`", source.path)
                }),
            );
        }
        let Source { path, text } = &source;
        for start in ["process.env.", "os.environ["] {
            for (at, _) in text.match_indices(start) {
                let rest = text[at + start.len()..].trim_start_matches(['"', '\'']);
                let name = words(rest).next().unwrap_or_default();
                // A name in small letters is a variable of the program.
                if name.starts_with(|first: char| first.is_ascii_uppercase())
                    && !known.contains(name)
                {
                    offences.insert(format!("{path}: {start}{name} is not in {TABLE}"));
                }
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

#[test]
fn every_variable_of_the_table_is_used() {
    let sources = sources();
    let is_used = |row: &Row| {
        let name = row.variable.name();
        sources.iter().any(|source| {
            // Rust takes the constant of the table; what is not Rust, and a build script, the name.
            let by_name = !source.is_rust() || source.is_build_script();
            let uses = if by_name { name.to_owned() } else { format!("variable::{name}") };
            source.text.match_indices(&uses).any(|(at, _)| {
                let after = source.text[at + uses.len()..].chars().next();
                after.is_none_or(|letter| !letter.is_ascii_alphanumeric() && letter != '_')
            })
        })
    };
    let unused: Vec<_> =
        rows().filter(|row| !is_used(row)).map(|row| row.variable.name()).collect();
    assert!(unused.is_empty(), "nothing uses {unused:?}: take their rows out of {TABLE}");
}

#[test]
fn the_page_says_what_the_table_says() {
    checked_in::assert_is_current("site/reference/environment.md", &page(), SUITE);
}

fn page() -> String {
    let mut page = format!(
        "<!-- Generated by `{}` from {TABLE}; do not edit. -->\n\n# Environment variables\n\n\
         Everything that polyrank reads from the environment, in every language; a page in a \
         browser has\nnone. A variable that is set to nothing is taken as one that is not set. \
         Libraries that polyrank\nloads (MPI, NCCL, the CUDA driver) read variables of their own \
         besides.\n",
        checked_in::command(SUITE)
    );
    for topic in TOPICS {
        write!(page, "\n## {}\n", topic.title).unwrap();
        for row in topic.rows {
            let Row { variable, meaning, values, unset, reader } = row;
            write!(
                page,
                "\n### `{variable}`\n\n{}\n\n- **Values:** {values}\n\
                 - **If it is not set:** {unset}\n- **Read by:** {reader}\n",
                meaning.trim()
            )
            .unwrap();
        }
    }
    page
}
