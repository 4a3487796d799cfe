//! The exports of a file of TypeScript declarations, written in the usual layout.

use super::{Declaration, depth, on_one_line};

/// What the text exports, in its order.
pub(super) fn exported(text: &str) -> Vec<Declaration> {
    let mut all = Vec::new();
    for item in items(text, "") {
        let Some(code) = item.code.strip_prefix("export ") else { continue };
        let Some(name) = name_of(code) else { continue };
        let has_members = code.starts_with("class ") || code.starts_with("interface ");
        let body = code.split_once("{\n").map_or("", |(_, body)| body);
        let members = if has_members { items(body, "  ") } else { Vec::new() };
        let methods = members.iter().filter_map(|member| {
            let code = on_one_line(&bare(&member.code));
            let code = code.trim_end_matches(';');
            let word = code.trim_start_matches("static ").trim_start_matches("readonly ");
            let name: String = word.chars().take_while(|it| it.is_alphanumeric()).collect();
            (!name.is_empty()).then(|| (name, code.to_owned()))
        });
        let doc = item.doc.clone();
        all.push(Declaration { methods: methods.collect(), name, doc, code: bare(code) });
    }
    all
}

/// An item with the comment before it.
#[derive(Default)]
struct Item {
    doc: String,
    code: String,
}

/// The items that begin with this indent.
fn items(text: &str, indent: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut item = Item::default();
    let (mut deep, mut in_comment) = (0, false);
    for line in text.lines() {
        let is_comment = in_comment || line.trim_start().starts_with("/*");
        if is_comment {
            in_comment = !line.contains("*/");
        }
        if item.code.is_empty() {
            let Some(line) = line.strip_prefix(indent) else { continue };
            if is_comment {
                let first = line.starts_with("/*");
                let said = line.trim().trim_start_matches("/**").trim_end_matches("*/");
                let said = said.trim().trim_start_matches('*').trim();
                item.doc = if first { said.to_owned() } else { format!("{}\n{said}", item.doc) };
                continue;
            }
            if line.starts_with([' ', '}']) || line.is_empty() {
                item = Item::default();
                continue;
            }
        }
        item.code.push_str(line.strip_prefix(indent).unwrap_or(line));
        item.code.push('\n');
        deep += if is_comment { 0 } else { depth(line) };
        if deep <= 0 && !is_comment && line.ends_with([';', '}']) {
            items.push(Item { doc: described(&item.doc), code: item.code.trim_end().to_owned() });
            (item, deep) = (Item::default(), 0);
        }
    }
    items
}

/// A doc comment without its tags and links, which are TypeScript's.
fn described(doc: &str) -> String {
    let end = doc.find("\n@").unwrap_or(doc.len());
    let doc = if doc.starts_with('@') { "" } else { doc[..end].trim() };
    doc.split("{@link ").enumerate().fold(String::new(), |text, (position, part)| {
        match (position, part.split_once('}')) {
            (1.., Some((name, rest))) => format!("{text}`{name}`{rest}"),
            _ => text + part,
        }
    })
}

/// The name in `class View<A> {`.
fn name_of(code: &str) -> Option<String> {
    let words = ["class ", "interface ", "function ", "const ", "type "];
    let rest = words.iter().find_map(|word| code.strip_prefix(word))?;
    let is_letter = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    Some(rest.chars().take_while(is_letter).collect())
}

/// Code without comments, and without what nobody may call.
fn bare(code: &str) -> String {
    let mut in_comment = false;
    let mut lines = Vec::new();
    for line in code.lines() {
        let is_comment = in_comment || line.trim_start().starts_with("/*");
        if is_comment {
            in_comment = !line.contains("*/");
            continue;
        }
        let is_private = line.contains("private constructor") || line.contains("[Symbol.");
        if !is_private && !line.contains("protected constructor") && !line.is_empty() {
            lines.push(line);
        }
    }
    lines.join("\n")
}
