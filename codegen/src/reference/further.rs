//! The page of what languages have beside the IDL: what one of them alone has a word for, and what
//! each writes in a form of its own.

use std::collections::HashSet;

use super::declared::{Declaration, Declared};
use super::prose::{anchors, paragraphs};

/// The page, and the names on it: all that is declared and stands on no other page, of which
/// `known` are the names.
pub(super) fn page(declared: &Declared, known: &[String], stamp: &str) -> (String, Vec<String>) {
    let known: HashSet<String> = known.iter().map(|name| key(name)).collect();
    let languages = [
        ("python", "Python", &declared.python),
        ("ts", "JavaScript", &declared.typescript),
        ("rust", "Rust", &declared.rust),
    ];
    let mut keys: Vec<String> = Vec::new();
    for (_, _, all) in languages {
        for name in all.iter().map(|it| key(&it.name)).filter(|key| !known.contains(key)) {
            if !keys.contains(&name) {
                keys.push(name);
            }
        }
    }
    let mut text = format!("<!-- {stamp} -->\n\n# {} {{#top}}\n\n{ABOUT}", super::FURTHER.1);
    let mut names: Vec<String> = Vec::new();
    for wanted in keys {
        let has = |all: &'_ Vec<Declaration>| {
            all.iter().filter(|it| key(&it.name) == wanted).cloned().collect::<Vec<_>>()
        };
        let tabs = languages.map(|(tag, title, all)| (tag, title, has(all)));
        let all = || tabs.iter().flat_map(|(_, _, found)| found);
        let Some(name) = all().next().map(|first| first.name.clone()) else { continue };
        let doc = all().find(|it| !it.doc.is_empty()).map_or("", |it| &it.doc);
        names.push(name);
        let at = anchors(&names).pop().unwrap_or_default();
        let name = names.last().map_or("", |name| name);
        text.push_str(&format!("\n## `{name}` {{#{at}}}\n"));
        if !doc.is_empty() {
            text.push_str(&format!("\n{}\n", paragraphs(doc)));
        }
        text.push_str("\n::: code-group\n");
        for (tag, title, found) in tabs.iter().filter(|(_, _, found)| !found.is_empty()) {
            let code: Vec<&str> = found.iter().map(|it| &*it.code).collect();
            text.push_str(&format!("\n```{tag} [{title}]\n{}\n```\n", code.join("\n")));
        }
        text.push_str("\n:::\n");
    }
    (text, names)
}

const ABOUT: &str = "\
What one language alone has, and what each language writes in its own form. Types of\n\
TypeScript are those of both npm packages. What a type of Rust can do is listed under it.\n";

/// What names of several languages have in common: `premul_sum`, `premulSum`.
pub(super) fn key(name: &str) -> String {
    let is_constant = !name.contains(|letter: char| letter.is_lowercase());
    let is_class = name.starts_with(|first: char| first.is_uppercase());
    match (is_constant, is_class) {
        (true, _) => name.to_owned(),
        (_, true) => format!("class {}", name.to_lowercase().replace('_', "")),
        _ => name.to_lowercase().replace('_', ""),
    }
}
