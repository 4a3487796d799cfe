//! Types as the declarations write them.

use super::spelling::name;
use crate::model::{Api, Constant, Type};

/// A type that a call takes. A function takes what stands for a group without this process.
pub(super) fn accepted(api: &Api, ty: &Type, is_function: bool) -> String {
    match ty {
        Type::Undefined => "undefined".into(),
        Type::Boolean => "boolean".into(),
        Type::LongLong | Type::UnsignedLongLong => "number | bigint".into(),
        Type::Long | Type::UnsignedLong | Type::Double | Type::Duration => "number".into(),
        Type::String => "string".into(),
        Type::Bytes => "BytesLike".into(),
        Type::Tensor => "TensorLike".into(),
        Type::Object => "unknown".into(),
        Type::ReduceOp => "ReduceOp".into(),
        Type::DType => "DType".into(),
        ty if ty.is_group() && is_function => "GroupLike".into(),
        Type::Dictionary(name) => {
            let names = api.extensions(name).map(|extension| &extension.name);
            std::iter::once(name).chain(names).cloned().collect::<Vec<_>>().join(" | ")
        }
        // An object with the methods of a store is one.
        Type::Interface(name) if name == Type::STORE => "StoreLike".into(),
        Type::Interface(name) | Type::Enum(name) => name.clone(),
        Type::Callback(name) => callback(api, name),
        Type::Sequence(inner) if inner.is_integer() => "IntegerList".into(),
        Type::Sequence(inner) => {
            let inner = accepted(api, inner, is_function);
            match inner.contains(' ') {
                true => format!("readonly ({inner})[]"),
                false => format!("readonly {inner}[]"),
            }
        }
        Type::Nullable(inner) if **inner == Type::Object => "unknown".into(),
        // A backend that the program registered has options of its own.
        Type::Nullable(inner) if inner.is_options_of_groups() => {
            let known = accepted(api, inner, is_function);
            format!("{known} | {{ readonly [option: string]: unknown }} | null")
        }
        Type::Nullable(inner) => format!("{} | null", accepted(api, inner, is_function)),
    }
}

/// A type that a call returns.
pub(super) fn returned(api: &Api, ty: &Type, is_function: bool) -> String {
    match ty {
        Type::Undefined => "void".into(),
        Type::LongLong | Type::UnsignedLongLong => "number".into(),
        Type::Bytes => "Uint8Array".into(),
        Type::Object => "unknown".into(),
        Type::Interface(name) if name == "Work" => "Work<unknown>".into(),
        Type::Interface(name) => name.clone(),
        Type::Sequence(inner) => {
            let inner = returned(api, inner, is_function);
            if inner.contains(' ') { format!("({inner})[]") } else { format!("{inner}[]") }
        }
        Type::Nullable(inner) => match (&**inner, is_function) {
            (ty, true) if ty.is_group() => "GroupLike".into(),
            (inner, _) => format!("{} | null", returned(api, inner, is_function)),
        },
        other => accepted(api, other, false),
    }
}

/// A default as JavaScript writes it; none where being absent says it all.
pub(super) fn default(constant: Option<&Constant>) -> Option<String> {
    match constant? {
        Constant::Null | Constant::EmptySequence | Constant::EmptyDictionary => None,
        Constant::Boolean(value) => Some(value.to_string()),
        Constant::Integer(value) => Some(value.to_string()),
        Constant::Float(value) => Some(value.to_string()),
        Constant::String(text) | Constant::Enum(_, text) => Some(format!("\"{text}\"")),
        Constant::ReduceOp(name) => Some(format!("ReduceOp.{name}")),
        Constant::DType(name) => Some(format!("\"{name}\"")),
        Constant::Seconds(seconds) => Some(format!("{}", seconds * 1000.0)),
    }
}

fn callback(api: &Api, of: &str) -> String {
    let Some(callback) = api.callbacks.iter().find(|known| known.name == of) else {
        return "(...given: unknown[]) => unknown".into();
    };
    // The user's function gets what the package gives, and gives what the package takes.
    let parameters = callback.parameters.iter().map(|parameter| {
        let ty = returned(api, &parameter.ty, false);
        format!("{}: {ty}", name(&parameter.name, &parameter.common))
    });
    let parameters: Vec<String> = parameters.collect();
    let returns = match &callback.returns {
        Type::Undefined => "void".into(),
        other => accepted(api, other, false),
    };
    format!("({}) => {returns}", parameters.join(", "))
}
