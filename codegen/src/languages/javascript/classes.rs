//! The classes and the free functions of the layer: what each does with its arguments.

use askama::Template;

use super::LANGUAGE;
use super::calls::{Kind, kind, spec};
use super::docs::summary;
use super::spelling::{aliases, camel, functions as functions_of, interfaces, key, methods, name};
use crate::languages::stamp;
use crate::model::names::snake_case;
use crate::model::{Api, Interface, Method, Type};

/// `classes.js`.
#[derive(Template)]
#[template(path = "javascript/classes.js.jinja", escape = "none")]
pub(super) struct Classes {
    stamp: String,
    classes: Vec<Class>,
}

/// `functions.js`.
#[derive(Template)]
#[template(path = "javascript/functions.js.jinja", escape = "none")]
pub(super) struct Functions {
    stamp: String,
    functions: Vec<Function>,
}

struct Class {
    name: String,
    base: String,
    summary: String,
    unbuilt: bool,
    /// Why `new` is refused.
    advice: String,
    /// The record of the constructor; empty if `new` is refused.
    constructor: String,
    /// The static method that stands for the constructor.
    factory: String,
    factory_unbuilt: bool,
    factory_call: String,
    attributes: Vec<Property>,
    methods: Vec<Function>,
    /// The records of the methods: constant, text.
    specs: Vec<Spec>,
    /// `"HashStore", "Store"`
    interfaces: String,
    is_group: bool,
    is_manager: bool,
    is_store: bool,
}

struct Spec {
    constant: String,
    spec: String,
}

struct Property {
    name: String,
    get: String,
    set: String,
}

struct Function {
    name: String,
    summary: String,
    constant: String,
    spec: String,
    has_spec: bool,
    has_arguments: bool,
    is_static: bool,
    body: String,
    aliases: Vec<String>,
}

/// Functions that the layer writes by hand around the generated call: which, and what they give.
const AROUND: &[(&str, &str, &str)] = &[
    (
        "all_reduce_sparse",
        "own.allReduceSparse",
        "Promise<[indices: Tensor, values: Tensor] | undefined>",
    ),
    ("allreduce_sparse", "own.allreduceSparse", "Promise<[indices: Tensor, values: Tensor]>"),
    ("from_group", "meshes.fromGroup", "DeviceMesh"),
    ("init_device_mesh", "meshes.create", "Promise<DeviceMesh>"),
    ("init_process_group", "own.initProcessGroup", "Promise<ProcessGroup>"),
    ("join_group", "own.joinGroup", "Promise<ProcessGroup>"),
    ("nan_check", "hooks.nanCheck", "(args: PreHookArgs) => void"),
    ("probe", "own.probe", "Promise<MessageInfo>"),
    ("register_abort_hook", "hooks.registerAbortHook", "void"),
    ("register_completion_hook", "hooks.registerCompletionHook", "void"),
    ("register_post_hook", "hooks.registerPostHook", "void"),
    ("register_pre_hook", "hooks.registerPreHook", "void"),
    ("unregister_abort_hook", "hooks.unregisterAbortHook", "void"),
    ("unregister_completion_hook", "hooks.unregisterCompletionHook", "void"),
    ("unregister_post_hook", "hooks.unregisterPostHook", "void"),
    ("unregister_pre_hook", "hooks.unregisterPreHook", "void"),
    ("new_window", "own.newWindow", "Promise<Window>"),
    ("map_remote_tensor", "own.mapRemoteTensor", "Tensor"),
    ("reconfigure", "own.reconfigure", "Work<void>"),
    ("shrink_group", "own.shrinkGroup", "Work<void>"),
    ("sync_state", "own.syncState", "Promise<number[]>"),
];

/// The return type of a function that is handwritten in the layer.
pub(super) fn own_result(function: &str) -> Option<&'static str> {
    AROUND.iter().find(|(name, ..)| *name == function).map(|(_, _, result)| *result)
}

/// What `classes.js` prints. Base classes stand before what inherits from them.
pub(super) fn view(api: &Api) -> Classes {
    let (bases, others): (Vec<&Interface>, Vec<&Interface>) =
        interfaces(api).partition(|interface| interface.inherits.is_none());
    let classes = bases.into_iter().chain(others).map(|interface| class(api, interface));
    Classes { stamp: format!("// {}", stamp("idl/*.webidl")), classes: classes.collect() }
}

/// What `functions.js` prints.
pub(super) fn functions(api: &Api) -> Functions {
    let all = api.namespaces.iter().flat_map(functions_of);
    let functions = all.map(|method| function(api, method, "null")).collect();
    Functions { stamp: format!("// {}", stamp("idl/*.webidl")), functions }
}

fn class(api: &Api, interface: &Interface) -> Class {
    let factory = interface.constructor.as_ref().and_then(|it| it.common.factory.clone());
    let unbuilt = interface.common.unbuilt;
    let base = interface.inherits.clone().unwrap_or_default();
    let mut specs = Vec::new();
    let constant = format!("{}_NEW", snake_case(&interface.name).to_uppercase());
    // An unbuilt class is in the surface only: nobody has an instance.
    let is_empty = unbuilt && base.is_empty();
    if let Some(constructor) = interface.constructor.as_ref().filter(|_| !unbuilt) {
        specs.push(Spec { constant: constant.clone(), spec: spec(api, constructor) });
    }
    let built: Vec<Function> = match is_empty {
        true => Vec::new(),
        false => methods(interface).flat_map(|method| with_aliases(api, method)).collect(),
    };
    specs.extend(
        built
            .iter()
            .filter(|method| method.has_spec && method.aliases.is_empty())
            .map(|method| Spec { constant: method.constant.clone(), spec: method.spec.clone() }),
    );
    specs.dedup_by(|left, right| left.constant == right.constant);
    let has_new = interface.constructor.is_some() && factory.is_none() && !unbuilt;
    let advice = match &factory {
        Some(factory) => format!("a {0} is made by {0}.{factory}()", interface.name),
        None => format!("a {} is not made by `new`", interface.name),
    };
    let mut names = vec![format!("\"{}\"", interface.name)];
    names.extend(interface.inherits.iter().map(|base| format!("\"{base}\"")));
    Class {
        name: interface.name.clone(),
        summary: summary(api, &interface.doc),
        unbuilt: is_empty,
        advice,
        constructor: if has_new { constant.clone() } else { String::new() },
        factory: factory.unwrap_or_default(),
        factory_unbuilt: unbuilt,
        factory_call: match interface.name.as_str() {
            Type::MESH => format!("meshes.create({constant}, given)"),
            name => {
                let call = format!("calls.invokeAsync({constant}, null, given)");
                if base == Type::STORE { format!("opened(this, {name}, {call})") } else { call }
            }
        },
        attributes: attributes(interface),
        methods: built,
        specs,
        interfaces: names.join(", "),
        is_group: interface.name == "ProcessGroup",
        is_manager: interface.name == "Manager",
        is_store: interface.name == "Store",
        base,
    }
}

fn attributes(interface: &Interface) -> Vec<Property> {
    let mut properties = Vec::new();
    let known = interface.attributes.iter().filter(|it| !it.common.is_out_of(LANGUAGE));
    for attribute in known {
        let path = format!("{}.{}", interface.name, attribute.name);
        let key = key(&interface.name, &attribute.name);
        let record = format!("{{ key: \"{key}\", required: 0 }}");
        let unbuilt = attribute.common.unbuilt || interface.common.unbuilt;
        let (get, set) = match unbuilt {
            true => {
                let call = format!("calls.unsupported(\"{path}\")");
                (call.clone(), call)
            }
            false => (
                format!("calls.invoke({record}, this, [])"),
                format!("calls.invoke({{ key: \"{key}_SET\", required: 1 }}, this, [value])"),
            ),
        };
        let main = name(&attribute.name, &attribute.common);
        let others = aliases(&attribute.name, &attribute.common);
        for spelling in std::iter::once(main).chain(others) {
            let set = if attribute.readonly { String::new() } else { set.clone() };
            properties.push(Property { name: spelling, get: get.clone(), set });
        }
    }
    properties
}

/// A method under its name and under each of its aliases.
fn with_aliases(api: &Api, method: &Method) -> Vec<Function> {
    let main = function(api, method, "this");
    let others = main.aliases.clone();
    let mut all = vec![Function { aliases: Vec::new(), ..main }];
    for alias in others {
        let other = function(api, method, "this");
        all.push(Function { name: alias, aliases: vec![all[0].name.clone()], ..other });
    }
    all
}

fn function(api: &Api, method: &Method, receiver: &str) -> Function {
    let constant = key(&method.owner, &method.name);
    let receiver = if method.is_static { "null" } else { receiver };
    let call = |of: &str| format!("calls.{of}({constant}, {receiver}, given)");
    let around = AROUND.iter().find(|(name, ..)| *name == method.name);
    let receiver_first = if receiver == "null" { "" } else { "this, " };
    let kind = kind(method);
    let body = match (around, kind) {
        (Some((_, around, _)), _) => format!("{around}({constant}, {receiver_first}given)"),
        (None, _) if method.prepares.is_some() => format!("prepare({constant}, this, given)"),
        (None, Kind::Unbuilt) => format!("calls.unsupported(\"{}.{}\")", method.owner, method.name),
        (None, Kind::Operation) => call("operate"),
        (None, Kind::Objects) => format!("objects.{}({constant}, given)", camel(&method.name)),
        (None, Kind::Waits) => call("invokeAsync"),
        (None, Kind::Plain) => call("invoke"),
    };
    Function {
        name: name(&method.name, &method.common),
        summary: summary(api, &method.doc),
        has_spec: kind != Kind::Unbuilt,
        has_arguments: kind != Kind::Unbuilt,
        is_static: method.is_static,
        spec: spec(api, method),
        constant,
        body,
        aliases: aliases(&method.name, &method.common),
    }
}
