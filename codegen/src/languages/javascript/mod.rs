//! JavaScript: one layer for Node and for browsers, over two native halves, and its `.d.ts`.
//!
//! What a generated method does is one of: throw (unbuilt), hand a collective to the native half
//! (`operate`), or call it with (`invokeAsync`) or without (`invoke`) waiting. How that is done is
//! written by hand, in `bindings-node/js/runtime`, which the browser's package takes when it is
//! built. Knows nothing of other languages.

mod calls;
mod classes;
mod declarations;
mod docs;
mod forms;
mod index;
mod signatures;
mod spelling;
mod types;
mod values;

use askama::Template;

use crate::files::Files;
use crate::model::Api;

pub(crate) use signatures::{names, signatures};
pub(crate) use spelling::{aliases as further, error_class, name as spelt};

/// The packages: for Node and for browsers. Their layers are the same text.
const PACKAGES: [&str; 2] = ["bindings-node", "bindings-wasm"];

/// The name by which the IDL's attributes mean this language.
const LANGUAGE: &str = "javascript";

/// Every generated file of both packages.
///
/// # Errors
/// A template cannot be rendered.
pub fn files(api: &Api) -> Result<Files, askama::Error> {
    let layer: [(&str, String); 6] = [
        ("index.d.ts", declarations::view(api).render()?),
        ("js/generated/classes.js", classes::view(api).render()?),
        ("js/generated/constants.js", values::constants(api).render()?),
        ("js/generated/errors.js", values::errors(api).render()?),
        ("js/generated/functions.js", classes::functions(api).render()?),
        ("js/generated/index.js", index::view(api).render()?),
    ];
    let mut files = Files::new();
    for package in PACKAGES {
        for (path, text) in &layer {
            files.insert(format!("{package}/{path}"), text.trim_end().to_owned() + "\n");
        }
    }
    Ok(files)
}
