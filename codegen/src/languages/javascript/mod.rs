//! JavaScript: one layer for Node and for browsers, over two native halves, and its `.d.ts`.
//!
//! What a generated method does is one of: throw (unbuilt), hand a collective to the native half
//! (`operate`), or call it with (`invokeAsync`) or without (`invoke`) waiting. How that is done is
//! written by hand, once, in `templates/javascript/runtime`, and copied into both packages.
//! Knows nothing of other languages.

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
use crate::languages::stamp;
use crate::model::Api;

pub(crate) use signatures::signatures;

/// The packages: for Node and for browsers. Their layers are the same text.
const PACKAGES: [&str; 2] = ["bindings-node", "bindings-wasm"];

/// The name by which the IDL's attributes mean this language.
const LANGUAGE: &str = "javascript";

/// The parts of the layer that are the same whatever the IDL says.
const RUNTIME: &[(&str, &str)] = &[
    ("arguments.js", include_str!("../../../templates/javascript/runtime/arguments.js")),
    ("calls.js", include_str!("../../../templates/javascript/runtime/calls.js")),
    ("claims.js", include_str!("../../../templates/javascript/runtime/claims.js")),
    ("codec.js", include_str!("../../../templates/javascript/runtime/codec.js")),
    ("cuda.js", include_str!("../../../templates/javascript/runtime/cuda.js")),
    ("handles.js", include_str!("../../../templates/javascript/runtime/handles.js")),
    ("lines.js", include_str!("../../../templates/javascript/runtime/lines.js")),
    ("members.js", include_str!("../../../templates/javascript/runtime/members.js")),
    ("native.d.ts", include_str!("../../../templates/javascript/runtime/native.d.ts")),
    ("native.js", include_str!("../../../templates/javascript/runtime/native.js")),
    ("objects.js", include_str!("../../../templates/javascript/runtime/objects.js")),
    ("operations.js", include_str!("../../../templates/javascript/runtime/operations.js")),
    ("own.js", include_str!("../../../templates/javascript/runtime/own.js")),
    ("owned.js", include_str!("../../../templates/javascript/runtime/owned.js")),
    ("signals.js", include_str!("../../../templates/javascript/runtime/signals.js")),
    ("tensors.js", include_str!("../../../templates/javascript/runtime/tensors.js")),
    ("views.js", include_str!("../../../templates/javascript/runtime/views.js")),
    ("work.js", include_str!("../../../templates/javascript/runtime/work.js")),
];

/// Every generated file of both packages.
///
/// # Errors
/// A template cannot be rendered.
pub fn files(api: &Api) -> Result<Files, askama::Error> {
    let mut layer: Vec<(String, String)> = vec![
        ("index.d.ts".into(), declarations::view(api).render()?),
        ("js/generated/classes.js".into(), classes::view(api).render()?),
        ("js/generated/constants.js".into(), values::constants(api).render()?),
        ("js/generated/errors.js".into(), values::errors(api).render()?),
        ("js/generated/functions.js".into(), classes::functions(api).render()?),
        ("js/generated/index.js".into(), index::view(api).render()?),
    ];
    for (name, text) in RUNTIME {
        let source = format!("codegen/templates/javascript/runtime/{name}");
        layer.push((format!("js/generated/{name}"), format!("// {}\n{text}", stamp(&source))));
    }
    let mut files = Files::new();
    for package in PACKAGES {
        for (path, text) in &layer {
            files.insert(format!("{package}/{path}"), text.trim_end().to_owned() + "\n");
        }
    }
    Ok(files)
}
