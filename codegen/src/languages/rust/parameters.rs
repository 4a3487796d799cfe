//! The view of the positions of parameters, by which implementations take what a call was given.

use askama::Template;

use crate::languages::stamp;
use crate::model::names::snake_case;
use crate::model::{self, Api};

#[derive(Template)]
#[template(path = "rust/parameters.rs.jinja", escape = "none")]
pub(super) struct Parameters {
    stamp: String,
    owners: Vec<Owner>,
}

/// An interface or a namespace.
struct Owner {
    /// The module: `process_group`.
    module: String,
    name: String,
    methods: Vec<Method>,
}

struct Method {
    name: String,
    positions: Vec<Position>,
}

struct Position {
    /// `TIMEOUT`
    constant: String,
    parameter: String,
    position: usize,
}

pub(super) fn parameters(api: &Api) -> Parameters {
    let interfaces = api.interfaces.iter().map(|interface| {
        let methods = interface.constructor.iter().chain(&interface.methods);
        owner(&interface.name, methods)
    });
    let namespaces = api.namespaces.iter().map(|it| owner(&it.name, it.functions.iter()));
    let owners = interfaces.chain(namespaces).filter(|owner| !owner.methods.is_empty());
    Parameters { stamp: stamp("idl/*.webidl"), owners: owners.collect() }
}

fn owner<'a>(name: &str, methods: impl Iterator<Item = &'a model::Method>) -> Owner {
    // Collectives, and what prepares them, are taken by the roles of their parameters.
    let is_by_role =
        |method: &model::Method| method.collective.is_some() || method.prepares.is_some();
    let methods = methods.filter(|method| !is_by_role(method) && !method.common.unbuilt);
    let methods =
        methods.map(|method| Method { name: method.name.clone(), positions: positions(method) });
    Owner {
        module: snake_case(name),
        name: name.to_owned(),
        methods: methods.filter(|method| !method.positions.is_empty()).collect(),
    }
}

/// The parameters that stand at the same place in every overload that has them.
fn positions(method: &model::Method) -> Vec<Position> {
    let all = method.overloads.iter().flat_map(|overload| overload.parameters.iter().enumerate());
    let mut found: Vec<(&str, Option<usize>)> = Vec::new();
    for (position, parameter) in all {
        match found.iter_mut().find(|(name, _)| *name == parameter.name) {
            Some((_, known)) if *known != Some(position) => *known = None,
            Some(_) => {}
            None => found.push((&parameter.name, Some(position))),
        }
    }
    let found = found.into_iter().filter_map(|(name, position)| {
        let constant = name.to_uppercase();
        Some(Position { constant, parameter: name.to_owned(), position: position? })
    });
    found.collect()
}
