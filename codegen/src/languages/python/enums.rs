//! Enums whose values have numbers, as `enum.IntEnum`s, and those that are constants, as
//! `enum.StrEnum`s.

use askama::Template;

use super::spelling::docstring;
use crate::languages::stamp;
use crate::model::{Api, Enum};

/// `_enums.py`.
#[derive(Template)]
#[template(path = "python/enums.py.jinja", escape = "none")]
pub(super) struct Enums {
    stamp: String,
    names: String,
    enums: Vec<PythonEnum>,
}

struct PythonEnum {
    name: String,
    doc: String,
    /// Whether the values are strings.
    is_of_strings: bool,
    /// Name, value, what it means.
    values: Vec<(String, String, String)>,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> Enums {
    let is_class = |known: &&Enum| known.common.constants || known.is_numbered();
    let enums: Vec<PythonEnum> = api.enums.iter().filter(is_class).map(view_of).collect();
    let names: Vec<String> = enums.iter().map(|known| format!("\"{}\"", known.name)).collect();
    Enums { stamp: stamp("idl/*.webidl"), names: names.join(", "), enums }
}

fn view_of(known: &Enum) -> PythonEnum {
    let described = |doc: &str| {
        let lines: Vec<String> = doc.lines().map(str::to_owned).collect();
        docstring(&lines, "    ")
    };
    let numbered = known.values.iter().map(|it| {
        let number = it.number.unwrap_or_default();
        (it.value.clone(), number.to_string(), described(&it.doc))
    });
    let constants =
        known.constants().map(|(name, text, doc)| (name, format!("\"{text}\""), described(doc)));
    let is_of_strings = known.common.constants;
    PythonEnum {
        name: known.name.clone(),
        doc: described(&known.doc),
        is_of_strings,
        values: if is_of_strings { constants.collect() } else { numbered.collect() },
    }
}
