//! The view of the error enum.

use askama::Template;

use super::doc_comment;
use crate::languages::plain::number;
use crate::languages::stamp;
use crate::model::{Api, ErrorKind, Type};

#[derive(Template)]
#[template(path = "rust/error.rs.jinja", escape = "none")]
pub(super) struct Errors {
    stamp: String,
    errors: Vec<Kind>,
    accessors: Vec<Accessor>,
    /// The pattern of those that are about a collective.
    collectives: String,
}

struct Kind {
    doc: String,
    kind: String,
    variant: String,
    /// A Rust string literal.
    message: String,
    fields: Vec<Field>,
    /// Whether it carries what code of a language threw.
    carries: bool,
    /// A pattern that fits every error of this kind.
    any: String,
    /// As `any`, with the fields by their names.
    all: String,
}

struct Field {
    doc: String,
    name: String,
    ty: &'static str,
    /// The name, and the value as a field of any kind.
    pair: String,
}

/// A method that returns one field of the kinds that have it.
struct Accessor {
    doc: &'static str,
    name: &'static str,
    ty: &'static str,
    pattern: String,
    value: &'static str,
}

pub(super) fn errors(api: &Api) -> Errors {
    let file = api.errors.first().map_or("idl/*.webidl", |error| error.source.file.as_str());
    let accessors = [
        ("/// The rank that the error is about, if it is about one.", "rank", "u32", "*rank"),
        ("/// The collective that failed, if one did.", "collective", "&str", "collective"),
        (
            "/// The sequence number of the operation that failed, if one did.",
            "sequence",
            "u64",
            "*sequence",
        ),
        (
            "/// The ranks that did not come, if a limit passed without them.",
            "missing_ranks",
            "&[u32]",
            "missing_ranks",
        ),
    ];
    let pattern = |name| {
        let having =
            api.errors.iter().filter(|error| error.fields.iter().any(|it| it.name == name));
        let patterns: Vec<String> =
            having.map(|error| format!("Error::{} {{ {name}, .. }}", variant(error))).collect();
        patterns.join(" | ")
    };
    let accessor = |(doc, name, ty, value)| {
        let pattern = pattern(name);
        Accessor { doc, name, ty, pattern, value }
    };
    Errors {
        stamp: stamp(file),
        errors: api.errors.iter().map(kind).collect(),
        accessors: accessors
            .into_iter()
            .map(accessor)
            .filter(|it| !it.pattern.is_empty())
            .collect(),
        collectives: pattern("collective"),
    }
}

fn kind(error: &ErrorKind) -> Kind {
    let fields = error.fields.iter().map(|field| Field {
        doc: doc_comment(&field.doc),
        name: field.name.clone(),
        ty: field_type(&field.ty),
        pair: format!("{:?}, {}", field.name, field_value(&field.name, &field.ty)),
    });
    let variant = variant(error);
    let mut names: Vec<&str> = error.fields.iter().map(|field| field.name.as_str()).collect();
    if error.carries {
        names.push("..");
    }
    let (any, all) = match names.is_empty() {
        true => ("", String::new()),
        false => (" { .. }", format!(" {{ {} }}", names.join(", "))),
    };
    Kind {
        doc: doc_comment(&error.doc),
        kind: variant.clone(),
        message: format!("{:?}", error.message),
        fields: fields.collect(),
        carries: error.carries,
        any: format!("Error::{variant}{any}"),
        all: format!("Error::{variant}{all}"),
        variant,
    }
}

fn variant(error: &ErrorKind) -> String {
    error.common.rust.clone().unwrap_or_else(|| error.name.clone())
}

fn field_type(ty: &Type) -> &'static str {
    match ty {
        // Errors are cloned often, and returned by value: they stay small.
        Type::Sequence(item) if **item == Type::UnsignedLong => "std::sync::Arc<Vec<u32>>",
        // Anything but a number is shown in words.
        other => number(other).unwrap_or("String"),
    }
}

fn field_value(name: &str, ty: &Type) -> String {
    match field_type(ty) {
        "u64" => format!("ErrorField::Number(*{name})"),
        "u32" | "bool" => format!("ErrorField::Number(u64::from(*{name}))"),
        "std::sync::Arc<Vec<u32>>" => {
            format!("ErrorField::Numbers({name}.iter().copied().map(u64::from).collect())")
        }
        "String" => format!("ErrorField::Text({name}.clone())"),
        // Signed numbers and fractions are shown in words.
        _ => format!("ErrorField::Text({name}.to_string())"),
    }
}
