//! The stub `_core.pyi`: what type checkers and editors see.

use std::cmp::Ordering;

use askama::Template;

use super::callback_arguments::told;
use super::classes::is_filled;
use super::records::{own_members, records};
use super::spelling::{
    accepted, camel_member, docstring, exception, lines, method_doc, name, parameter, returned,
    returned_by_attribute, returned_by_function,
};
use crate::languages::stamp;
use crate::model::{
    Api, Dictionary, ErrorKind, Interface, Method, Overload, Parameter, Role, Type,
};

/// `_core.pyi`.
#[derive(Template)]
#[template(path = "python/core.pyi.jinja", escape = "none")]
pub(super) struct Stub {
    stamp: String,
    dtype_doc: String,
    dtypes: Vec<(String, String)>,
    reduce_op_doc: String,
    reduce_ops: Vec<(String, String)>,
    errors: Vec<Exception>,
    records: Vec<Class>,
    classes: Vec<Class>,
    functions: Vec<Function>,
    /// Values of the module: name, type, doc.
    values: Vec<(String, String, String)>,
    /// Enums whose values are returned.
    enums: String,
    /// Whether some call takes one of a few strings.
    has_literals: bool,
    /// Every public name, sorted.
    all: Vec<String>,
}

struct Exception {
    name: String,
    bases: String,
    doc: String,
    /// Name, type.
    fields: Vec<(String, String)>,
}

struct Class {
    name: String,
    bases: String,
    /// What stands before it: `@final`, `@disjoint_base`, or nothing.
    decorator: &'static str,
    doc: String,
    properties: Vec<Property>,
    methods: Vec<Function>,
    /// Members that only Python has.
    extra: &'static str,
}

struct Property {
    name: String,
    returns: String,
    /// The type that it takes; empty if it cannot be set.
    takes: String,
    doc: String,
}

pub(super) struct Function {
    name: String,
    is_overloaded: bool,
    is_static: bool,
    pub(super) forms: Vec<Form>,
    /// Other names of it.
    aliases: Vec<String>,
}

pub(super) struct Form {
    pub(super) parameters: String,
    pub(super) returns: String,
    doc: String,
}

/// Members that Python has and the IDL does not: protocols of the language.
const EXTRA: &[(&str, &str)] = &[
    ("Work", include_str!("../../../templates/python/work.pyi")),
    ("ProcessGroup", include_str!("../../../templates/python/process_group.pyi")),
    ("DeviceMesh", include_str!("../../../templates/python/device_mesh.pyi")),
    ("Future", include_str!("../../../templates/python/future.pyi")),
    ("NonGroupMember", include_str!("../../../templates/python/non_group_member.pyi")),
    ("CommNameBlock", include_str!("../../../templates/python/comm_name_block.pyi")),
    ("CurrentProcessGroup", include_str!("../../../templates/python/current_process_group.pyi")),
];

/// What the root class has: None where it has no meaning, so that no class below it may say more;
/// but every error has a message.
const COMMON_FIELDS: [&str; 6] = ["kind", "message", "rank", "collective", "seq", "group"];

/// What the template prints.
pub(super) fn view(api: &Api) -> Stub {
    let dtypes = api.dtypes.iter().map(|dtype| (dtype.name.clone(), one_line(&dtype.doc)));
    let ops = api.reduce_ops.iter().map(|op| (op.name.clone(), one_line(&op.doc)));
    let namespaces = api.namespaces.iter();
    let values = api.namespaces.iter().flat_map(|namespace| &namespace.attributes);
    let values =
        values.map(|value| (value.name.clone(), returned(api, &value.ty), one_line(&value.doc)));
    let numbered = api.enums.iter().filter(|known| !known.common.constants && known.is_numbered());
    let numbered = numbered.map(|known| known.name.as_str());
    let mut stub = Stub {
        stamp: stamp("idl/*.webidl"),
        dtype_doc: docstring(&lines(api, &api.dtype_doc), "    "),
        dtypes: dtypes.collect(),
        reduce_op_doc: docstring(&lines(api, &api.reduce_op_doc), "    "),
        reduce_ops: ops.collect(),
        errors: errors_in_order(api).into_iter().map(|error| exception_of(api, error)).collect(),
        records: records(api).map(|record| record_class(api, record)).collect(),
        classes: told(api)
            .map(|known| told_class(api, known))
            .chain(api.interfaces.iter().map(|interface| class(api, interface)))
            .collect(),
        functions: namespaces
            .flat_map(|namespace| &namespace.functions)
            .map(|method| function(api, method, "", "    "))
            .collect(),
        values: values.collect(),
        enums: numbered.collect::<Vec<_>>().join(", "),
        has_literals: false,
        all: Vec::new(),
    };
    let classes = stub.records.iter().chain(&stub.classes).flat_map(|class| &class.methods);
    let mut forms = classes.chain(&stub.functions).flat_map(|function| &function.forms);
    stub.has_literals = forms.any(|form| form.parameters.contains("Literal["));
    stub.all = all(&stub);
    stub
}

/// Every public name of the module, sorted.
fn all(stub: &Stub) -> Vec<String> {
    let by_hand = ["DType", "ReduceOp", "premul_sum", "PolyrankError", "DistError", "Options"];
    let mut all: Vec<String> = by_hand.map(str::to_owned).into();
    all.extend(stub.errors.iter().map(|error| error.name.clone()));
    all.extend(stub.records.iter().chain(&stub.classes).map(|class| class.name.clone()));
    all.extend(stub.values.iter().map(|value| value.0.clone()));
    for function in &stub.functions {
        all.push(function.name.clone());
        all.extend(function.aliases.iter().cloned());
    }
    all.sort();
    all
}

/// Parents before their children: a stub is read from the top by people, too.
fn errors_in_order(api: &Api) -> Vec<&ErrorKind> {
    let mut ordered: Vec<&ErrorKind> = Vec::new();
    let mut waiting: Vec<&ErrorKind> = api.errors.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|error| {
            let is_ready = error
                .parent
                .as_ref()
                .is_none_or(|parent| ordered.iter().any(|known| known.name == *parent));
            if is_ready {
                ordered.push(error);
            }
            !is_ready
        });
        if waiting.len() == before {
            // The model allows no cycles; printing is better than looping.
            ordered.append(&mut waiting);
        }
    }
    ordered
}

fn exception_of(api: &Api, error: &ErrorKind) -> Exception {
    let parent = error.parent.as_ref().map(|parent| exception(api, parent));
    let mut bases = vec![parent.unwrap_or_else(|| "PolyrankError".into())];
    bases.extend(error.bases.iter().cloned());
    let fields = error.fields.iter().map(|field| {
        let ty = match &field.ty {
            Type::Sequence(_) => "list[int]",
            ty if ty.is_integer() => "int",
            _ => "str",
        };
        let or_none = if api.is_lacked_by_case(error, &field.name) { " | None" } else { "" };
        (name(&field.name, &field.common).to_owned(), format!("{ty}{or_none}"))
    });
    // What a class above may lack is of its type below it, too: it can be set.
    let is_above = |name: &str| {
        api.parents(error).any(|above| {
            above.fields.iter().any(|field| field.name == name)
                && api.is_lacked_by_case(above, name)
        })
    };
    let is_own = |name: &str| !COMMON_FIELDS.contains(&name) && !is_above(name);
    Exception {
        name: exception(api, &error.name),
        bases: bases.join(", "),
        doc: docstring(&lines(api, &error.doc), "    "),
        fields: fields.filter(|(name, _)| is_own(name)).collect(),
    }
}

fn record_class(api: &Api, record: &Dictionary) -> Class {
    let mut properties = Vec::new();
    for (_, member) in own_members(api, record) {
        let spellings = std::iter::once(member.name.clone()).chain(camel_member(&member.name));
        for (index, spelling) in spellings.enumerate() {
            let doc = match index {
                0 => docstring(&lines(api, &member.doc), "        "),
                _ => docstring(&[format!("c10d's spelling of `{}`.", member.name)], "        "),
            };
            let takes = accepted(api, &member.ty);
            let returns = takes.replace("SupportsIndex", "int").replace("object", "Any");
            properties.push(Property { name: spelling, returns, takes, doc });
        }
    }
    let arguments: Vec<String> = record
        .members
        .iter()
        .map(|member| format!("{}: {} = ...", member.name, accepted(api, &member.ty)))
        .collect();
    let constructor = Form {
        parameters: format!("cls, {}", arguments.join(", ")),
        returns: "Self".into(),
        doc: String::new(),
    };
    let constructor = Function {
        name: "__new__".into(),
        is_overloaded: false,
        is_static: false,
        forms: vec![constructor],
        aliases: Vec::new(),
    };
    Class {
        name: record.name.clone(),
        bases: record.inherits.clone().unwrap_or_else(|| "Options".into()),
        decorator: "",
        doc: docstring(&lines(api, &record.doc), "    "),
        properties,
        methods: vec![constructor],
        extra: "",
    }
}

/// The class of what callbacks are given.
fn told_class(api: &Api, known: &Dictionary) -> Class {
    let properties = known.members.iter().map(|member| Property {
        name: member.name.clone(),
        returns: returned(api, &member.ty),
        takes: String::new(),
        doc: docstring(&lines(api, &member.doc), "        "),
    });
    Class {
        name: known.name.clone(),
        bases: String::new(),
        decorator: "@final",
        doc: docstring(&lines(api, &known.doc), "    "),
        properties: properties.collect(),
        methods: Vec::new(),
        extra: "",
    }
}

fn class(api: &Api, interface: &Interface) -> Class {
    let mut properties = Vec::new();
    let mut methods = Vec::new();
    if let Some(constructor) = &interface.constructor {
        let (name, receiver, returns) = match is_filled(interface) {
            true => ("__init__", "self", "None"),
            false => ("__new__", "cls", "Self"),
        };
        let mut made = function(api, constructor, receiver, "        ");
        made.name = name.into();
        for form in &mut made.forms {
            form.returns = returns.into();
            if form.parameters == receiver {
                // What a compiled class shows of its constructor, made to take nothing.
                form.parameters = format!("{receiver}, *positional: Never, **keywords: Never");
            }
        }
        methods.push(made);
    }
    // An unbuilt class has no members: nobody can have an instance.
    if !interface.common.unbuilt {
        for attribute in &interface.attributes {
            let spelling = name(&attribute.name, &attribute.common).to_owned();
            for spelling in std::iter::once(spelling).chain(attribute.common.aliases.clone()) {
                properties.push(Property {
                    name: spelling,
                    returns: returned_by_attribute(api, &attribute.ty),
                    takes: match attribute.readonly {
                        true => String::new(),
                        false => accepted(api, &attribute.ty),
                    },
                    doc: docstring(&lines(api, &attribute.doc), "        "),
                });
            }
        }
        methods.extend(interface.methods.iter().map(|m| function(api, m, "self", "        ")));
    }
    let extra = EXTRA.iter().find(|(name, _)| *name == interface.name);
    let is_base = api.interfaces.iter().any(|i| i.inherits.as_ref() == Some(&interface.name));
    let bases = interface.inherits.clone().filter(|_| !interface.common.unbuilt);
    Class {
        name: interface.name.clone(),
        decorator: match bases {
            None if !is_base => "@final",
            // Its memory layout is its own, so that no class can inherit from it and another such.
            _ if is_base => "@disjoint_base",
            _ => "",
        },
        bases: bases.unwrap_or_default(),
        doc: docstring(&lines(api, &interface.doc), "    "),
        properties,
        methods,
        extra: extra.map_or("", |(_, text)| text.trim_end()),
    }
}

pub(super) fn function(api: &Api, method: &Method, receiver: &str, indent: &str) -> Function {
    let is_function = receiver.is_empty();
    let receiver = if method.is_static { "" } else { receiver };
    let mut forms = Vec::new();
    for overload in &method.overloads {
        let returns = match overload.returns {
            // A result of `undefined` is None.
            Type::Undefined => "None".into(),
            ref returns if is_function => returned_by_function(api, returns),
            ref returns => returned(api, returns),
        };
        if is_function && overload.parameters.iter().any(|it| it.role == Role::AsyncOp) {
            forms.extend(forms_by_async_op(api, overload, returns));
        } else {
            let parameters = parameters(api, overload, receiver);
            forms.push(Form { parameters, returns, doc: String::new() });
        }
    }
    if let Some(first) = forms.first_mut() {
        first.doc = docstring(&method_doc(api, method), indent);
    }
    Function {
        name: name(&method.name, &method.common).to_owned(),
        is_overloaded: forms.len() > 1,
        is_static: method.is_static,
        forms,
        aliases: method.common.aliases.clone(),
    }
}

/// The forms of a function that returns a `Work` where `async_op` says so: without it nothing, with
/// it by name or by position a `Work`, unless the process is not in the group, and of a value that
/// is not known before the call, either.
fn forms_by_async_op(api: &Api, overload: &Overload, either: String) -> Vec<Form> {
    let handle = either.trim_end_matches(" | None").to_owned();
    let place = overload.parameters.iter().position(|known| known.role == Role::AsyncOp);
    let form = |returns: &str, spell: &dyn Fn(usize, &Parameter) -> String| {
        let parameters = overload.parameters.iter().enumerate();
        let parameters: Vec<_> = parameters.map(|(at, known)| spell(at, known)).collect();
        Form { parameters: parameters.join(", "), returns: returns.to_owned(), doc: String::new() }
    };
    let of_member = |known: &Parameter| parameter(api, known).replace(NON_MEMBER_TOO, "");
    let without = form("None", &|at, known| match Some(at) == place {
        true => "async_op: Literal[False] = False".to_owned(),
        false => parameter(api, known),
    });
    let by_name = form(&handle, &|at, known| match Some(at) == place {
        true => "*, async_op: Literal[True]".to_owned(),
        false => of_member(known),
    });
    let by_position = form(&handle, &|at, known| match Some(at).cmp(&place) {
        Ordering::Less => of_member(known).split(" = ").next().unwrap_or_default().to_owned(),
        Ordering::Equal => "async_op: Literal[True]".to_owned(),
        Ordering::Greater => of_member(known),
    });
    let unknown = form(&either, &|_, known| parameter(api, known));
    vec![without, by_name, by_position, unknown]
}

/// What a group may be besides, for a process that is not in it.
const NON_MEMBER_TOO: &str = " | NonGroupMember";

fn parameters(api: &Api, overload: &Overload, receiver: &str) -> String {
    let receiver = (!receiver.is_empty()).then(|| receiver.to_owned());
    let parameters = overload.parameters.iter().map(|known| parameter(api, known));
    receiver.into_iter().chain(parameters).collect::<Vec<_>>().join(", ")
}

fn one_line(doc: &str) -> String {
    doc.replace('\n', " ")
}
