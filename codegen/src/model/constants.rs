//! Defaults and constants: literals that have the type they stand for.

use super::builder::Builder;
use super::types::{Constant, Type};
use crate::idl::{DefinitionKind, Literal, LiteralKind, Rule};

/// The value of `literal` as a `ty`; `None` after a mistake.
pub(super) fn constant(
    builder: &mut Builder<'_, '_>,
    literal: &Literal,
    ty: &Type,
) -> Option<Constant> {
    if literal.kind == LiteralKind::Null && ty.is_nullable() {
        return Some(Constant::Null);
    }
    let value = match (&literal.kind, ty.non_null()) {
        (LiteralKind::Boolean(value), Type::Boolean | Type::Object) => Constant::Boolean(*value),
        (LiteralKind::Integer(value), ty) if ty.is_integer() => {
            if !in_range(*value, ty) {
                let message = format!("{value} does not fit the type");
                builder.report(Rule::DefaultType, literal.span, message, "choose a wider type");
                return None;
            }
            Constant::Integer(*value)
        }
        (LiteralKind::Integer(value), Type::Duration) if *value >= 0 => {
            Constant::Seconds(*value as f64)
        }
        (LiteralKind::Decimal(value), Type::Duration) if *value >= 0.0 => Constant::Seconds(*value),
        (LiteralKind::Integer(value), Type::Double) => Constant::Float(*value as f64),
        (LiteralKind::Decimal(value), Type::Double) => Constant::Float(*value),
        (LiteralKind::String(value), Type::String) => Constant::String(value.clone()),
        (LiteralKind::String(value), Type::ReduceOp | Type::DType | Type::Enum(_)) => {
            return name(builder, literal, value, ty.non_null());
        }
        (LiteralKind::EmptySequence, Type::Sequence(_)) => Constant::EmptySequence,
        (LiteralKind::EmptyDictionary, Type::Dictionary(_)) => Constant::EmptyDictionary,
        _ => {
            let message = format!("this default is not a {}", described(ty));
            builder.report(Rule::DefaultType, literal.span, message, advice(ty));
            return None;
        }
    };
    Some(value)
}

/// A string that names a value of a closed set.
fn name(
    builder: &mut Builder<'_, '_>,
    literal: &Literal,
    value: &str,
    ty: &Type,
) -> Option<Constant> {
    let (names, constant) = match ty {
        Type::ReduceOp => {
            (attribute_names(builder, "ReduceOps"), Constant::ReduceOp(value.to_owned()))
        }
        Type::DType => (attribute_names(builder, "DTypes"), Constant::DType(value.to_owned())),
        Type::Enum(of) => (enum_values(builder, of), Constant::Enum(of.clone(), value.to_owned())),
        _ => return None,
    };
    if !names.iter().any(|name| name == value) {
        let message = format!("\"{value}\" is not a {}", described(ty));
        let advice = format!("it has {}", names.join(", "));
        builder.report(Rule::DefaultType, literal.span, message, &advice);
        return None;
    }
    Some(constant)
}

/// The attributes of the namespace that is marked as `[ReduceOps]` or `[DTypes]`.
fn attribute_names(builder: &Builder<'_, '_>, mark: &str) -> Vec<String> {
    let marked = builder.scope.definitions().find(|definition| {
        definition.attributes.iter().any(|attribute| attribute.name.text == mark)
    });
    match marked.map(|definition| &definition.kind) {
        Some(DefinitionKind::Namespace { members }) => {
            members.iter().map(|member| member.name.text.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn enum_values(builder: &Builder<'_, '_>, of: &str) -> Vec<String> {
    match builder.scope.get(of).map(|defined| &defined.definition.kind) {
        Some(DefinitionKind::Enum { values }) => {
            values.iter().map(|value| value.value.text.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn in_range(value: i64, ty: &Type) -> bool {
    match ty {
        Type::Long => i32::try_from(value).is_ok(),
        Type::UnsignedLong => u32::try_from(value).is_ok(),
        Type::UnsignedLongLong => value >= 0,
        _ => true,
    }
}

fn described(ty: &Type) -> String {
    match ty {
        Type::Nullable(inner) => format!("{inner}, and not null"),
        other => other.to_string(),
    }
}

fn advice(ty: &Type) -> &'static str {
    match ty.non_null() {
        Type::Boolean => "write `true` or `false`",
        Type::Double => "write a number",
        Type::Duration => "write a number of seconds",
        Type::String | Type::ReduceOp | Type::DType | Type::Enum(_) => "write a string: \"…\"",
        Type::Sequence(_) => "write `[]`, or make the type nullable and write `null`",
        Type::Dictionary(_) => "write `{}`",
        ty if ty.is_integer() => "write an integer",
        _ => "make the type nullable with `?` and write `null`",
    }
}
