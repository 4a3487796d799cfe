//! The view of the tables that the resolver reads.

use askama::Template;

use super::types::{constant, record_constant, type_of};
use crate::languages::stamp;
use crate::model::names::{camel_case, snake_case};
use crate::model::{self, Api, Constant, Type};

#[derive(Template)]
#[template(path = "rust/calls.rs.jinja", escape = "none")]
pub(super) struct Calls {
    stamp: String,
    records: Vec<Record>,
    methods: Vec<Method>,
}

struct Record {
    name: String,
    constant: String,
    base: String,
    /// The constants of those that extend it.
    extensions: Vec<String>,
    members: Vec<String>,
}

struct Method {
    interface: String,
    name: String,
    /// `Some("connect")`
    factory: String,
    constant: String,
    collective: String,
    coalesced: bool,
    /// `Some(&PROCESS_GROUP_ALLREDUCE)`
    prepares: String,
    unbuilt: bool,
    overloads: Vec<Overload>,
    /// Where it is compiled.
    platforms: &'static str,
}

struct Overload {
    parameters: Vec<String>,
}

pub(super) fn calls(api: &Api) -> Calls {
    let arguments = api.dictionaries.iter().filter(|dictionary| dictionary.is_argument);
    let record = |dictionary: &model::Dictionary| Record {
        name: dictionary.name.clone(),
        constant: record_constant(&dictionary.name),
        base: match &dictionary.inherits {
            Some(base) => format!("Some({base:?})"),
            None => "None".to_owned(),
        },
        extensions: api.extensions(&dictionary.name).map(|it| record_constant(&it.name)).collect(),
        members: dictionary.members.iter().map(|member| member_row(api, member)).collect(),
    };
    let of_interface = |interface: &model::Interface| {
        let platforms = platforms_of(&interface.common);
        let methods = interface.constructor.iter().chain(&interface.methods);
        methods.map(|it| Method { platforms, ..view(api, it) }).collect::<Vec<_>>()
    };
    let functions = api.namespaces.iter().flat_map(|namespace| &namespace.functions);
    let functions = functions.map(|function| view(api, function));
    Calls {
        stamp: stamp("idl/*.webidl"),
        records: arguments.map(record).collect(),
        methods: api.interfaces.iter().flat_map(of_interface).chain(functions).collect(),
    }
}

/// Where the tables of an interface are compiled: pages do not load what they cannot make.
pub(super) fn platforms_of(interface: &model::CommonAttributes) -> &'static str {
    match interface.not_in_pages {
        true => "#[cfg(not(target_family = \"wasm\"))]",
        false => "",
    }
}

/// The name of the table of a method: `PROCESS_GROUP_ALLREDUCE`.
pub(super) fn method_constant(method: &model::Method) -> String {
    member_constant(&method.owner, &method.name)
}

/// The name of the table of a member of an interface or a namespace.
pub(super) fn member_constant(owner: &str, name: &str) -> String {
    format!("{}_{name}", snake_case(owner)).to_uppercase()
}

fn view(api: &Api, method: &model::Method) -> Method {
    let collective = method.collective.as_ref().map(|name| {
        let found = api.collectives.iter().find(|collective| collective.name == *name);
        let variant = found.map_or_else(|| camel_case(name), |found| found.variant.clone());
        format!("Some(Collective::{variant})")
    });
    let overload = |overload: &model::Overload| Overload {
        parameters: overload.parameters.iter().map(|it| parameter_row(api, it)).collect(),
    };
    Method {
        interface: method.owner.clone(),
        name: method.name.clone(),
        factory: format!("{:?}", method.common.factory),
        constant: method_constant(method),
        collective: collective.unwrap_or_else(|| "None".to_owned()),
        coalesced: method.coalesced,
        prepares: match &method.prepares {
            Some(prepared) => format!("Some(&{})", member_constant(&method.owner, prepared)),
            None => "None".to_owned(),
        },
        unbuilt: method.common.unbuilt,
        overloads: method.overloads.iter().map(overload).collect(),
        platforms: "",
    }
}

fn parameter_row(api: &Api, parameter: &model::Parameter) -> String {
    let model::Parameter { name, ty, role, optional, default, .. } = parameter;
    let default = optional.then_some(default.as_ref());
    row(api, name, ty, *role, default)
}

fn member_row(api: &Api, member: &model::Member) -> String {
    let model::Member { name, ty, role, required, default, .. } = member;
    row(api, name, ty, *role, (!required).then_some(default.as_ref()))
}

/// `default` is given where the argument may be left out.
fn row(
    api: &Api,
    name: &str,
    ty: &Type,
    role: model::Role,
    default: Option<Option<&Constant>>,
) -> String {
    let ty = type_of(api, ty);
    match default {
        None => format!("required({name:?}, {ty}, Role::{role:?})"),
        Some(default) => {
            let default = constant(default.unwrap_or(&Constant::Null));
            format!("optional({name:?}, {ty}, Role::{role:?}, {default})")
        }
    }
}
