//! Errors, element types, operators and enums of the layer.

use askama::Template;

use super::LANGUAGE;
use super::docs::{sentence, summary};
use super::spelling::error_class;
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
    enums: Vec<Constant>,
}

struct DType {
    name: String,
    number: u32,
    bytes: u32,
}

struct Op {
    name: String,
    number: u32,
}

struct Constant {
    name: String,
    summary: String,
    /// Whether the program may add names.
    is_open: bool,
    /// Name and value.
    values: Vec<(String, String)>,
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
    let dtypes = api.dtypes.iter().map(|known| DType {
        name: known.name.clone(),
        number: known.number,
        bytes: known.size_bytes,
    });
    let ops = api.reduce_ops.iter().map(|op| Op { name: op.name.clone(), number: op.number });
    Constants {
        stamp: format!("// {}", stamp("idl/*.webidl")),
        dtypes: dtypes.collect(),
        ops: ops.collect(),
        enums: objects(api)
            .map(|known| Constant {
                name: known.name.clone(),
                summary: summary(api, &known.doc),
                is_open: known.common.constants,
                values: literals(known).map(|(name, literal, _)| (name, literal)).collect(),
            })
            .collect(),
    }
}

/// The name by which the core knows a kind of error.
pub(super) fn kind(error: &ErrorKind) -> &str {
    error.common.rust.as_deref().unwrap_or(&error.name)
}

/// Enums that are objects of JavaScript: their values have numbers, or are constants.
pub(super) fn objects(api: &Api) -> impl Iterator<Item = &Enum> {
    let known = api.enums.iter().filter(|known| !known.common.is_out_of(LANGUAGE));
    known.filter(|known| is_object(known))
}

/// Whether an enum is an object of JavaScript.
pub(super) fn is_object(known: &Enum) -> bool {
    known.common.constants || known.is_numbered()
}

/// The values of an enum that is an object: name, literal, doc comment.
pub(super) fn literals(known: &Enum) -> impl Iterator<Item = (String, String, &str)> {
    let constants = known.constants().map(|(name, text, doc)| (name, format!("{text:?}"), doc));
    let numbers = known
        .values
        .iter()
        .filter_map(|value| Some((value.value.clone(), value.number?.to_string(), &*value.doc)));
    let is_constants = known.common.constants;
    constants.filter(move |_| is_constants).chain(numbers.filter(move |_| !is_constants))
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
