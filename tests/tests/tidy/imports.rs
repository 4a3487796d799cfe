//! Which room imports which, read from the `use` lines and the paths in the code. Code for tests is
//! free: a suite may mount a concrete transport.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::files::{File, Language};
use crate::rules::{ENVIRONMENT, ROOMS, parse, starts_with_path};

pub(crate) fn forbidden(file: &File) -> Vec<String> {
    let rooms: Vec<_> =
        ROOMS.iter().filter(|room| starts_with_path(&file.path, room.place)).collect();
    if file.language() != Language::Rust || rooms.is_empty() || is_test(&file.path) {
        return Vec::new();
    }
    let mut offences = Vec::new();
    for (path, line) in imports(file) {
        for room in &rooms {
            let is_in = |place: &str| path == place || path.starts_with(&format!("{place}::"));
            if room.forbidden.iter().any(|place| is_in(place)) && !is_in(ENVIRONMENT) {
                let (place, why) = (&file.path, room.why);
                offences.push(format!("{place}:{line}: uses {path}, but {why}"));
            }
        }
    }
    offences.dedup();
    offences
}

/// A suite, or a file that is a module of one.
pub(crate) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Every path that the file names, from the crate's root (`crate::…`) or from another crate's.
pub(crate) fn imports(file: &File) -> Vec<(String, usize)> {
    let tree = parse(file);
    let mut uses =
        UseLines { module: module(&file.path), names: BTreeMap::new(), found: Vec::new() };
    uses.visit_file(&tree);
    let UseLines { module, names, found } = uses;
    let mut paths = Paths { module, names, found };
    paths.visit_file(&tree);
    paths.found
}

/// The module that a file is, as a path from the crate's root.
fn module(path: &str) -> Vec<String> {
    let inside = path.split_once("src/").map_or(path, |(_, inside)| inside);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let parts = inside.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
    std::iter::once("crate").chain(parts).map(str::to_owned).collect()
}

/// Turns `self::` and `super::` into a path from the root.
fn absolute(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut at = module.to_vec();
    let mut rest = path.as_slice();
    if !matches!(rest.first().map(String::as_str), Some("self" | "super")) {
        return path;
    }
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => break,
        }
        rest = after;
    }
    at.extend_from_slice(rest);
    at
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        meta => meta.path().is_ident("test"),
    })
}

/// First pass: the `use` lines, and what each name means afterwards.
struct UseLines {
    module: Vec<String>,
    names: BTreeMap<String, Vec<String>>,
    found: Vec<(String, usize)>,
}

impl UseLines {
    fn add(&mut self, name: String, path: Vec<String>, at: Span) {
        let path = absolute(&self.module, path);
        self.found.push((path.join("::"), at.start().line));
        self.names.insert(name, path);
    }

    fn walk(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.walk(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.add(last, before.to_vec(), name.ident.span());
            }
            syn::UseTree::Name(name) => {
                self.add(name.ident.to_string(), with(&name.ident), name.ident.span());
            }
            syn::UseTree::Rename(name) => {
                self.add(name.rename.to_string(), with(&name.ident), name.ident.span());
            }
            syn::UseTree::Glob(star) => {
                self.add("*".to_owned(), before.to_vec(), star.star_token.spans[0]);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.walk(item, before));
            }
        }
    }
}

impl<'tree> Visit<'tree> for UseLines {
    fn visit_item_use(&mut self, item: &'tree syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.walk(&item.tree, &[]);
        }
    }

    fn visit_item_mod(&mut self, item: &'tree syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }
}

/// Second pass: paths in the code, their first name read as the `use` lines say.
struct Paths {
    module: Vec<String>,
    names: BTreeMap<String, Vec<String>>,
    found: Vec<(String, usize)>,
}

impl<'tree> Visit<'tree> for Paths {
    fn visit_path(&mut self, path: &'tree syn::Path) {
        let mut names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            if let Some(known) = self.names.get(&names[0]) {
                names.splice(0..1, known.iter().cloned());
            }
            let line = path.segments[0].ident.span().start().line;
            self.found.push((absolute(&self.module, names).join("::"), line));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'tree syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'tree syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<String> {
        let offences = forbidden(&File::new(path, text));
        offences.iter().map(|offence| offence.split(", but").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn use_lines_and_paths_are_read_from_the_root() {
        let text = "//! A.\nuse std::{fmt, time::{Duration, Instant}};\n\
                    use super::super::transport;\nuse crate::executor as e;\n\
                    fn f() { e::go(); super::peers::x(); std::fs::read(); }\n";
        let place = "core/src/schedule/ring.rs";
        let expected = [
            "2: uses std::time::Instant",
            "3: uses crate::transport",
            "4: uses crate::executor",
            "5: uses crate::executor::go",
            "5: uses std::fs::read",
        ];
        assert_eq!(lines(place, text), expected.map(|line| format!("{place}:{line}")));
    }

    #[test]
    fn tests_are_free_and_so_are_rooms_without_a_rule() {
        let text = "//! A.\n#[cfg(test)]\nmod tests {\n    use crate::transport::tcp;\n}\n";
        assert!(lines("core/src/executor/mod.rs", text).is_empty());
        let text = "//! A.\nuse crate::transport::tcp;\n";
        assert!(lines("core/src/executor/tests.rs", text).is_empty());
        assert!(lines("core/src/lib.rs", text).is_empty());
        assert_eq!(lines("core/src/executor/mod.rs", text).len(), 1);
        assert_eq!(
            lines("core/src/executor/mod.rs", "//! A.\nuse crate::transport::Rank;\n").len(),
            0
        );
    }

    #[test]
    fn the_generator_may_use_itself_but_not_the_core() {
        let text = "//! A.\nuse polyrank_codegen::x;\nuse polyrank::Tensor;\n";
        let place = "codegen/xtask/src/main.rs";
        assert_eq!(lines(place, text), [format!("{place}:3: uses polyrank::Tensor")]);
    }
}
