//! The views of the typed methods, and of the traits of what they take after their tensors.

use askama::Template;

use super::calls::method_constant;
use super::options::{Options, views};
use super::values::source;
use super::{any_of, doc_comment};
use crate::languages::stamp;
use crate::model::names::camel_case;
use crate::model::{self, Api, Parameter, Role, Type};

#[derive(Template)]
#[template(path = "rust/arguments.rs.jinja", escape = "none")]
pub(super) struct AllArguments {
    stamp: String,
    all_options: Vec<Options>,
    all: Vec<Arguments>,
}

struct Arguments {
    name: String,
    method: String,
    forms: Vec<Form>,
    doc: String,
    note: String,
}

/// A type that a trait is implemented for.
struct Form {
    generics: &'static str,
    ty: String,
}

#[derive(Template)]
#[template(path = "rust/process_group.rs.jinja", escape = "none")]
pub(super) struct ProcessGroup {
    stamp: String,
    methods: Vec<Method>,
}

#[derive(Template)]
#[template(path = "rust/scope.rs.jinja", escape = "none")]
pub(super) struct Scope {
    stamp: String,
    methods: Vec<Method>,
}

struct Method {
    name: String,
    /// What it does, what it takes, its errors.
    doc: String,
    generics: String,
    buffers: Vec<Buffer>,
    arguments: String,
    constant: String,
    /// The short way, if the call can go it.
    at_once: String,
}

pub(super) struct Buffer {
    pub(super) name: String,
    role: String,
    pub(super) borrowed: String,
    scoped: String,
    lend: &'static str,
}

pub(super) fn arguments(api: &Api) -> AllArguments {
    let all = typed(api).map(|method| {
        let shown = shown_forms(method);
        Arguments {
            name: trait_name(method),
            method: method.name.clone(),
            forms: forms(method),
            doc: doc_comment(&format!(
                "What `{}` takes after its tensors: {}.",
                method.name,
                any_of(&shown)
            )),
            note: format!("it takes {}{}", any_of(&shown), explanation(&shown)),
        }
    });
    AllArguments { stamp: stamp(&source(api)), all: all.collect(), all_options: views(api) }
}

pub(super) fn process_group(api: &Api) -> ProcessGroup {
    ProcessGroup { stamp: stamp(&source(api)), methods: methods(api) }
}

pub(super) fn scope(api: &Api) -> Scope {
    Scope { stamp: stamp(&source(api)), methods: methods(api) }
}

/// The collectives of `ProcessGroup` that are built.
pub(super) fn typed(api: &Api) -> impl Iterator<Item = &model::Method> {
    let groups = api.interfaces.iter().filter(|interface| interface.name == "ProcessGroup");
    let methods = groups.flat_map(|interface| &interface.methods);
    methods.filter(|method| method.collective.is_some() && !method.common.unbuilt)
}

fn methods(api: &Api) -> Vec<Method> {
    typed(api).map(|method| view(api, method)).collect()
}

fn view(api: &Api, method: &model::Method) -> Method {
    let parameters = method.overloads.first().map(|it| it.parameters.as_slice());
    let parameters = parameters.unwrap_or_default().iter().filter(|it| is_buffer(it));
    let generics: Vec<char> = ('A'..='Z').take(parameters.clone().count()).collect();
    let buffers: Vec<Buffer> =
        parameters.zip(&generics).map(|(parameter, generic)| buffer(parameter, *generic)).collect();
    Method {
        name: method.name.clone(),
        doc: doc_comment(&documentation(api, method, method)),
        generics: bounds(&buffers),
        at_once: at_once(&buffers),
        buffers,
        arguments: trait_name(method),
        constant: method_constant(method),
    }
}

/// What runs the call immediately, if its tensors are what the short way takes.
fn at_once(buffers: &[Buffer]) -> String {
    let roles: Vec<String> = buffers.iter().map(|it| format!("Role::{}", it.role)).collect();
    let (run, memory) = match buffers {
        [] => ("run_without", String::new()),
        [one] if one.role == "InOut" => ("run_in_place", format!(", in_place({})", one.name)),
        [out, from] if out.lend == "lend_mut" && from.lend == "lend" => {
            ("run_apart", format!(", apart({}, {})", out.name, from.name))
        }
        _ => return String::new(),
    };
    format!(
        "if let Some(done) = self.{run}(call.plain(&[{}]){memory}) {{ return done; }}",
        roles.join(", "),
    )
}

/// The type parameters of tensors, `A` and so on: `<A: Buffers + ?Sized>`.
pub(super) fn bounds(buffers: &[Buffer]) -> String {
    let bounds = buffers.iter().zip('A'..='Z').map(|(buffer, generic)| {
        let bound = if buffer.lend == "lend" { "ConstBuffers" } else { "Buffers" };
        format!("{generic}: {bound} + ?Sized")
    });
    let bounds: Vec<String> = bounds.collect();
    if bounds.is_empty() { String::new() } else { format!("<{}>", bounds.join(", ")) }
}

/// A tensor parameter, whose type is the parameter `generic`.
pub(super) fn buffer(parameter: &Parameter, generic: char) -> Buffer {
    let reads = matches!(parameter.role, Role::In | Role::FlatIn);
    let word = if reads { "" } else { "mut " };
    Buffer {
        name: parameter.name.clone(),
        role: format!("{:?}", parameter.role),
        borrowed: format!("&{word}{generic}"),
        scoped: format!("&'scope {word}{generic}"),
        lend: if reads { "lend" } else { "lend_mut" },
    }
}

/// What `method` does, in the words of `described`, and what it takes and raises.
pub(super) fn documentation(
    api: &Api,
    described: &model::Method,
    method: &model::Method,
) -> String {
    let (doc, aliases, errors) = (&described.doc, aliases(described), errors(api, method));
    let accepted = documentation_of_arguments(method);
    format!(
        "{doc}{aliases}\n\n`arguments`: {accepted}. Returns when it is done.\n\n# Errors\n{errors}"
    )
}

/// What may follow the tensors, for people.
pub(super) fn documentation_of_arguments(method: &model::Method) -> String {
    any_of(&shown_forms(method))
}

fn aliases(method: &model::Method) -> String {
    let names: Vec<String> = method.common.aliases.iter().map(|it| format!("`{it}`")).collect();
    if names.is_empty() { String::new() } else { format!("\n\nFormerly {}.", names.join(", ")) }
}

/// The kinds of error that the IDL names, and the ones that every operation can end with.
fn errors(api: &Api, method: &model::Method) -> String {
    let always = ["InvalidArgument", "CollectiveTimeout", "RankFailed", "Aborted"];
    let throws = method.common.throws.iter().map(String::as_str);
    let mut lines = Vec::new();
    for name in throws.chain(always) {
        let Some(error) = api.errors.iter().find(|error| error.name == name) else { continue };
        let variant = error.common.rust.as_ref().unwrap_or(&error.name);
        let doc = error.doc.lines().next().unwrap_or_default();
        let line = format!("- [`Error::{variant}`](crate::Error::{variant}): {doc}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

pub(super) fn is_buffer(parameter: &Parameter) -> bool {
    matches!(parameter.role, Role::In | Role::Out | Role::InOut | Role::FlatIn | Role::FlatOut)
}

pub(super) fn trait_name(method: &model::Method) -> String {
    format!("{}Arguments", camel_case(&method.name))
}

/// What may follow the tensors, over all overloads, each once.
fn forms(method: &model::Method) -> Vec<Form> {
    let mut forms = Vec::new();
    for types in choices(method) {
        let has = |mark: &str| types.iter().any(|ty| ty == mark);
        let roots: &[&str] = if has(ROOT) { &["u32", "usize", "i32"] } else { &[""] };
        let splits: &[&str] =
            if has(SPLITS) { &["&[usize]", "&[usize; N]", "&Vec<usize>"] } else { &[""] };
        for (root, splits) in roots.iter().flat_map(|root| splits.iter().map(move |it| (root, it)))
        {
            let generics = if splits.contains('N') { "<const N: usize>" } else { "" };
            let ty = tuple(&replace(&replace(&types, ROOT, root), SPLITS, splits));
            forms.push(Form { generics, ty });
        }
    }
    forms
}

/// As [`forms`], for people: one spelling of each.
fn shown_forms(method: &model::Method) -> Vec<String> {
    let by_value = |types: &Vec<String>| !types.iter().any(|ty| ty.starts_with('&'));
    let show = |types: Vec<String>| {
        let types = replace(&types, ROOT, "root");
        format!("`{}`", tuple(&replace(&types, SPLITS, "&[usize]")))
    };
    choices(method).into_iter().filter(by_value).map(show).collect()
}

fn explanation(shown: &[String]) -> &'static str {
    let has_root = shown.iter().any(|form| form.contains("root"));
    if has_root { "; `root` is a `u32`, `usize` or `i32`" } else { "" }
}

/// Stands for the types that a root may have.
const ROOT: &str = "{root}";

/// Stands for the types that a list of row counts may have.
const SPLITS: &str = "{splits}";

fn replace(types: &[String], mark: &str, spelling: &str) -> Vec<String> {
    types.iter().map(|ty| ty.replace(mark, spelling)).collect()
}

fn tuple(types: &[String]) -> String {
    match types {
        [only] => only.clone(),
        several => format!("({})", several.join(", ")),
    }
}

/// Every choice of what follows the tensors, in every overload: all that is required, and any
/// of the rest, in order. Where two choices have the same types, the first counts.
fn choices(method: &model::Method) -> Vec<Vec<String>> {
    let mut choices: Vec<Vec<String>> = Vec::new();
    for overload in &method.overloads {
        let rest: Vec<&Parameter> =
            overload.parameters.iter().filter(|it| !is_buffer(it)).collect();
        let optional: Vec<usize> = (0..rest.len()).filter(|&index| rest[index].optional).collect();
        for chosen in 0u32..1 << optional.len() {
            let taken = |index: &usize| match optional.iter().position(|it| it == index) {
                Some(bit) => chosen & (1 << bit) != 0,
                None => true,
            };
            let parameters = (0..rest.len()).filter(taken).map(|index| rest[index]);
            let parameters: Vec<_> = parameters.collect();
            // Which of two lists the only one is could not be told.
            if splits(&parameters) == 1 && splits(&rest) > 1 {
                continue;
            }
            for types in spelled(&parameters) {
                if !choices.contains(&types) {
                    choices.push(types);
                }
            }
        }
    }
    choices
}

/// The Rust types of these parameters: an options struct is taken by value and by reference.
/// Nothing if one has no Rust type.
fn spelled(parameters: &[&Parameter]) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for parameter in parameters {
        let types = match (parameter.role, parameter.ty.non_null()) {
            (Role::Options, Type::Dictionary(name)) => vec![name.clone(), format!("&{name}")],
            (Role::Op, _) => vec!["ReduceOp".to_owned()],
            (Role::Timeout, _) => vec!["Duration".to_owned()],
            (Role::Root, _) => vec![ROOT.to_owned()],
            (Role::InSplits | Role::OutSplits, _) => vec![SPLITS.to_owned()],
            _ => return Vec::new(),
        };
        let longer = |start: &Vec<String>| {
            let extended =
                types.iter().map(|ty| [start.as_slice(), std::slice::from_ref(ty)].concat());
            extended.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// How many lists of splits there are.
fn splits(parameters: &[&Parameter]) -> usize {
    let is_splits = |it: &&&Parameter| matches!(it.role, Role::InSplits | Role::OutSplits);
    parameters.iter().filter(is_splits).count()
}
