//! Which calls core runs for every language, and which each language makes on its own. Knows no
//! language.

use crate::model::{Api, Interface, Method, Role, Type};

/// Whether core's dispatcher runs a method of an object that a language makes calls on, or a free
/// function: not what takes tensors, what prepares operations, or objects that each language makes
/// on its own.
pub(crate) fn is_run_by_core(api: &Api, method: &Method) -> bool {
    let is_issued = returns_work(method) && !joins_members(method);
    let is_operation = has_tensors(method) || method.prepares.is_some() || is_issued;
    !is_operation && !is_made_of_others(api, method)
}

/// Whether a language holds objects of it on which it makes calls: they, or those that inherit
/// from it, are made by the user, or by a call of core that waits. What only operations return
/// belongs to each language.
pub(crate) fn is_object(api: &Api, interface: &Interface) -> bool {
    let is_made = |it: &Interface| it.constructor.is_some() && !it.common.handwritten;
    let derived = |it: &&Interface| it.inherits.as_ref() == Some(&interface.name);
    !interface.common.unbuilt
        && (is_made(interface)
            || api.interfaces.iter().filter(derived).any(is_made)
            || is_made_by_a_call(api, interface))
}

/// Whether a method that waits returns a new one.
fn is_made_by_a_call(api: &Api, interface: &Interface) -> bool {
    let makes = |method: &Method| {
        let is_it = |ty: &Type| matches!(ty, Type::Interface(name) if *name == interface.name);
        method.common.waits && method.overloads.iter().any(|overload| is_it(&overload.returns))
    };
    api.interfaces.iter().flat_map(|other| &other.methods).any(makes)
}

/// Whether it waits for members of a group, and no backend runs it: a language that cannot issue it
/// has core wait.
fn joins_members(method: &Method) -> bool {
    method.owner == Type::GROUP && method.common.handwritten
}

/// Whether it returns the handle of an operation.
pub(crate) fn returns_work(method: &Method) -> bool {
    let is_work = |ty: &Type| matches!(ty, Type::Interface(name) if name == "Work");
    method.overloads.iter().any(|overload| is_work(overload.returns.non_null()))
}

fn has_tensors(method: &Method) -> bool {
    let is_tensor =
        |role| matches!(role, Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut);
    let mut parameters = method.overloads.iter().flat_map(|overload| &overload.parameters);
    method.collective.is_some() || parameters.any(|parameter| is_tensor(parameter.role))
}

/// Whether it takes or returns an object that each language makes on its own, or a function.
fn is_made_of_others(api: &Api, method: &Method) -> bool {
    let is_other = |ty: &Type| is_other(api, ty);
    method.overloads.iter().any(|overload| {
        is_other(&overload.returns) || overload.parameters.iter().any(|it| is_other(&it.ty))
    })
}

fn is_other(api: &Api, ty: &Type) -> bool {
    match ty {
        Type::Interface(name) => {
            api.interfaces.iter().any(|it| it.name == *name && it.common.handwritten)
        }
        Type::Callback(_) => true,
        Type::Sequence(inner) | Type::Nullable(inner) => is_other(api, inner),
        _ => false,
    }
}
