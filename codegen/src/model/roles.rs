//! What parameters and members mean for a collective.

use super::api::{Parameter, Role};
use super::attributes::Attributes;
use super::builder::Builder;
use super::types::Type;
use crate::idl::{Name, Parameter as ParameterSyntax, Rule};

const BUFFERS: [(&str, Role); 3] = [("In", Role::In), ("Out", Role::Out), ("InOut", Role::InOut)];

/// Attributes that give a role, the role, and whether a type can have it.
type Mark = (&'static str, Role, fn(&Type) -> bool, &'static str);
const MARKS: [Mark; 9] = [
    ("Root", Role::Root, Type::is_integer, "an integer"),
    ("GlobalRoot", Role::GlobalRoot, Type::is_integer, "an integer"),
    ("RootTensor", Role::RootTensor, Type::is_integer, "an integer"),
    ("Peer", Role::Peer, Type::is_integer, "an integer"),
    ("GlobalPeer", Role::GlobalPeer, Type::is_integer, "an integer"),
    ("Tag", Role::Tag, Type::is_integer, "an integer"),
    ("AsyncOp", Role::AsyncOp, |ty| *ty == Type::Boolean, "a boolean"),
    ("Compression", Role::Compression, |ty| *ty == Type::String, "a string"),
    ("Unbuilt", Role::Unbuilt, |_| true, "anything"),
];

/// The role of a parameter or a member: what its attributes say, or what its type says.
pub(super) fn role(
    builder: &mut Builder<'_, '_>,
    attributes: &Attributes<'_>,
    ty: &Type,
    name: &Name,
) -> Role {
    let mut roles = Vec::new();
    for (mark, role) in BUFFERS {
        if attributes.has(mark) {
            roles.push(fitting(builder, mark, is_buffer(ty), "a tensor or a list of them", name));
            roles.push(role);
        }
    }
    for (mark, role, fits, what) in MARKS {
        if attributes.has(mark) {
            roles.push(fitting(builder, mark, fits(ty.non_null()), what, name));
            roles.push(role);
        }
    }
    if attributes.has("Group") {
        let is_group = matches!(ty.non_null(), Type::Interface(_));
        roles.push(fitting(builder, "Group", is_group, "an interface", name));
        roles.push(Role::Group);
    }
    if attributes.has("Splits") && !is_buffer(ty) {
        let fits = matches!(ty.non_null(), Type::Sequence(inner) if inner.is_integer());
        roles.push(fitting(builder, "Splits", fits, "a sequence of integers", name));
        roles.push(Role::InSplits);
    }
    roles.retain(|role| *role != Role::None);
    if let [_, second, ..] = roles[..] {
        let message = format!("`{}` has two roles", name.text);
        let advice = format!("keep one: {:?} or {second:?}", roles[0]);
        builder.report(Rule::ParameterRole, name.span, message, &advice);
    }
    match (roles.first(), ty.non_null()) {
        (Some(role), _) => flat(builder, attributes, *role, ty, name),
        (None, Type::ReduceOp) => Role::Op,
        (None, Type::Duration) => Role::Timeout,
        (None, Type::Dictionary(_)) => Role::Options,
        (None, _) => {
            fitting(builder, "Flat", !attributes.has("Flat"), "`[In]` or `[Out]`", name);
            Role::None
        }
    }
}

/// `In` and `Out` with `Flat` become `FlatIn` and `FlatOut`.
fn flat(
    builder: &mut Builder<'_, '_>,
    attributes: &Attributes<'_>,
    role: Role,
    ty: &Type,
    name: &Name,
) -> Role {
    if !attributes.has("Flat") {
        return role;
    }
    let fits = matches!(role, Role::In | Role::Out);
    fitting(builder, "Flat", fits, "`[In]` or `[Out]`", name);
    let lists = matches!(ty.non_null(), Type::Sequence(inner) if **inner != Type::Tensor);
    fitting(builder, "Flat", !lists, "a tensor or a list of tensors", name);
    match role {
        Role::In => Role::FlatIn,
        Role::Out => Role::FlatOut,
        other => other,
    }
}

/// After all parameters have theirs: which buffer each `[Splits]` cuts, and that buffers of a
/// collective say whether they are read or written.
pub(super) fn complete(
    builder: &mut Builder<'_, '_>,
    written: &[ParameterSyntax],
    parameters: &mut [Parameter],
    is_collective: bool,
) {
    for index in 0..parameters.len() {
        let name = &written[index].name;
        if is_collective && is_buffer(&parameters[index].ty) && parameters[index].role == Role::None
        {
            let message = format!("nothing says what the collective does with `{}`", name.text);
            let advice = "write `[In]`, `[Out]` or `[InOut]` before it";
            builder.report(Rule::ParameterRole, name.span, message, advice);
        }
        let Some(splits) = parameters[index].splits.clone() else { continue };
        let written_as = written[index].attributes.iter().find(|a| a.name.text == "Splits");
        let span = written_as.map_or(name.span, |attribute| attribute.span);
        let role = match parameters[index].role {
            Role::FlatIn => Role::InSplits,
            Role::FlatOut => Role::OutSplits,
            _ => {
                let message =
                    format!("`{}` is not a flat buffer, so that nothing cuts it", name.text);
                builder.report(Rule::UnknownSplits, span, message, "write `[In, Flat, Splits=…]`");
                continue;
            }
        };
        let named = parameters.iter_mut().find(|parameter| parameter.name == splits);
        match named.filter(|parameter| parameter.role == Role::InSplits) {
            Some(parameter) => parameter.role = role,
            None => {
                let message = format!("no parameter `{splits}` is marked as `[Splits]`");
                let advice = "name the sequence of row counts, and write `[Splits]` before it";
                builder.report(Rule::UnknownSplits, span, message, advice);
            }
        }
    }
}

/// Whether it is a tensor, or a list of them, or a list of lists.
fn is_buffer(ty: &Type) -> bool {
    match ty.non_null() {
        Type::Tensor => true,
        Type::Sequence(inner) => is_buffer(inner),
        _ => false,
    }
}

fn fitting(builder: &mut Builder<'_, '_>, mark: &str, fits: bool, what: &str, name: &Name) -> Role {
    if !fits {
        let message = format!("`[{mark}]` does not fit `{}`", name.text);
        builder.report(Rule::ParameterRole, name.span, message, &format!("it needs {what}"));
    }
    Role::None
}
