//! What users of the crate can name, from the list that `cargo xtask public-api` writes.

use super::Declaration;

/// The types, traits, constants and functions of the list, in its order, each once.
pub(super) fn public(text: &str) -> Vec<Declaration> {
    let mut all: Vec<Declaration> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start_matches("#[non_exhaustive] ").trim_start_matches("#[must_use] ");
        let Some(item) = line.strip_prefix("pub ").filter(|item| is_of_ours(item)) else {
            continue;
        };
        let (owner, name) = place(item);
        let at = all.iter().position(|known| known.name == owner.unwrap_or(name));
        match (at, owner) {
            (Some(at), Some(_)) => add(&mut all[at], name, &short(item)),
            (None, Some(_)) => {}
            // Types are there under several paths; functions of one name may be several.
            (Some(_), None) if is_type(item) => {}
            (Some(at), None) => all[at].code.push_str(&format!("\n{}", with_path(item))),
            (None, None) => {
                let (name, code) = (name.to_owned(), with_path(item));
                all.push(Declaration { name, code, ..Declaration::default() });
            }
        }
    }
    all
}

/// Adds a method, a field or a variant, once.
fn add(of: &mut Declaration, name: &str, code: &str) {
    let code = code.trim_start_matches("const ").trim_start_matches("unsafe ");
    let code = code.trim_start_matches("fn ").to_owned();
    if !of.methods.iter().any(|(_, known)| *known == code) {
        of.code.push('\n');
        of.code.push_str(&code);
        of.methods.push((name.to_owned(), code));
    }
}

/// Whether it is neither a module nor a name from another crate's trait.
fn is_of_ours(item: &str) -> bool {
    let path = path_of(item);
    path.starts_with("polyrank::") && !item.starts_with("mod ") && !item.starts_with("use ")
}

fn is_type(item: &str) -> bool {
    let words = ["struct ", "enum ", "trait ", "type ", "unsafe trait "];
    words.iter().any(|word| item.starts_with(word))
}

/// `polyrank::Work::wait` of `fn polyrank::Work::wait(&self) -> bool`.
fn path_of(item: &str) -> &str {
    let start = item.find("polyrank::").unwrap_or(item.len());
    // What stands before it is no part of another type.
    if item[..start].contains(['(', '<']) {
        return "";
    }
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
    let path = &item[start..];
    let end = path.find(|letter| !is_letter(letter)).unwrap_or(path.len());
    path[..end].trim_end_matches(':')
}

/// The type that something belongs to, if it does, and its name.
fn place(item: &str) -> (Option<&str>, &str) {
    let start = item.find("polyrank::").unwrap_or(item.len());
    // Of `Scope<'_>::allreduce`, the type stands before its parameters.
    let whole = item[start..].split(['(', ' ']).next().unwrap_or_default();
    let mut parts = whole.rsplit("::");
    let name = parts.next().unwrap_or_default().trim_end_matches(':');
    let name = name.split('<').next().unwrap_or(name);
    let owner = parts.next().unwrap_or_default();
    let owner = owner.split('<').next().unwrap_or(owner);
    let is_type = owner.starts_with(|first: char| first.is_uppercase());
    (is_type.then_some(owner), name)
}

/// An item with its own path in the crate, without the modules in which other things stand.
fn with_path(item: &str) -> String {
    let path = path_of(item);
    let (words, rest) = item.split_once(path).unwrap_or((item, ""));
    format!("{words}{}{}", path.trim_start_matches("polyrank::"), short(rest))
}

/// An item without the modules in which things stand.
fn short(item: &str) -> String {
    let mut text = String::new();
    let mut word = String::new();
    let mut letters = item.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let is_path = letter == ':' && letters.peek() == Some(&':');
        let is_module = is_path && word.starts_with(|first: char| first.is_lowercase());
        if is_module {
            letters.next();
        } else {
            text.push_str(&word);
            text.push(letter);
            if is_path {
                text.extend(letters.next());
            }
        }
        word.clear();
    }
    text + &word
}
