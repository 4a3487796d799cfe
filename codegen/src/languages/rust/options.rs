//! The views of options structs: those that collectives take, and those of single backends.

use askama::Template;

use super::doc_comment;
use crate::languages::plain::number;
use crate::languages::stamp;
use crate::model::{Api, Constant, Dictionary, Member, Role, Type};

#[derive(Template)]
#[template(path = "rust/options.rs.jinja", escape = "none")]
pub(super) struct AllOptions {
    stamp: String,
    all: Vec<Options>,
}

/// Options of a backend. A language passes them as a record, from which they are read.
#[derive(Template)]
#[template(path = "rust/backend_options.rs.jinja", escape = "none")]
pub(super) struct BackendOptions {
    stamp: String,
    all: Vec<Options>,
}

pub(super) struct Options {
    doc: String,
    pub(super) name: String,
    fields: Vec<Field>,
    derives_default: bool,
    /// The backend that alone takes them.
    backend: Option<String>,
    /// Fields that a call is told, and the method of `TypedCall` that takes each.
    pub(super) given: Vec<(String, &'static str)>,
}

struct Field {
    doc: String,
    name: String,
    ty: String,
    /// What its builder method takes.
    given: String,
    /// What its builder method stores.
    stored: String,
    default: String,
}

pub(super) fn options(api: &Api) -> AllOptions {
    let all: Vec<&Dictionary> = of_collectives(api).collect();
    let file = all.first().map_or("idl/*.webidl", |options| options.source.file.as_str());
    AllOptions { stamp: stamp(file), all: all.into_iter().map(view).collect() }
}

pub(super) fn of_backends(api: &Api) -> BackendOptions {
    let extensions: Vec<&Dictionary> = api.extensions(OF_GROUPS).collect();
    let inside = extensions.iter().flat_map(|it| &it.members).filter_map(|it| it.ty.named());
    let inside: Vec<&str> = inside.collect();
    let is_inside = |known: &&Dictionary| inside.contains(&known.name.as_str());
    let base = api.dictionaries.iter().find(|known| known.name == OF_GROUPS);
    let inherited = base.map_or(0, |base| base.members.len());
    let own = extensions.iter().map(|it| view_of(it, &it.members[inherited..]));
    let all = api.dictionaries.iter().filter(is_inside).map(view).chain(own).collect();
    let file = base.map_or("idl/*.webidl", |base| base.source.file.as_str());
    BackendOptions { stamp: stamp(file), all }
}

/// The options with which groups are made. Their own members are arguments in Rust.
const OF_GROUPS: &str = Type::OPTIONS_OF_GROUPS;

/// The structs as [`options`] has them.
pub(super) fn views(api: &Api) -> Vec<Options> {
    of_collectives(api).map(view).collect()
}

/// The dictionaries that some collective that is built takes.
fn of_collectives(api: &Api) -> impl Iterator<Item = &Dictionary> {
    let methods = api.interfaces.iter().flat_map(|interface| &interface.methods);
    let built = methods.filter(|method| method.collective.is_some() && !method.common.unbuilt);
    let parameters = built.flat_map(|method| &method.overloads).flat_map(|it| &it.parameters);
    let named: Vec<&str> = parameters.filter_map(|parameter| parameter.ty.named()).collect();
    api.dictionaries.iter().filter(move |dictionary| named.contains(&dictionary.name.as_str()))
}

fn view(dictionary: &Dictionary) -> Options {
    view_of(dictionary, &dictionary.members)
}

fn view_of(dictionary: &Dictionary, members: &[Member]) -> Options {
    let fields: Vec<(&Member, Field)> =
        members.iter().filter_map(|member| Some((member, field(member)?))).collect();
    let given = fields.iter().filter_map(|(member, _)| {
        let role = match member.role {
            Role::Op => "reduce_op",
            Role::Root => "root",
            Role::RootTensor => "root_tensor",
            Role::Timeout => "timeout",
            Role::Compression => "compress",
            _ => return None,
        };
        Some((member.name.clone(), role))
    });
    Options {
        doc: doc_comment(&dictionary.doc),
        name: dictionary.name.clone(),
        backend: dictionary.common.backends.first().cloned(),
        derives_default: fields.iter().all(|(member, _)| has_default_of_its_type(member)),
        given: given.collect(),
        fields: fields.into_iter().map(|(_, field)| field).collect(),
    }
}

/// `None` if the member has no meaning in Rust: values of other languages, what is not built, and
/// whether a call waits, which in Rust the name of the method says.
fn field(member: &Member) -> Option<Field> {
    if matches!(member.role, Role::Unbuilt | Role::AsyncOp) {
        return None;
    }
    let ty = rust_type(member.ty.non_null())?;
    let name = member.name.clone();
    let nullable = member.ty.is_nullable();
    let is_text = ty == "String";
    let stored = if is_text { format!("{name}.into()") } else { name.clone() };
    Some(Field {
        doc: doc_comment(&member.doc),
        stored: if nullable { format!("Some({stored})") } else { stored },
        default: default(member),
        given: if is_text { "impl Into<String>".to_owned() } else { ty.clone() },
        ty: if nullable { format!("Option<{ty}>") } else { ty },
        name,
    })
}

fn rust_type(ty: &Type) -> Option<String> {
    let name = match ty {
        Type::String => "String",
        Type::Bytes => "Vec<u8>",
        Type::Duration => "Duration",
        Type::ReduceOp => "ReduceOp",
        Type::Dictionary(name) => name,
        Type::Sequence(inner) => return Some(format!("Vec<{}>", rust_type(inner)?)),
        other => number(other)?,
    };
    Some(name.to_owned())
}

fn has_default_of_its_type(member: &Member) -> bool {
    match &member.default {
        None | Some(Constant::Null | Constant::EmptySequence | Constant::EmptyDictionary) => true,
        Some(Constant::Boolean(value)) => !value,
        Some(Constant::Integer(value)) => *value == 0,
        Some(Constant::Float(value) | Constant::Seconds(value)) => *value == 0.0,
        Some(Constant::String(value)) => value.is_empty(),
        Some(Constant::ReduceOp(name)) => name == "SUM",
        Some(_) => false,
    }
}

fn default(member: &Member) -> String {
    let value = match &member.default {
        Some(Constant::Boolean(value)) => value.to_string(),
        Some(Constant::Integer(value)) => value.to_string(),
        Some(Constant::Float(value)) => format!("{value:?}"),
        Some(Constant::Seconds(value)) => format!("Duration::from_secs_f64({value:?})"),
        Some(Constant::String(value)) => format!("{value:?}.to_owned()"),
        Some(Constant::ReduceOp(name)) => {
            format!("ReduceOp::{}", crate::model::names::camel_case(name))
        }
        _ => return "Default::default()".to_owned(),
    };
    if member.ty.is_nullable() { format!("Some({value})") } else { value }
}
