//! The view of what callbacks of the user are given.

use askama::Template;

use super::doc_comment;
use crate::languages::plain::number;
use crate::languages::stamp;
use crate::model::{Api, Dictionary, Type};

#[derive(Template)]
#[template(path = "rust/callback_arguments.rs.jinja", escape = "none")]
pub(super) struct CallbackArguments {
    stamp: String,
    all: Vec<Arguments>,
}

struct Arguments {
    doc: String,
    name: String,
    /// `<'a>` if it borrows the caller's tensors.
    lifetime: &'static str,
    fields: Vec<Field>,
}

struct Field {
    doc: String,
    name: String,
    ty: String,
}

pub(super) fn view(api: &Api) -> CallbackArguments {
    let mut all: Vec<&Dictionary> =
        api.callback_arguments().filter(|known| !known.common.unbuilt).collect();
    // What is an object of another language, or knows one, has no meaning here.
    all.retain(|known| known.members.iter().all(|member| type_of(&member.ty).is_some()));
    let file = all.first().map_or("idl/*.webidl", |known| known.source.file.as_str());
    CallbackArguments { stamp: stamp(file), all: all.into_iter().map(arguments).collect() }
}

fn arguments(known: &Dictionary) -> Arguments {
    let fields = known.members.iter().filter_map(|member| {
        let (doc, name) = (doc_comment(&member.doc), member.name.clone());
        Some(Field { doc, name, ty: type_of(&member.ty)? })
    });
    let fields: Vec<Field> = fields.collect();
    let borrows = fields.iter().any(|field| field.ty.contains("<'a>"));
    Arguments {
        doc: doc_comment(&known.doc),
        name: known.name.clone(),
        lifetime: if borrows { "<'a>" } else { "" },
        fields,
    }
}

/// The type of a member; an object that is nullable is an exception.
fn type_of(ty: &Type) -> Option<String> {
    Some(match ty {
        Type::String => "&'static str".to_owned(),
        Type::Duration => "Duration".to_owned(),
        Type::ReduceOp => "ReduceOp".to_owned(),
        Type::Tensor => "TensorRef<'a>".to_owned(),
        Type::Interface(name) if name == "Work" => name.clone(),
        Type::Sequence(inner) => format!("Vec<{}>", type_of(inner)?),
        Type::Nullable(inner) if **inner == Type::Object => "Option<Error>".to_owned(),
        // Text of the user.
        Type::Nullable(inner) if **inner == Type::String => "Option<Arc<str>>".to_owned(),
        Type::Nullable(inner) => format!("Option<{}>", type_of(inner)?),
        other => number(other)?.to_owned(),
    })
}
