//! One page of the reference: its entries, in the order in which they are added.

use super::declared::{Declaration, Declared, signatures};
use super::name_of_page;
use super::prose::{anchor, cell, paragraphs};
use crate::languages::{javascript, python, rust};
use crate::model::{Api, Dictionary, Enum, ErrorKind, Interface, Member, Method};

/// The entries of a topic.
#[derive(Default)]
pub(super) struct Page {
    /// Heading and text of each.
    entries: Vec<(String, String)>,
}

impl Page {
    /// Whether nothing of the topic is built.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The headings of the entries.
    pub(super) fn names(&self) -> Vec<String> {
        self.entries.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The whole page.
    pub(super) fn text(&self, stamp: &str, title: &str) -> String {
        // By itself, a title would take the anchor of a class that has its name.
        let mut text = format!("<!-- {stamp} -->\n\n# {title} {{#top}}\n");
        for (name, entry) in &self.entries {
            text.push_str(&format!("\n## `{name}` {{#{}}}\n\n{}\n", anchor(name), entry.trim()));
        }
        text
    }

    /// A free function.
    pub(super) fn function(&mut self, api: &Api, declared: &Declared, function: &Method) {
        let entry = callable(api, declared, None, function);
        self.entries.push((function.name.clone(), entry));
    }

    /// A class: what it is, how it is made, and its attributes.
    pub(super) fn class(&mut self, api: &Api, declared: &Declared, class: &Interface) {
        let mut text = format!("{}\n", paragraphs(&class.doc));
        if let Some(base) = &class.inherits {
            let known = api.interfaces.iter().find(|known| known.name == *base);
            let page = known.map(|known| format!("./{}", name_of_page(&known.source)));
            let page = page.unwrap_or_default();
            text.push_str(&format!("\nA [`{base}`]({page}#{}).\n", anchor(base)));
        }
        if let Some(constructor) = &class.constructor {
            text.push_str(&forms(api, declared, Some(class), constructor));
        }
        if !class.attributes.is_empty() {
            text.push_str("\n| attribute | | |\n| --- | --- | --- |\n");
        }
        for attribute in &class.attributes {
            let (name, ty, doc) = (&attribute.name, &attribute.ty, cell(&attribute.doc));
            text.push_str(&format!("| `{name}` | `{}` | {doc} |\n", cell(&ty.to_string())));
        }
        self.entries.push((class.name.clone(), text));
    }

    /// A method of a class.
    pub(super) fn method(
        &mut self,
        api: &Api,
        declared: &Declared,
        (class, method): (&Interface, &Method),
    ) {
        let entry = callable(api, declared, Some(class), method);
        self.entries.push((format!("{}.{}", class.name, method.name), entry));
    }

    /// Options, or a result with several parts.
    pub(super) fn dictionary(&mut self, known: &Dictionary) {
        let members = table(known.members.iter(), "member");
        self.entries.push((known.name.clone(), format!("{}\n{members}", paragraphs(&known.doc))));
    }

    /// A set of strings.
    pub(super) fn enumeration(&mut self, known: &Enum) {
        let mut text = format!("{}\n\n| value | |\n| --- | --- |\n", paragraphs(&known.doc));
        for value in &known.values {
            text.push_str(&format!("| `{}` | {} |\n", value.value, cell(&value.doc)));
        }
        self.entries.push((known.name.clone(), text));
    }

    /// A kind of error.
    pub(super) fn error(&mut self, api: &Api, error: &ErrorKind) {
        let rust = error.common.rust.as_ref().unwrap_or(&error.name);
        let class = python::exception_class(api, &error.name);
        let mut text = format!("{}\n", paragraphs(&error.doc));
        text.push_str(&format!(
            "\nRust: `Error::{rust}`. Python and JavaScript: `{class}`{}.\n",
            match &error.parent {
                Some(parent) => format!(", a `{}`", python::exception_class(api, parent)),
                None => String::new(),
            }
        ));
        text.push_str(&format!("\nMessage: `{}`\n", error.message));
        text.push_str(&table(error.fields.iter(), "field"));
        self.entries.push((class, text));
    }
}

/// The page of element types and reduction operators.
pub(super) fn values(api: &Api, stamp: &str) -> String {
    let mut text = format!("<!-- {stamp} -->\n\n# Element types and reduction operators\n");
    text.push_str(&format!("\n## DType\n\n{}\n", paragraphs(&api.dtype_doc)));
    text.push_str("\n| name | bytes | class | |\n| --- | --- | --- | --- |\n");
    for dtype in &api.dtypes {
        let (name, bytes, class) = (&dtype.name, dtype.size_bytes, &dtype.class);
        text.push_str(&format!("| `{name}` | {bytes} | {class} | {} |\n", cell(&dtype.doc)));
    }
    text.push_str(&format!("\n## ReduceOp\n\n{}\n", paragraphs(&api.reduce_op_doc)));
    let names: Vec<String> = api.dtypes.iter().map(|dtype| format!("`{}`", dtype.name)).collect();
    let lines = "| --- ".repeat(names.len() + 2);
    text.push_str(&format!("\n| operator | | {} |\n{lines}|\n", names.join(" | ")));
    for op in &api.reduce_ops {
        let marks = api.dtypes.iter().map(|it| if op.dtypes.contains(&it.name) { "✓" } else { "" });
        let marks: Vec<&str> = marks.collect();
        let row = format!("| `{}` | {} | {} |\n", op.name, cell(&op.doc), marks.join(" | "));
        text.push_str(&row);
    }
    text
}

/// What a call does, its forms in every language, and the errors that it can end with.
fn callable(api: &Api, declared: &Declared, class: Option<&Interface>, method: &Method) -> String {
    let mut text = format!("{}\n", paragraphs(&method.doc));
    text.push_str(&forms(api, declared, class, method));
    let mut aliases: Vec<&str> = method.common.aliases.iter().map(String::as_str).collect();
    if class.is_none() {
        // What a language calls it, unless it is a method of something else there.
        let spelt = [&method.common.javascript, &method.common.rust].into_iter().flatten();
        let functions = spelt.filter(|name| !name.starts_with(|it: char| it.is_uppercase()));
        let functions = functions.map(|name| name.rsplit("::").next().unwrap_or(name));
        aliases.extend(functions.filter(|name| *name != method.name));
    }
    let aliases: Vec<String> = aliases.iter().map(|it| format!("`{it}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("\nAlso called {}.\n", aliases.join(", ")));
    }
    let raised = method.common.throws.iter().map(|kind| {
        let class = python::exception_class(api, kind);
        let known = api.errors.iter().find(|known| known.name == *kind);
        let page = known.map(|known| name_of_page(&known.source)).unwrap_or_default();
        format!("[`{class}`](./{page}#{})", anchor(&class))
    });
    let raised: Vec<String> = raised.collect();
    if !raised.is_empty() {
        text.push_str(&format!("\nErrors: {}.\n", raised.join(", ")));
    }
    if !method.common.backends.is_empty() {
        text.push_str(&format!("\nBackends: {}.\n", method.common.backends.join(", ")));
    }
    text
}

/// The forms of a call, a tab for each language that has it.
fn forms(api: &Api, declared: &Declared, class: Option<&Interface>, method: &Method) -> String {
    let mut script = javascript::signatures(api, class, method);
    if script.is_empty() {
        let (class, name) = javascript::names(class, method);
        script = by_hand(&declared.typescript, class, &name, "#");
    }
    let mut crate_has = rust::signatures(api, class, method);
    if crate_has.is_empty() {
        let spelt = class.map(|class| class.common.rust.as_ref().unwrap_or(&class.name).as_str());
        let name = method.common.rust.as_ref().unwrap_or(&method.name);
        // It may be elsewhere: `ProcessGroup::rank`, `rendezvous::rendezvous`.
        let (spelt, name) = match name.rsplit_once("::") {
            Some((owner, name)) => (Some(owner).filter(|it| is_type(it)), name),
            None => (spelt, name.as_str()),
        };
        crate_has = by_hand(&declared.rust, spelt, name, "");
    }
    let tabs = [
        ("python", "Python", python::signatures(api, class, method)),
        ("ts", "JavaScript", script),
        ("rust", "Rust", crate_has),
    ];
    let mut text = String::new();
    for (language, title, forms) in tabs.into_iter().filter(|(_, _, forms)| !forms.is_empty()) {
        text.push_str(&format!("\n```{language} [{title}]\n{}\n```\n", forms.join("\n")));
    }
    if text.is_empty() { text } else { format!("\n::: code-group\n{text}\n:::\n") }
}

fn is_type(path: &str) -> bool {
    path.starts_with(|letter: char| letter.is_uppercase())
}

/// The forms of a call that are declared by hand; of a method with its class before `link`, where
/// the declaration does not name that itself.
fn by_hand(declared: &[Declaration], class: Option<&str>, name: &str, link: &str) -> Vec<String> {
    let forms = signatures(declared, class, name).into_iter().map(|form| {
        let form = form.trim_start_matches("function ").trim_start_matches("fn ");
        let form = form.trim_end_matches(';');
        match class {
            Some(class) if !link.is_empty() => match form.strip_prefix("static ") {
                Some(form) => format!("{class}.{form}"),
                None => format!("{class}{link}{form}"),
            },
            _ => form.to_owned(),
        }
    });
    forms.collect()
}

fn table<'a>(members: impl Iterator<Item = &'a Member>, what: &str) -> String {
    let mut text = String::new();
    for member in members {
        if text.is_empty() {
            text = format!("\n| {what} | type | default | |\n| --- | --- | --- | --- |\n");
        }
        let default = member.default.as_ref();
        let default = default.map_or(String::new(), |value| format!("`{value}`"));
        let (name, ty) = (&member.name, cell(&member.ty.to_string()));
        text.push_str(&format!("| `{name}` | `{ty}` | {default} | {} |\n", cell(&member.doc)));
    }
    text
}
