//! The house rules, held by tests that read the tree: sizes, openings, where `unsafe` may stand,
//! who may import whom, no machine's paths. One test per rule; each lists every offence with its
//! place.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod files;
mod floors;
mod functions;
mod imports;
mod rules;
mod unsafety;
mod words;

use files::{File, Language};

/// Fails with one line per offence and what to do about it.
fn expect_none(offences: Vec<String>, advice: &str) {
    let count = offences.len();
    assert!(offences.is_empty(), "{count} offences:\n{}\n{advice}", offences.join("\n"));
}

fn written() -> Vec<File> {
    files::tracked()
        .into_iter()
        .filter(|file| !file.is_generated() && !file.is_mistaken())
        .collect()
}

fn check(rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    written().iter().flat_map(rule).collect()
}

#[test]
fn the_tree_is_read() {
    let all = written();
    for language in [Language::Rust, Language::Idl, Language::JavaScript] {
        assert!(all.iter().any(|file| file.language() == language), "no {language:?} file");
    }
    assert!(all.iter().all(|file| !file.path.starts_with("target/")));
}

#[test]
fn files_are_short() {
    expect_none(check(files::too_long), "Split the file by what its parts know.");
}

#[test]
fn lines_fit_the_screen() {
    expect_none(check(files::too_wide), "Break the line; nothing is wider than 100 columns.");
}

#[test]
fn files_say_what_they_hold() {
    let advice = "Open the file with //! (Rust), a docstring (Python) or a comment (JavaScript): \
                  what it holds, and what it knows nothing of.";
    expect_none(check(files::opening), advice);
}

#[test]
fn functions_are_short() {
    expect_none(check(functions::too_long), "Take a step with a name of its own out of it.");
}

#[test]
fn unsafe_stands_only_where_the_design_allows() {
    expect_none(check(unsafety::misplaced), "Say it in safe Rust, or move it to such a module.");
}

#[test]
fn imports_go_one_way() {
    expect_none(check(imports::forbidden), "Pass what is needed as an argument or a trait.");
}

#[test]
fn rooms_of_core_import_only_what_stands_below_them() {
    let advice = "Move what both need to a room below, or pass it as an argument or a trait. A new \
                  room gets its line in floors.rs.";
    expect_none(check(floors::upward), advice);
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    expect_none(check(files::machine_paths), "Use a path inside the repository, or ask for one.");
}

#[test]
fn retired_words_stay_away() {
    let advice = "Use the word that words.rs gives in its place. A name that is retired is added \
                  there.";
    expect_none(check(words::retired), advice);
}
