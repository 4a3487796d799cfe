//! Values that the core's methods take as they are: their Rust types, and calls of such methods.
//! Knows no language.

use crate::model::{Method, Type};

/// Whether a type is passed between a language and the core without a hand-written body.
pub(crate) fn is_plain(ty: &Type) -> bool {
    match ty {
        Type::Nullable(inner) => !matches!(**inner, Type::Sequence(_)) && is_plain(inner),
        Type::Sequence(inner) => {
            matches!(**inner, Type::String | Type::Bytes) || inner.is_integer()
        }
        other => {
            other.is_integer()
                || matches!(
                    other,
                    Type::Undefined
                        | Type::Boolean
                        | Type::Double
                        | Type::String
                        | Type::Bytes
                        | Type::Duration
                )
        }
    }
}

/// The Rust type of a number or a truth value; none for all others.
pub(crate) fn number(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Boolean => "bool",
        Type::Long => "i32",
        Type::UnsignedLong => "u32",
        Type::LongLong => "i64",
        Type::UnsignedLongLong => "u64",
        Type::Double => "f64",
        _ => return None,
    })
}

/// The Rust type that a plain parameter is taken as.
pub(crate) fn taken(ty: &Type) -> String {
    match ty {
        Type::String => "String".into(),
        Type::Bytes => "Vec<u8>".into(),
        Type::Duration => "Duration".into(),
        Type::Sequence(inner) => format!("Vec<{}>", taken(inner)),
        Type::Nullable(inner) => format!("Option<{}>", taken(inner)),
        // `is_plain` rejects all that are no numbers.
        other => number(other).unwrap_or("()").into(),
    }
}

/// How a plain parameter that was taken is given to the core's method.
pub(crate) fn given(name: &str, ty: &Type) -> String {
    match ty {
        Type::String | Type::Bytes => format!("&{name}"),
        Type::Sequence(inner) if matches!(**inner, Type::String | Type::Bytes) => {
            format!("&references(&{name})")
        }
        Type::Sequence(_) => format!("&{name}"),
        Type::Nullable(inner) if matches!(**inner, Type::String | Type::Bytes) => {
            format!("{name}.as_deref()")
        }
        _ => name.to_owned(),
    }
}

/// Whether the core's method of the same name takes and returns what any language can give and
/// take: then the call is written by the generator.
pub(crate) fn is_direct(method: &Method) -> bool {
    let [overload] = method.overloads.as_slice() else { return false };
    let returns = match &overload.returns {
        Type::Interface(_) => true,
        other => is_plain(other),
    };
    returns && overload.parameters.iter().all(|parameter| is_plain(&parameter.ty))
}
