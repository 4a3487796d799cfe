//! Which calls two overloads both accept, and whether they read them alike.
//!
//! A call has a number of positional arguments and a set of keywords, each with a type. Declaration
//! order decides which overload takes a call that several accept. That is harmless where both
//! would give every argument the same meaning, and a trap where they would not.

use super::api::{Method, Overload, Parameter};
use super::builder::Builder;
use super::types::Type;
use crate::idl::{Diagnostic, Rule, Span};

/// Reports overloads that read one call in two ways, and overloads that no call reaches.
/// `spans` are the places of the overloads.
pub(super) fn check(builder: &mut Builder<'_, '_>, method: &Method, spans: &[Span]) {
    for (later_index, later) in method.overloads.iter().enumerate() {
        for (earlier, span) in method.overloads[..later_index].iter().zip(spans) {
            let place = spans[later_index];
            if let Some(found) = ambiguity(builder, earlier, later) {
                let diagnostic = Diagnostic::new(Rule::AmbiguousOverloads, place, found.message)
                    .label(later.form.clone())
                    .related(*span, earlier.form.clone())
                    .advice(found.advice);
                builder.diagnostics.push(diagnostic);
            } else if covers(builder, earlier, later) {
                let message = format!("no call of `{}` reaches this overload", method.name);
                let diagnostic = Diagnostic::new(Rule::UnreachableOverload, place, message)
                    .label(later.form.clone())
                    .related(*span, "this one takes all of them")
                    .advice("remove it, or declare it first");
                builder.diagnostics.push(diagnostic);
            }
        }
    }
}

struct Ambiguity {
    message: String,
    advice: String,
}

/// A call that both accept and read differently.
fn ambiguity(builder: &Builder<'_, '_>, left: &Overload, right: &Overload) -> Option<Ambiguity> {
    let most = left.parameters.len().min(right.parameters.len());
    for positional in 0..=most {
        let pairs: Vec<(&Parameter, &Parameter)> =
            left.parameters[..positional].iter().zip(&right.parameters[..positional]).collect();
        if !pairs.iter().all(|(left, right)| overlap(builder, &left.ty, &right.ty)) {
            return None;
        }
        let Some(keywords) = common_keywords(builder, left, right, positional) else { continue };
        for (left, right) in pairs.iter().chain(&keywords) {
            if left.meaning() != right.meaning() {
                let call: Vec<String> = pairs.iter().map(|(left, _)| left.ty.to_string()).collect();
                let required =
                    keywords.iter().filter(|(left, right)| !left.optional || !right.optional);
                let named = required.map(|(left, _)| format!("{}: {}", left.name, left.ty));
                let call: Vec<String> = call.into_iter().chain(named).collect();
                return Some(Ambiguity {
                    message: format!(
                        "two overloads read the call ({}) differently: one as `{}`, one as `{}`",
                        call.join(", "),
                        left.name,
                        right.name
                    ),
                    advice: "give the parameters types that no argument has both, or one meaning, \
                             or give one operation another name"
                        .to_owned(),
                });
            }
        }
    }
    None
}

/// After `positional` arguments: the parameters that a call may name for both overloads. `None` if
/// no set of keywords satisfies both.
fn common_keywords<'o>(
    builder: &Builder<'_, '_>,
    left: &'o Overload,
    right: &'o Overload,
    positional: usize,
) -> Option<Vec<(&'o Parameter, &'o Parameter)>> {
    let rest = |overload: &'o Overload| overload.parameters[positional..].iter();
    let mut common = Vec::new();
    for parameter in rest(left) {
        let other = rest(right)
            .find(|it| it.name == parameter.name && overlap(builder, &it.ty, &parameter.ty));
        match other {
            Some(other) => common.push((parameter, other)),
            None if parameter.optional => {}
            None => return None,
        }
    }
    let named = |parameter: &Parameter| common.iter().any(|(_, it)| it.name == parameter.name);
    rest(right).all(|parameter| parameter.optional || named(parameter)).then_some(common)
}

/// Whether `earlier` accepts every call that `later` accepts.
fn covers(builder: &Builder<'_, '_>, earlier: &Overload, later: &Overload) -> bool {
    let fewer = later.parameters.len() <= earlier.parameters.len();
    let pairs = earlier.parameters.iter().zip(&later.parameters);
    let each = pairs.clone().all(|(earlier, later)| {
        contains(builder, &earlier.ty, &later.ty)
            && earlier.name == later.name
            && (earlier.optional || !later.optional)
    });
    let rest = earlier.parameters.iter().skip(later.parameters.len());
    fewer && each && rest.clone().all(|parameter| parameter.optional)
}

/// Whether some argument fits both types.
fn overlap(builder: &Builder<'_, '_>, left: &Type, right: &Type) -> bool {
    if left.is_nullable() && right.is_nullable() {
        return true;
    }
    match (left.non_null(), right.non_null()) {
        (Type::Object, _) | (_, Type::Object) => true,
        // An empty list fits a sequence of anything.
        (Type::Sequence(_), Type::Sequence(_)) => true,
        (left, right) => accepts(builder, left, right) || accepts(builder, right, left),
    }
}

/// Whether every argument that fits `inner` fits `outer`.
fn contains(builder: &Builder<'_, '_>, outer: &Type, inner: &Type) -> bool {
    if inner.is_nullable() && !outer.is_nullable() && *outer != Type::Object {
        return false;
    }
    match (outer.non_null(), inner.non_null()) {
        (Type::Object, _) => true,
        (Type::Sequence(outer), Type::Sequence(inner)) => contains(builder, outer, inner),
        (outer, inner) => accepts(builder, outer, inner),
    }
}

/// Whether a resolver takes a value of type `inner` where the plain type `outer` is asked for.
fn accepts(builder: &Builder<'_, '_>, outer: &Type, inner: &Type) -> bool {
    match (outer, inner) {
        (Type::Double, inner) if inner.is_integer() => true,
        (Type::Duration, Type::Double) => true,
        (Type::Duration, inner) if inner.is_integer() => true,
        (Type::Bytes | Type::Enum(_), Type::String) => true,
        (Type::Interface(outer), Type::Interface(inner))
        | (Type::Dictionary(outer), Type::Dictionary(inner)) => is_a(builder, inner, outer),
        (Type::Callback(_), Type::Callback(_)) => true,
        (outer, inner) => outer == inner || (outer.is_integer() && inner.is_integer()),
    }
}

/// Whether interface or dictionary `name` is `base` or inherits from it.
fn is_a(builder: &Builder<'_, '_>, name: &str, base: &str) -> bool {
    let mut seen = Vec::new();
    let mut current = name.to_owned();
    while !seen.contains(&current) {
        if current == base {
            return true;
        }
        let Some(parent) = builder.scope.parent(&current) else { return false };
        seen.push(std::mem::replace(&mut current, parent.to_owned()));
    }
    false
}
