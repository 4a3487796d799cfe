//! The files of the repository, and the rules that need no parser. Knows no language's grammar.

use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_LINES: usize = 600;
const MAX_COLUMNS: usize = 100;

/// What a file is written in, as far as a rule asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    JavaScript,
    Idl,
    Toml,
    /// Prose, locks, data: only the rules for any text.
    Other,
}

/// One file, by its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn language(&self) -> Language {
        match Path::new(&self.path).extension().and_then(|extension| extension.to_str()) {
            Some("rs") => Language::Rust,
            Some("py") => Language::Python,
            Some("mjs" | "js" | "ts" | "vue") => Language::JavaScript,
            Some("webidl") => Language::Idl,
            Some("toml") => Language::Toml,
            _ => Language::Other,
        }
    }

    pub(crate) fn is_generated(&self) -> bool {
        let ends = [".pyi", "/index.d.ts"];
        self.path.contains("/generated/") || ends.iter().any(|end| self.path.ends_with(end))
    }

    /// A file that is wrong on purpose: input of a test that expects the message about it.
    pub(crate) fn is_mistaken(&self) -> bool {
        self.path.contains("/tests/mistakes/")
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the tests lie in it")
}

/// Every text file that is tracked, or would be after `git add`.
pub(crate) fn tracked() -> Vec<File> {
    let words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(words).current_dir(root()).output().expect("git runs");
    assert!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let read = |path: &str| {
        // A file that is deleted but not yet committed, and what is not text, has no rules.
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    paths.into_iter().filter_map(read).collect()
}

pub(crate) fn too_long(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if file.language() == Language::Other || lines <= MAX_LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, {MAX_LINES} are allowed", file.path)]
}

pub(crate) fn too_wide(file: &File) -> Vec<String> {
    if file.language() == Language::Other {
        return Vec::new();
    }
    // A string of the IDL cannot be broken.
    let may_be_wide = |line: &str| file.language() == Language::Idl && line.contains('"');
    let lines = file.text.lines().enumerate().filter(|(_, line)| !may_be_wide(line));
    let columns = lines.map(|(at, line)| (at, line.chars().count()));
    let wide = columns.filter(|(_, columns)| *columns > MAX_COLUMNS);
    wide.map(|(at, columns)| format!("{}:{}: {columns} columns", file.path, at + 1)).collect()
}

pub(crate) fn opening(file: &File) -> Vec<String> {
    let first = match file.text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!/") => rest,
        _ => &file.text,
    };
    let (wanted, is_there) = match file.language() {
        Language::Rust => ("//!", first.starts_with("//! ")),
        Language::Python => ("a docstring", first.starts_with("\"\"\"")),
        Language::JavaScript => {
            // A component opens with its script.
            let script = first.strip_prefix("<script setup lang=\"ts\">\n").unwrap_or(first);
            ("a comment", script.starts_with("// ") || script.starts_with("/**"))
        }
        _ => return Vec::new(),
    };
    // An empty `__init__.py` holds nothing to speak of.
    if is_there || file.text.trim().is_empty() && file.path.ends_with("__init__.py") {
        return Vec::new();
    }
    vec![format!("{}:1: does not open with {wanted}", file.path)]
}

pub(crate) fn machine_paths(file: &File) -> Vec<String> {
    // Written in two parts, so that this file does not name what it forbids.
    let places = ["work", "root", "home", "Users"].map(|name| format!("/{name}/"));
    let mut offences = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for place in &places {
            let starts_there = |(index, _): (usize, &str)| {
                let before = line[..index].chars().next_back();
                before.is_none_or(|letter| !letter.is_alphanumeric() && !"._-/~*}".contains(letter))
            };
            if line.match_indices(place.as_str()).any(starts_there) {
                offences.push(format!("{}:{}: names {place}", file.path, at + 1));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(too_long(&File::new("a.rs", &"x\n".repeat(600))).len(), 0);
        assert_eq!(too_long(&File::new("a.rs", &"x\n".repeat(601))).len(), 1);
        assert_eq!(too_long(&File::new("a.csv", &"x\n".repeat(601))).len(), 0);
        let lines = format!("{}\n{}é\n", "x".repeat(100), "x".repeat(100));
        assert_eq!(too_wide(&File::new("a.py", &lines)), ["a.py:2: 101 columns"]);
    }

    #[test]
    fn openings() {
        assert_eq!(opening(&File::new("a.rs", "//! Holds.\n")).len(), 0);
        assert_eq!(opening(&File::new("a.rs", "use x;\n//! Holds.\n")).len(), 1);
        assert_eq!(
            opening(&File::new("a.py", "#!/usr/bin/env python3\n\"\"\"Holds.\"\"\"")).len(),
            0
        );
        assert_eq!(opening(&File::new("a.py", "import x\n")).len(), 1);
        assert_eq!(opening(&File::new("a.toml", "x = 1\n")).len(), 0);
        assert_eq!(opening(&File::new("a.ts", "// Holds.\n")).len(), 0);
        assert_eq!(opening(&File::new("a.mjs", "import x;\n")).len(), 1);
        let script = "<script setup lang=\"ts\">\n// Holds.\n";
        assert_eq!(opening(&File::new("a.vue", script)).len(), 0);
    }

    #[test]
    fn machines() {
        let found = |line: &str| !machine_paths(&File::new("a.md", line)).is_empty();
        let home = ["/ho", "me/me/x"].concat();
        assert!(found(&format!("see {home}")) && found(&home) && found(&format!("\"{home}\"")));
        assert!(!found(&["core/src", &home].concat()) && !found(&["$DIR/x", &home].concat()));
    }
}
