//! The site's page of features: each definition, its name in every language, and the test that
//! exercises it.

use super::{Definition, Kind};

/// The page.
pub(super) fn text(all: &[Definition], stamp: &str) -> String {
    let mut text = format!("<!-- {stamp} -->\n\n# Features\n\n{PREFACE}");
    let mut topic = "";
    for definition in all {
        if definition.topic != topic {
            topic = &definition.topic;
            let title = topic.replace('_', " ");
            text.push_str(&format!("\n## {}\n\n{HEAD}", capitalised(&title)));
        }
        text.push_str(&row(definition));
    }
    text
}

const PREFACE: &str = "\
Everything that the IDL defines, what each language calls it, and a test that exercises it; – is
where a language has no such thing. A test compares this page with what the packages have: the
crate's public items, and the packages for Python, Node and browsers as they are when they run.\n";

const HEAD: &str = "\
| definition | Rust | Python | Node | browser | test |
| --- | --- | --- | --- | --- | --- |\n";

fn row(definition: &Definition) -> String {
    let Definition { name, kind, rust, python, node, browser, test, .. } = definition;
    let in_language = |spelt: &Option<String>| match spelt {
        Some(_) if matches!(kind, Kind::Texts) => "a text".to_owned(),
        Some(_) if matches!(kind, Kind::Text) => {
            format!("`\"{}\"`", name.rsplit('.').next().unwrap_or(name))
        }
        Some(spelt) => format!("`{spelt}`"),
        None => "–".to_owned(),
    };
    let in_rust = rust.as_ref().map_or("–".to_owned(), |spelt| format!("`{spelt}`"));
    let (node, browser) = (in_language(node), in_language(browser));
    let python = match (kind, python) {
        (Kind::Result, Some(_)) => "`dict`".to_owned(),
        (Kind::Part, Some(spelt)) => {
            format!("`[\"{}\"]`", spelt.rsplit('.').next().unwrap_or(spelt))
        }
        _ => in_language(python),
    };
    let test = test.as_ref().map_or("–".to_owned(), |test| shown(test));
    format!("| `{name}` | {in_rust} | {python} | {node} | {browser} | {test} |\n")
}

/// A test, with its file as a word of code.
fn shown(test: &str) -> String {
    match test.split_once(": ") {
        Some((file, name)) => {
            let name = name.replace('|', "\\|").replace('<', "\\<").replace("{{", "{ {");
            format!("`{file}`: {name}")
        }
        None => format!("`{test}`"),
    }
}

fn capitalised(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
