//! Enums whose values have numbers, as `enum.IntEnum`s.

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
    enums: Vec<IntEnum>,
}

struct IntEnum {
    name: String,
    doc: String,
    /// Name, number, what it means.
    values: Vec<(String, u32, String)>,
}

/// What the template prints.
pub(super) fn view(api: &Api) -> Enums {
    let numbered = |known: &&Enum| known.values.iter().all(|value| value.number.is_some());
    let enums: Vec<IntEnum> = api.enums.iter().filter(numbered).map(view_of).collect();
    let names: Vec<String> = enums.iter().map(|known| format!("\"{}\"", known.name)).collect();
    Enums { stamp: stamp("idl/*.webidl"), names: names.join(", "), enums }
}

fn view_of(known: &Enum) -> IntEnum {
    let lines: Vec<String> = known.doc.lines().map(str::to_owned).collect();
    let value = |value: &crate::model::EnumValue| {
        (value.value.clone(), value.number.unwrap_or_default(), value.doc.replace('\n', " "))
    };
    IntEnum {
        name: known.name.clone(),
        doc: docstring(&lines, "    "),
        values: known.values.iter().map(value).collect(),
    }
}
