//! Errors, element types, operators and enums of the layer.

use askama::Template;

use super::LANGUAGE;
use super::docs::{sentence, summary};
use super::spelling::{dtype, error_class};
use crate::languages::stamp;
use crate::model::{Api, Enum, ErrorKind};

/// `errors.js`.
#[derive(Template)]
#[template(path = "javascript/errors.js.jinja", escape = "none")]
pub(super) struct Errors {
    stamp: String,
    errors: Vec<Error>,
}

struct Error {
    kind: String,
    class: String,
    parent: String,
    summary: String,
    /// What it says if it has no fields, as a literal.
    message: Option<String>,
}

/// `constants.js`.
#[derive(Template)]
#[template(path = "javascript/constants.js.jinja", escape = "none")]
pub(super) struct Constants {
    stamp: String,
    dtypes: Vec<DType>,
    ops: Vec<Op>,
    enums: Vec<Numbers>,
}

struct DType {
    name: String,
    number: u32,
    bytes: u32,
    aliases: Vec<String>,
}

struct Op {
    name: String,
    number: u32,
}

struct Numbers {
    name: String,
    summary: String,
    values: Vec<(String, u32)>,
}

/// What `errors.js` prints.
pub(super) fn errors(api: &Api) -> Errors {
    let errors = errors_in_order(api).into_iter().map(|error| Error {
        kind: kind(error).to_owned(),
        class: error_class(api, &error.name),
        parent: match &error.parent {
            Some(parent) => error_class(api, parent),
            None => "PolyrankError".to_owned(),
        },
        summary: summary(api, &error.doc),
        message: error.fields.is_empty().then(|| format!("{:?}", sentence(api, &error.message))),
    });
    Errors { stamp: format!("// {}", stamp("idl/errors.webidl")), errors: errors.collect() }
}

/// What `constants.js` prints.
pub(super) fn constants(api: &Api) -> Constants {
    let dtypes = api.dtypes.iter().map(|known| {
        let name = dtype(&known.name);
        let aliases = (name != known.name).then(|| known.name.clone()).into_iter().collect();
        DType { name, number: known.number, bytes: known.size_bytes, aliases }
    });
    let ops = api.reduce_ops.iter().map(|op| Op { name: op.name.clone(), number: op.number });
    Constants {
        stamp: format!("// {}", stamp("idl/*.webidl")),
        dtypes: dtypes.collect(),
        ops: ops.collect(),
        enums: numbered(api)
            .map(|known| Numbers {
                name: known.name.clone(),
                summary: summary(api, &known.doc),
                values: known
                    .values
                    .iter()
                    .filter_map(|value| Some((value.value.clone(), value.number?)))
                    .collect(),
            })
            .collect(),
    }
}

/// The name by which the core knows a kind of error.
pub(super) fn kind(error: &ErrorKind) -> &str {
    error.notes.rust.as_deref().unwrap_or(&error.name)
}

/// Enums whose values have numbers: those are objects of JavaScript.
pub(super) fn numbered(api: &Api) -> impl Iterator<Item = &Enum> {
    let known = api.enums.iter().filter(|known| !known.notes.is_out_of(LANGUAGE));
    known.filter(|known| known.values.iter().all(|value| value.number.is_some()))
}

/// Parents before their children: a class must be there before another extends it.
pub(super) fn errors_in_order(api: &Api) -> Vec<&ErrorKind> {
    let depth = |error: &ErrorKind| {
        let mut depth = 0;
        let mut parent = error.parent.as_ref();
        // The model allows no cycles; a chain is never longer than the list.
        while let Some(name) = parent.filter(|_| depth < api.errors.len()) {
            depth += 1;
            let found = api.errors.iter().find(|known| known.name == *name);
            parent = found.and_then(|known| known.parent.as_ref());
        }
        depth
    };
    let mut ordered: Vec<&ErrorKind> = api.errors.iter().collect();
    ordered.sort_by_key(|error| depth(error));
    ordered
}
