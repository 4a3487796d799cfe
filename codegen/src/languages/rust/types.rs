//! The view of the types and constants of the core's tables, and how those of the model are written
//! there. Knows no methods.

use askama::Template;

use crate::languages::stamp;
use crate::model::names::{camel_case, snake_case};
use crate::model::{Api, Constant, Type};

#[derive(Template)]
#[template(path = "rust/types.rs.jinja", escape = "none")]
pub(super) struct Types {
    stamp: String,
    types: &'static [Variant],
    constants: &'static [Variant],
}

/// A variant of one of the core's enums: its name, what it holds, and its documentation.
type Variant = (&'static str, &'static str, &'static str);

/// Those that [`type_of`] writes.
const TYPES: &[Variant] = &[
    ("Bool", "", "True or false. An integer is not taken."),
    ("Int", "", "An integer of up to 64 bits. A boolean is not taken."),
    ("Float", "", "A number. Integers are taken."),
    ("Str", "", "A string."),
    ("Bytes", "", "Bytes. A string is taken as its UTF-8 encoding."),
    ("Duration", "", "A length of time. A number is taken as seconds."),
    ("Tensor", "", "A tensor."),
    ("Object", "", "Any value."),
    ("ReduceOp", "", "A reduction operator."),
    ("DType", "", "An element type."),
    ("Record", "(&'static RecordType)", "An options record."),
    (
        "Interface",
        "(&'static str)",
        "An object of an interface of the IDL, or of one that inherits from it.",
    ),
    (
        "Enum",
        "(&'static [&'static str], &'static [u32])",
        "One of these strings, or of their numbers.",
    ),
    ("Callback", "", "Something that can be called."),
    ("Sequence", "(&'static Type)", "A list."),
    ("Nullable", "(&'static Type)", "A value or none."),
];

/// Those that [`constant`] writes.
const CONSTANTS: &[Variant] = &[
    ("Null", "", "None."),
    ("Bool", "(bool)", "True or false."),
    ("Int", "(i64)", "An integer."),
    ("Float", "(f64)", "A number."),
    ("Str", "(&'static str)", "A string, or a value of an enum."),
    ("Seconds", "(f64)", "A length of time, in seconds."),
    ("ReduceOp", "(ReduceOp)", "A reduction operator."),
    ("DType", "(DType)", "An element type."),
    ("EmptySequence", "", "An empty list."),
    ("EmptyRecord", "", "The record with all members at their defaults."),
];

pub(super) fn types() -> Types {
    Types { stamp: stamp("the generator's model"), types: TYPES, constants: CONSTANTS }
}

/// The name of the table of an options record.
pub(super) fn record_constant(name: &str) -> String {
    snake_case(name).to_uppercase()
}

/// The core's spelling of a type.
pub(super) fn type_of(api: &Api, ty: &Type) -> String {
    match ty {
        Type::Undefined | Type::Object => "Type::Object".to_owned(),
        Type::Boolean => "Type::Bool".to_owned(),
        Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => {
            "Type::Int".to_owned()
        }
        Type::Double => "Type::Float".to_owned(),
        Type::String => "Type::Str".to_owned(),
        Type::Bytes => "Type::Bytes".to_owned(),
        Type::Duration => "Type::Duration".to_owned(),
        Type::Tensor => "Type::Tensor".to_owned(),
        Type::ReduceOp => "Type::ReduceOp".to_owned(),
        Type::DType => "Type::DType".to_owned(),
        Type::Callback(_) => "Type::Callback".to_owned(),
        Type::Dictionary(name) => format!("Type::Record(&{})", record_constant(name)),
        Type::Interface(name) => format!("Type::Interface({name:?})"),
        Type::Enum(name) => {
            let found = api.enums.iter().find(|it| it.name == *name);
            let values = found.map(|it| it.values.as_slice()).unwrap_or_default();
            let names: Vec<&str> = values.iter().map(|value| value.value.as_str()).collect();
            let numbers: Vec<u32> = values.iter().filter_map(|value| value.number).collect();
            format!("Type::Enum(&{names:?}, &{numbers:?})")
        }
        Type::Sequence(inner) => format!("Type::Sequence(&{})", type_of(api, inner)),
        Type::Nullable(inner) => format!("Type::Nullable(&{})", type_of(api, inner)),
    }
}

/// The core's spelling of a constant.
pub(super) fn constant(constant: &Constant) -> String {
    match constant {
        Constant::Null => "Constant::Null".to_owned(),
        Constant::Boolean(value) => format!("Constant::Bool({value})"),
        Constant::Integer(value) => format!("Constant::Int({value})"),
        Constant::Float(value) => format!("Constant::Float({value:?})"),
        Constant::Seconds(value) => format!("Constant::Seconds({value:?})"),
        Constant::String(value) | Constant::Enum(_, value) => format!("Constant::Str({value:?})"),
        Constant::ReduceOp(name) => {
            format!("Constant::ReduceOp(ReduceOp::{})", camel_case(name))
        }
        Constant::DType(name) => format!("Constant::DType(crate::DType::{})", camel_case(name)),
        Constant::EmptySequence => "Constant::EmptySequence".to_owned(),
        Constant::EmptyDictionary => "Constant::EmptyRecord".to_owned(),
    }
}
