//! What the layer must know of a method to call it: which sort of call it is, and its record.

use super::spelling::{camel, has, key};
use crate::languages::roads::returns_work;
use crate::model::{Api, Constant, Method, Overload, Parameter, Role, Type};

/// How a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It throws `Unsupported`.
    Unbuilt,
    /// A collective or a message: it returns a `Work`.
    Operation,
    /// It carries objects: the layer encodes them.
    Objects,
    /// It returns a promise.
    Waits,
    /// It returns its value.
    Plain,
}

/// Which sort of call a method is.
pub(super) fn kind(method: &Method) -> Kind {
    if method.common.unbuilt {
        Kind::Unbuilt
    } else if is_operation(method) {
        Kind::Operation
    } else if method.common.waits && !objects(method).is_empty() {
        Kind::Objects
    } else if method.common.waits {
        Kind::Waits
    } else {
        Kind::Plain
    }
}

/// Whether a call returns a handle: of a collective, of a message, of what prepares one, or of what
/// it says itself.
pub(super) fn is_operation(method: &Method) -> bool {
    method.collective.is_some()
        || method.prepares.is_some()
        || returns_work(method)
        || parameters(method).any(|parameter| is_buffer(parameter.role))
}

/// Parameters that are a value of the language which travels: `object_list`, `obj`.
pub(super) fn objects(method: &Method) -> Vec<&Parameter> {
    let is_object = |parameter: &&Parameter| {
        *parameter.ty.non_null() == Type::Object && has(parameter) && is_payload(&parameter.name)
    };
    parameters(method).filter(is_object).collect()
}

fn is_payload(name: &str) -> bool {
    name == "obj" || name.ends_with("list")
}

/// Whether a call returns a 64-bit integer for one: a BigInt for a BigInt.
pub(super) fn is_exact(method: &Method) -> bool {
    let is_exact = |overload: &Overload| {
        let mut types = overload.parameters.iter().map(|parameter| &parameter.ty);
        overload.returns == Type::LongLong && types.any(|ty| *ty == Type::LongLong)
    };
    kind(method) == Kind::Waits && method.overloads.iter().all(is_exact)
}

/// The parameter that the result of an operation is written to.
pub(super) fn output(overload: &Overload) -> Option<(usize, &Parameter)> {
    let is_output = |role: Role| matches!(role, Role::Out | Role::InOut | Role::FlatOut);
    overload.parameters.iter().enumerate().find(|(_, parameter)| is_output(parameter.role))
}

/// Whether an options record's members stand among the options.
pub(super) fn is_spread(parameter: &Parameter) -> bool {
    parameter.default == Some(Constant::EmptyDictionary)
}

/// A required length of time that stands among the options: `wait(keys, { timeout })`.
pub(super) fn is_option(position: usize, parameter: &Parameter) -> bool {
    parameter.optional || (position > 0 && parameter.ty == Type::Duration)
}

/// The record by which the layer calls a method.
pub(super) fn spec(api: &Api, method: &Method) -> String {
    let is_function = api.namespaces.iter().any(|namespace| namespace.name == method.owner);
    let mut fields = vec![
        format!("key: \"{}\"", key(&method.owner, &method.name)),
        format!("name: \"{}\"", camel(&method.name)),
        format!("required: {}", required(method)),
    ];
    let durations = durations(method);
    if !durations.is_empty() {
        fields.push(format!("durations: [{}]", durations.join(", ")));
    }
    let integers = integers(api, method);
    if !integers.is_empty() {
        fields.push(format!("integers: [{}]", integers.join(", ")));
    }
    let options = group_options(method);
    if !options.is_empty() {
        fields.push(format!("groupOptions: [{}]", options.join(", ")));
    }
    fields.extend(method.prepares.as_ref().map(|prepared| format!("prepares: \"{prepared}\"")));
    match kind(method) {
        Kind::Operation => {
            fields.push(output_fields(method));
            let is_message = parameters(method).any(|known| known.role == Role::Tag);
            fields.extend(is_message.then(|| "message: true".to_owned()));
        }
        Kind::Objects => {
            let names = objects(method);
            let names: Vec<String> =
                names.iter().map(|known| format!("\"{}\"", camel(&known.name))).collect();
            fields.push(format!("objects: [{}]", names.join(", ")));
        }
        _ => {}
    }
    // Objects have their place by themselves.
    let is_in_order = kind(method) == Kind::Waits && method.order().is_of_groups();
    fields.extend(is_in_order.then(|| "inOrder: true".to_owned()));
    let leaves = is_in_order && method.common.leaves.is_some();
    fields.extend(leaves.then(|| "leaves: true".to_owned()));
    fields.extend(is_function.then(|| group_fields(method)).flatten());
    match method.overloads.first().map(|first| &first.returns) {
        Some(Type::Undefined) => fields.push("gives: \"nothing\"".to_owned()),
        Some(Type::LongLong) if is_exact(method) => fields.push("gives: \"integer\"".to_owned()),
        Some(Type::Nullable(inner)) if is_function && inner.is_group() => {
            fields.push("gives: \"group\"".to_owned());
        }
        _ => {}
    }
    format!("{{ {} }}", fields.join(", "))
}

/// How many arguments every call passes by position: the next one may be the options.
fn required(method: &Method) -> usize {
    let of = |overload: &Overload| {
        let parameters = overload.parameters.iter().enumerate();
        parameters.take_while(|(position, known)| !is_option(*position, known)).count()
    };
    method.overloads.iter().map(of).min().unwrap_or_default()
}

/// Positions at which a number is a length of time in every form that has one there.
fn durations(method: &Method) -> Vec<String> {
    let longest = method.overloads.iter().map(|overload| overload.parameters.len()).max();
    let at = |position: usize| {
        method.overloads.iter().filter_map(move |overload| overload.parameters.get(position))
    };
    let is_duration = |position: &usize| {
        at(*position).any(|parameter| *parameter.ty.non_null() == Type::Duration)
    };
    (0..longest.unwrap_or_default()).filter(is_duration).map(|it| it.to_string()).collect()
}

/// Lists of integers, for which arrays can stand: the position and the name of each; members of
/// options records have names alone.
fn integers(api: &Api, method: &Method) -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |position: &str, name: &str, ty: &Type| {
        let list = format!("[{position}, \"{}\"]", camel(name));
        if ty.non_null().is_list_of_integers() && !all.contains(&list) {
            all.push(list);
        }
    };
    for overload in &method.overloads {
        for (position, parameter) in overload.parameters.iter().enumerate() {
            add(&position.to_string(), &parameter.name, &parameter.ty);
            let Type::Dictionary(name) = parameter.ty.non_null() else { continue };
            let record = api.dictionaries.iter().find(|record| record.name == *name);
            for member in record.iter().flat_map(|record| &record.members) {
                add("null", &member.name, &member.ty);
            }
        }
    }
    all
}

/// Options of a group, which a backend that is written in JavaScript is given: the position and the
/// name of each.
fn group_options(method: &Method) -> Vec<String> {
    let forms = method.overloads.iter().map(|overload| overload.parameters.iter().enumerate());
    let options = forms.flatten().filter(|(_, it)| it.ty.non_null().is_options_of_groups());
    let mut all: Vec<String> =
        options.map(|(position, it)| format!("[{position}, \"{}\"]", camel(&it.name))).collect();
    all.dedup();
    all
}

fn output_fields(method: &Method) -> String {
    let found = method.overloads.first().and_then(output);
    match found {
        Some((position, parameter)) => {
            format!("output: {position}, outputName: \"{}\"", camel(&parameter.name))
        }
        None => "output: null".to_owned(),
    }
}

/// Where a function's group stands, and what it answers to a process that is not in it.
fn group_fields(method: &Method) -> Option<String> {
    let overload = method.overloads.first()?;
    let mut parameters = overload.parameters.iter().enumerate();
    let (position, parameter) = parameters
        .find(|(_, known)| known.role == Role::Group || known.ty.non_null().is_group())?;
    let answer = match &overload.returns {
        Type::Undefined if says_nothing(method) => ", nonMember: null",
        // A work knows by itself that nothing was done.
        Type::Nullable(given) if matches!(**given, Type::Sequence(_)) => ", nonMember: null",
        returns if returns.is_integer() && says_nothing(method) => ", nonMember: -1",
        _ => "",
    };
    Some(format!("group: {position}, groupName: \"{}\"{answer}", camel(&parameter.name)))
}

fn says_nothing(method: &Method) -> bool {
    method.common.non_member || parameters(method).any(|parameter| parameter.role == Role::Group)
}

fn is_buffer(role: Role) -> bool {
    use Role::{FlatIn, FlatOut, In, InOut, Out};
    matches!(role, In | Out | InOut | FlatIn | FlatOut)
}

fn parameters(method: &Method) -> impl Iterator<Item = &Parameter> {
    method.overloads.iter().flat_map(|overload| &overload.parameters)
}
