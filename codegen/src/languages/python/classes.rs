//! Methods of classes, and free functions: what each does with its arguments.

use askama::Template;

use super::spelling::{lines, method_doc, name, rust_doc, table, text_signature};
use crate::languages::plain::{given, is_direct, taken};
use crate::languages::stamp;
use crate::model::names::snake_case;
use crate::model::{Api, Attribute, Interface, Method, Role, Type};

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
    unbuilt: Vec<Unbuilt>,
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
    /// The module of the bodies: `tcp_store`.
    bodies: String,
    /// The table of the constructor; empty if the user cannot make one.
    constructor: String,
    methods: Vec<Function>,
    attributes: Vec<Property>,
}

/// A class that only stands in the surface.
struct Unbuilt {
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
    /// Whether it is over when one message is: a short one can be tried at once.
    waits_for_message: bool,
    bodies: String,
    /// For a direct call: `let key: String = call.take(0)?;` lines.
    takes: Vec<String>,
    /// For a direct call: the core's method and its arguments.
    direct: String,
}

/// What a method does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unbuilt,
    Collective,
    Body,
    Direct,
}

impl Function {
    fn is(&self, kind: &str) -> bool {
        match self.kind {
            Kind::Unbuilt => kind == "unbuilt",
            Kind::Collective => kind == "collective",
            Kind::Body => kind == "body",
            Kind::Direct => kind == "direct",
        }
    }
}

struct Property {
    rust: String,
    python: String,
    doc: String,
    setter: bool,
    unbuilt: bool,
    handwritten: bool,
    core: String,
    bodies: String,
    /// For messages: `ProcessGroup.timeout`.
    path: String,
}

pub(super) fn index(_api: &Api) -> Index {
    Index { stamp: stamp("idl/*.webidl") }
}

/// What `classes.rs` prints.
pub(super) fn view(api: &Api) -> Classes {
    let built = api.interfaces.iter().filter(|interface| !interface.notes.unbuilt);
    let unbuilt = api.interfaces.iter().filter(|interface| interface.notes.unbuilt);
    let dtypes = api
        .dtypes
        .iter()
        .map(|dtype| (dtype.name.clone(), dtype.variant.clone(), dtype.name.to_uppercase()));
    Classes {
        stamp: stamp("idl/*.webidl"),
        classes: built.map(|interface| class(api, interface)).collect(),
        unbuilt: unbuilt
            .map(|interface| Unbuilt {
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
    let all_by_hand = interface.notes.handwritten;
    let methods = interface.methods.iter();
    let mut methods: Vec<Function> =
        methods.flat_map(|method| with_aliases(api, method, all_by_hand)).collect();
    methods.sort_by_key(|method| method.is_static);
    Class {
        name: interface.name.clone(),
        bodies: snake_case(&interface.name),
        constructor: interface.constructor.as_ref().map(table).unwrap_or_default(),
        methods,
        attributes: interface.attributes.iter().flat_map(|a| property(api, interface, a)).collect(),
    }
}

/// A method under its name and under each of its aliases.
fn with_aliases(api: &Api, method: &Method, by_hand: bool) -> Vec<Function> {
    let python = name(&method.name, &method.notes);
    let mut all = vec![function(api, method, by_hand, python)];
    for (number, alias) in method.notes.aliases.iter().enumerate() {
        let mut other = function(api, method, by_hand, alias);
        // Aliases may differ in underscores only, which the Rust names here do not have.
        other.rust = format!("py_{}_alias_{number}", method.name);
        other.doc = rust_doc(&[format!("Another name of `{python}`.")], "");
        all.push(other);
    }
    all
}

fn function(api: &Api, method: &Method, by_hand: bool, python: &str) -> Function {
    let is_function = api.namespaces.iter().any(|namespace| namespace.name == method.owner);
    let by_hand = by_hand || is_function || method.notes.handwritten;
    let kind = if method.notes.unbuilt {
        Kind::Unbuilt
    } else if method.collective.is_some() {
        Kind::Collective
    } else if by_hand || !is_direct(method) {
        Kind::Body
    } else {
        Kind::Direct
    };
    let parameters = method.overloads.first().map_or(&[][..], |first| &first.parameters);
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
    let takes = parameters.iter().enumerate().map(|(position, parameter)| {
        format!("let {}: {} = call.take({position})?;", parameter.name, taken(&parameter.ty))
    });
    let arguments: Vec<String> =
        parameters.iter().map(|parameter| given(&parameter.name, &parameter.ty)).collect();
    let core = method.notes.rust.as_deref().unwrap_or(&method.name);
    Function {
        rust: format!("py_{}", snake_case(python.trim_start_matches('_'))),
        doc: rust_doc(&method_doc(api, method), ""),
        options: options.join(", "),
        is_static: method.is_static,
        has_parameters,
        path: format!("{}.{}", method.owner, method.name),
        table: table(method),
        kind,
        waits_for_message: is_function && waits_for_message(method),
        bodies: format!("{}::{}", snake_case(&method.owner), method.name),
        takes: takes.collect(),
        direct: format!("{core}({})", arguments.join(", ")),
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
    let python = name(&attribute.name, &attribute.notes).to_owned();
    let spellings = std::iter::once(&python).chain(&attribute.notes.aliases);
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
            unbuilt: attribute.notes.unbuilt,
            handwritten: attribute.notes.handwritten || interface.notes.handwritten,
            core: attribute.notes.rust.clone().unwrap_or_else(|| attribute.name.clone()),
            bodies: format!("{}::{}", snake_case(&interface.name), attribute.name),
            path: format!("{}.{}", interface.name, attribute.name),
        })
        .collect()
}
