//! The exception classes, and the fields of each kind of error.

use askama::Template;

use super::spelling::{exception, lines, name};
use crate::languages::stamp;
use crate::model::{Api, ErrorKind, Type};

/// `errors.rs`.
#[derive(Template)]
#[template(path = "python/errors.rs.jinja", escape = "none")]
pub(super) struct Errors {
    stamp: String,
    errors: Vec<Error>,
}

struct Error {
    variant: String,
    python: String,
    parent: String,
    bases: String,
    doc: String,
    /// The Rust pattern: `Error::QueueEmpty`.
    pattern: String,
    /// The fields: `("rank", Field::Number(u64::from(*rank)))`.
    fields: String,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> Errors {
    let errors = api.errors.iter().map(|error| view_of(api, error)).collect();
    Errors { stamp: stamp("idl/errors.webidl"), errors }
}

/// `_error_fields.py`.
#[derive(Template)]
#[template(path = "python/error_fields.py.jinja", escape = "none")]
pub(super) struct LackedFields {
    stamp: String,
    /// The class, and the names in a tuple.
    lacked: Vec<(String, String)>,
}

/// The fields that cases of an error lack.
pub(super) fn lacked_fields(api: &Api) -> LackedFields {
    let of_error = |error: &ErrorKind| {
        let fields = error.fields.iter().filter(|it| it.name != "message");
        let names: Vec<String> = fields
            .filter(|field| api.is_lacked_by_case(error, &field.name))
            .map(|field| format!("\"{}\",", name(&field.name, &field.common)))
            .collect();
        (!names.is_empty()).then(|| (exception(api, &error.name), names.join(" ")))
    };
    let lacked = api.errors.iter().filter_map(of_error).collect();
    LackedFields { stamp: stamp("idl/errors.webidl"), lacked }
}

/// The name of the core's variant, which is the kind's name in the table.
fn variant(error: &ErrorKind) -> &str {
    error.common.rust.as_deref().unwrap_or(&error.name)
}

fn view_of(api: &Api, error: &ErrorKind) -> Error {
    let kind = variant(error).to_owned();
    let parent = error.parent.as_ref().and_then(|parent| {
        let parent = api.errors.iter().find(|known| known.name == *parent)?;
        Some(format!("Some(\"{}\")", variant(parent)))
    });
    let bases: Vec<String> = error.bases.iter().map(|base| format!("\"{base}\"")).collect();
    let mut names: Vec<&str> = error.fields.iter().map(|field| field.name.as_str()).collect();
    if error.carries {
        names.push("..");
    }
    let pattern = match names.as_slice() {
        [] => format!("Error::{kind}"),
        names => format!("Error::{kind} {{ {} }}", names.join(", ")),
    };
    let fields: Vec<String> = error
        .fields
        .iter()
        .map(|field| {
            let rust = &field.name;
            let python = name(&field.name, &field.common);
            let value = match &field.ty {
                Type::UnsignedLong => format!("Field::Number(u64::from(*{rust}))"),
                Type::UnsignedLongLong => format!("Field::Number(*{rust})"),
                Type::Sequence(_) => format!("Field::Ranks({rust}.to_vec())"),
                _ => format!("Field::Text({rust}.clone())"),
            };
            format!("(\"{python}\", {value})")
        })
        .collect();
    Error {
        python: exception(api, &error.name),
        variant: kind,
        parent: parent.unwrap_or_else(|| "None".into()),
        bases: bases.join(", "),
        doc: lines(api, &error.doc).join(" ").replace('"', "\\\""),
        pattern,
        fields: fields.join(", "),
    }
}
