//! The classes of what callbacks of the user are given: one property for each member.

use askama::Template;

use super::spelling::{lines, rust_doc};
use crate::languages::stamp;
use crate::model::{Api, Dictionary};

/// `callback_arguments.rs`.
#[derive(Template)]
#[template(path = "python/callback_arguments.rs.jinja", escape = "none")]
pub(super) struct CallbackArguments {
    stamp: String,
    all: Vec<Arguments>,
}

struct Arguments {
    doc: String,
    name: String,
    fields: Vec<Field>,
}

struct Field {
    doc: String,
    name: String,
}

/// The dictionaries that callbacks of Python are given.
pub(super) fn told(api: &Api) -> impl Iterator<Item = &Dictionary> {
    api.callback_arguments().filter(|known| !known.common.unbuilt)
}

/// What the template prints.
pub(super) fn view(api: &Api) -> CallbackArguments {
    let arguments = |known: &Dictionary| Arguments {
        doc: rust_doc(&lines(api, &known.doc), ""),
        name: known.name.clone(),
        fields: known
            .members
            .iter()
            .map(|member| Field {
                doc: rust_doc(&lines(api, &member.doc), "    "),
                name: member.name.clone(),
            })
            .collect(),
    };
    CallbackArguments { stamp: stamp("idl/*.webidl"), all: told(api).map(arguments).collect() }
}
