//! The site's page of the command line says what `--help` says. `POLYRANK_WRITE=1` writes it.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

/// What there is to ask for help about.
const COMMANDS: [&[&str]; 10] = [
    &[],
    &["run"],
    &["store"],
    &["lighthouse"],
    &["bench"],
    &["bench", "store"],
    &["bench", "start"],
    &["predict"],
    &["trace"],
    &["top"],
];

#[test]
fn the_page_of_the_command_line_is_what_help_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../site/reference/command-line.md");
    let page = page();
    if std::env::var_os("POLYRANK_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = "POLYRANK_WRITE=1 cargo test -p polyrank-cli --test reference";
    assert!(there == page, "{} is stale; write it anew: {hint}", path.display());
}

fn page() -> String {
    let mut page = String::from(
        "# Command line\n\nThe command `polyrank` comes with the Python package, with the Node \
         package, and with\n`cargo install polyrank-cli`; it is the same program everywhere. What \
         follows is what its `--help` says.\n",
    );
    for words in COMMANDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
        // The width of the terminal must not matter.
        let output = command.args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
        assert!(output.status.success(), "{words:?}");
        let help = String::from_utf8(output.stdout).unwrap();
        let name = [&["polyrank"], words].concat().join(" ");
        let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        page.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n")));
    }
    page
}
