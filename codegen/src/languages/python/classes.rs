//! Methods of classes, and free functions: what each does with its arguments.

use askama::Template;

use super::spelling::{attribute_entry, lines, method_doc, name, rust_doc, table, text_signature};
use crate::languages::roads::{is_object, is_run_by_core};
use crate::languages::stamp;
use crate::model::names::snake_case;
use crate::model::{Api, Attribute, CommonAttributes, Interface, Method, Role, Type};

/// `mod.rs`.
#[derive(Template)]
#[template(path = "python/mod.rs.jinja", escape = "none")]
pub(super) struct Index {
    stamp: String,
}

/// `classes.rs`.
#[derive(Template)]
#[template(path = "python/classes.rs.jinja", escape = "none")]
pub(super) struct Classes {
    stamp: String,
    classes: Vec<Class>,
    unbuilt: Vec<UnbuiltClass>,
    /// Name, variant, name of the constant.
    dtypes: Vec<(String, String, String)>,
}

/// `functions.rs`.
#[derive(Template)]
#[template(path = "python/functions.rs.jinja", escape = "none")]
pub(super) struct Functions {
    stamp: String,
    functions: Vec<Function>,
}

struct Class {
    name: String,
    /// The module of what is written by hand: `tcp_store`.
    implementations: String,
    /// The table of the constructor; empty if the user cannot make one.
    constructor: String,
    /// Whether core makes its objects.
    is_made_by_core: bool,
    /// Whether `__init__` makes what an object has, so that derived classes have one of their own.
    is_filled: bool,
    /// The class that it is derived from, if there is one.
    base: String,
    methods: Vec<Function>,
    attributes: Vec<Property>,
}

/// A class that is only in the surface.
struct UnbuiltClass {
    name: String,
    has_constructor: bool,
    doc: String,
}

struct Function {
    /// The name in Rust.
    rust: String,
    doc: String,
    /// The whole `#[pyo3(…)]`.
    options: String,
    is_static: bool,
    has_parameters: bool,
    /// For messages: `ProcessGroup.allreduce`.
    path: String,
    table: String,
    kind: Kind,
    /// Whether it is over when one message is: a short one can be tried immediately.
    waits_for_message: bool,
    /// Whether it copies elements to or from memory that may be mapped: that can be tried.
    copies: bool,
    /// The function that is written by hand: `work::wait`.
    implementation: String,
}

/// What a method does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unbuilt,
    Collective,
    /// It is prepared once, to be started often.
    Prepares,
    /// Core runs it.
    Core,
    /// It is written by hand for Python.
    Own,
}

impl Function {
    fn is(&self, kind: &str) -> bool {
        match self.kind {
            Kind::Unbuilt => kind == "unbuilt",
            Kind::Collective => kind == "collective",
            Kind::Prepares => kind == "prepares",
            Kind::Core => kind == "core",
            Kind::Own => kind == "own",
        }
    }
}

struct Property {
    rust: String,
    python: String,
    doc: String,
    setter: bool,
    unbuilt: bool,
    /// Core's entry: `STORE_TIMEOUT`; empty if it is written by hand for Python.
    entry: String,
    implementation: String,
    /// For messages: `ProcessGroup.timeout`.
    path: String,
}

pub(super) fn index(_api: &Api) -> Index {
    Index { stamp: stamp("idl/*.webidl") }
}

/// What `classes.rs` prints.
pub(super) fn view(api: &Api) -> Classes {
    let built = api.interfaces.iter().filter(|interface| !interface.common.unbuilt);
    let unbuilt = api.interfaces.iter().filter(|interface| interface.common.unbuilt);
    let dtypes = api
        .dtypes
        .iter()
        .map(|dtype| (dtype.name.clone(), dtype.variant.clone(), dtype.name.to_uppercase()));
    Classes {
        stamp: stamp("idl/*.webidl"),
        classes: built.map(|interface| class(api, interface)).collect(),
        unbuilt: unbuilt
            .map(|interface| UnbuiltClass {
                name: interface.name.clone(),
                has_constructor: interface.constructor.is_some(),
                doc: rust_doc(&lines(api, &interface.doc), ""),
            })
            .collect(),
        dtypes: dtypes.collect(),
    }
}

/// What `functions.rs` prints.
pub(super) fn functions(api: &Api) -> Functions {
    let mut functions = Vec::new();
    for namespace in &api.namespaces {
        for method in &namespace.functions {
            functions.extend(with_aliases(api, method, true));
        }
    }
    Functions { stamp: stamp("idl/*.webidl"), functions }
}

fn class(api: &Api, interface: &Interface) -> Class {
    let is_core = is_object(api, interface);
    let methods = interface.methods.iter();
    let mut methods: Vec<Function> =
        methods.flat_map(|method| with_aliases(api, method, is_core)).collect();
    methods.sort_by_key(|method| method.is_static);
    let is_made_by_core = |constructor: &Method| kind(api, constructor, is_core) == Kind::Core;
    Class {
        name: interface.name.clone(),
        implementations: snake_case(&interface.name),
        is_made_by_core: interface.constructor.as_ref().is_some_and(is_made_by_core),
        constructor: interface.constructor.as_ref().map(table).unwrap_or_default(),
        is_filled: is_filled(interface),
        base: interface.inherits.clone().unwrap_or_default(),
        methods,
        attributes: interface.attributes.iter().flat_map(|a| property(api, interface, a)).collect(),
    }
}

/// Whether `__init__` makes what an object has: users derive classes from stores.
pub(super) fn is_filled(interface: &Interface) -> bool {
    interface.constructor.is_some() && interface.inherits.as_deref() == Some(Type::STORE)
}

/// A method under its name and under each of its aliases.
fn with_aliases(api: &Api, method: &Method, is_core: bool) -> Vec<Function> {
    let python = name(&method.name, &method.common);
    let mut all = vec![function(api, method, is_core, python)];
    for (number, alias) in method.common.aliases.iter().enumerate() {
        let mut other = function(api, method, is_core, alias);
        // Aliases may differ in underscores only, which the Rust names here do not have.
        other.rust = format!("py_{}_alias_{number}", method.name);
        other.doc = rust_doc(&[format!("Another name of `{python}`.")], "");
        all.push(other);
    }
    all
}

/// What a method does; `is_core`: whether it is one of an object of core, or a free function.
fn kind(api: &Api, method: &Method, is_core: bool) -> Kind {
    if method.common.unbuilt {
        Kind::Unbuilt
    } else if method.collective.is_some() {
        Kind::Collective
    } else if method.prepares.is_some() {
        Kind::Prepares
    } else if is_core
        && is_run_by_core(api, method)
        && !is_own(&method.common)
        && !returns_own(method)
    {
        Kind::Core
    } else {
        Kind::Own
    }
}

/// Whether a call returns before what it does is done, for which core's call is not, or a value of
/// a class of Python's own.
fn returns_own(method: &Method) -> bool {
    let is_own = |ty: &Type| match ty {
        Type::Interface(name) => name == "Work",
        Type::Enum(_) => true,
        _ => false,
    };
    method.overloads.iter().any(|overload| is_own(&overload.returns))
}

/// Whether it is written by hand for Python: also what JavaScript has a form of its own for.
fn is_own(common: &CommonAttributes) -> bool {
    !common.own.is_empty()
}

fn function(api: &Api, method: &Method, is_core: bool, python: &str) -> Function {
    let is_function = api.namespaces.iter().any(|namespace| namespace.name == method.owner);
    let has_parameters = method.overloads.iter().any(|overload| !overload.parameters.is_empty());
    let mut options = vec![format!("name = \"{python}\"")];
    if has_parameters {
        options.push("signature = (*positional, **keywords)".into());
        let receiver = if is_function || method.is_static { "" } else { "$self" };
        if let Some(signature) = text_signature(method, receiver) {
            options.push(format!("text_signature = \"{signature}\""));
        }
    } else {
        options.push("signature = ()".into());
    }
    Function {
        rust: format!("py_{}", snake_case(python.trim_start_matches('_'))),
        doc: rust_doc(&method_doc(api, method), ""),
        options: options.join(", "),
        is_static: method.is_static,
        has_parameters,
        path: format!("{}.{}", method.owner, method.name),
        table: table(method),
        kind: kind(api, method, is_core),
        waits_for_message: is_function && waits_for_message(method),
        copies: method.owner == "Window" && ["put", "get"].contains(&method.name.as_str()),
        implementation: format!("{}::{}", snake_case(&method.owner), method.name),
    }
}

/// Whether a call is one message, and over with it.
fn waits_for_message(method: &Method) -> bool {
    let [form] = method.overloads.as_slice() else { return false };
    let is_one = form.parameters.first().is_some_and(|tensor| tensor.ty == Type::Tensor);
    let has_peer = form.parameters.iter().any(|parameter| parameter.role == Role::GlobalPeer);
    is_one && has_peer && matches!(form.returns, Type::Undefined | Type::Long)
}

fn property(api: &Api, interface: &Interface, attribute: &Attribute) -> Vec<Property> {
    let python = name(&attribute.name, &attribute.common).to_owned();
    let spellings = std::iter::once(&python).chain(&attribute.common.aliases);
    spellings
        .enumerate()
        .map(|(number, spelling)| Property {
            rust: match number {
                0 => format!("get_{}", attribute.name),
                // Aliases may differ in letter case only, which the Rust names do not have.
                _ => format!("get_{}_alias_{number}", attribute.name),
            },
            python: spelling.clone(),
            doc: rust_doc(&lines(api, &attribute.doc), ""),
            setter: !attribute.readonly,
            unbuilt: attribute.common.unbuilt,
            entry: match is_object(api, interface) {
                true => attribute_entry(&interface.name, &attribute.name),
                false => String::new(),
            },
            implementation: format!("{}::{}", snake_case(&interface.name), attribute.name),
            path: format!("{}.{}", interface.name, attribute.name),
        })
        .collect()
}
