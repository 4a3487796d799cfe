//! The view of the free functions that are collectives: each is the method of a group that has the
//! same collective and the same tensors.

use askama::Template;

use super::doc_comment;
use super::surface::{Buffer, bounds, buffer, documentation, is_buffer, trait_name, typed};
use super::values::source;
use crate::languages::stamp;
use crate::model::{self, Api, Parameter, Role};

#[derive(Template)]
#[template(path = "rust/distributed.rs.jinja", escape = "none")]
pub(super) struct Functions {
    stamp: String,
    functions: Vec<Function>,
}

struct Function {
    name: String,
    doc: String,
    generics: String,
    buffers: Vec<Buffer>,
    arguments: String,
    /// The method of `ProcessGroup`.
    method: String,
    /// What the method is given: its tensors in its own order, then the arguments.
    given: String,
}

pub(super) fn functions(api: &Api) -> Functions {
    let functions = api.namespaces.iter().flat_map(|namespace| &namespace.functions);
    let functions = functions.filter(|it| it.collective.is_some() && !it.common.unbuilt);
    Functions {
        stamp: stamp(&source(api)),
        functions: functions.filter_map(|function| view(api, function)).collect(),
    }
}

/// Nothing for a function that is not a method of groups.
fn view(api: &Api, function: &model::Method) -> Option<Function> {
    // Several forms may differ only in what follows the tensors: then the name tells.
    let same = || typed(api).filter(|method| is_same(method, function));
    let method = same().find(|method| method.name == function.name).or_else(|| same().next())?;
    let parameters = tensors(function);
    let buffers: Vec<Buffer> =
        parameters.iter().zip('A'..='Z').map(|(it, generic)| buffer(it, generic)).collect();
    // The roles differ among the tensors of a call.
    let named = |wanted: &Parameter| {
        let found = parameters.iter().find(|parameter| parameter.role == wanted.role);
        found.map(|parameter| parameter.name.clone())
    };
    let mut given = tensors(method).into_iter().map(named).collect::<Option<Vec<String>>>()?;
    given.push("arguments".to_owned());
    Some(Function {
        name: function.name.clone(),
        doc: doc_comment(&documentation(api, function, method)),
        generics: bounds(&buffers),
        buffers,
        arguments: trait_name(method),
        method: method.name.clone(),
        given: given.join(", "),
    })
}

fn is_same(method: &model::Method, function: &model::Method) -> bool {
    let roles = |method| {
        let mut roles: Vec<Role> = tensors(method).iter().map(|it| it.role).collect();
        roles.sort_by_key(|role| format!("{role:?}"));
        roles
    };
    method.collective == function.collective
        && method.coalesced == function.coalesced
        && roles(method) == roles(function)
}

fn tensors(method: &model::Method) -> Vec<&Parameter> {
    let parameters = method.overloads.first().map_or(&[][..], |it| &it.parameters);
    parameters.iter().filter(|it| is_buffer(it)).collect()
}
