//! `index.js`: every public name of the layer.

use askama::Template;

use super::spelling::{error_class, functions, interfaces};
use super::values::objects;
use crate::languages::stamp;
use crate::model::Api;

/// `index.js`.
#[derive(Template)]
#[template(path = "javascript/index.js.jinja", escape = "none")]
pub(super) struct Index {
    stamp: String,
    classes: Vec<String>,
    enums: Vec<String>,
    errors: Vec<String>,
    functions: Vec<String>,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> Index {
    let mut errors: Vec<String> =
        api.errors.iter().map(|error| error_class(api, &error.name)).collect();
    errors.sort();
    let functions = api.namespaces.iter().flat_map(functions).flat_map(|method| {
        let main = super::spelling::name(&method.name, &method.common);
        let others = super::spelling::aliases(&method.name, &method.common);
        std::iter::once(main).chain(others)
    });
    let mut functions: Vec<String> = functions.collect();
    functions.sort();
    Index {
        stamp: format!("// {}", stamp("idl/*.webidl")),
        classes: interfaces(api).map(|interface| interface.name.clone()).collect(),
        enums: objects(api).map(|known| known.name.clone()).collect(),
        errors,
        functions,
    }
}
