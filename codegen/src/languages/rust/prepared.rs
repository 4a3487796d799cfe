//! The view of the methods that prepare a collective. Those of messages are written by hand, as
//! messages are.

use askama::Template;

use super::calls::member_constant;
use super::doc_comment;
use super::surface::{documentation_of_arguments, is_buffer, trait_name, typed};
use crate::languages::stamp;
use crate::model::{self, Api};

#[derive(Template)]
#[template(path = "rust/prepared.rs.jinja", escape = "none")]
pub(super) struct Prepared {
    stamp: String,
    methods: Vec<Method>,
}

struct Method {
    name: String,
    doc: String,
    /// The name and the role of each tensor.
    buffers: Vec<(String, String)>,
    /// The trait of what follows them: that of the method whose calls are prepared.
    arguments: String,
    /// The table of that method.
    constant: String,
}

pub(super) fn methods(api: &Api) -> Prepared {
    let groups = api.interfaces.iter().filter(|interface| interface.name == model::Type::GROUP);
    let methods = groups.flat_map(|interface| &interface.methods);
    Prepared {
        stamp: stamp("idl/prepared.webidl"),
        methods: methods.filter_map(|method| view(api, method)).collect(),
    }
}

fn view(api: &Api, method: &model::Method) -> Option<Method> {
    let prepared = typed(api).find(|other| method.prepares.as_ref() == Some(&other.name))?;
    let parameters = method.overloads.first()?.parameters.iter();
    let buffers = parameters.filter(|parameter| is_buffer(parameter));
    let buffers = buffers.map(|it| (it.name.clone(), format!("{:?}", it.role)));
    let arguments = documentation_of_arguments(prepared);
    let doc = format!(
        "{}\n\n`arguments`: {arguments}, as for [`ProcessGroup::{}`].\n\n# Errors\nWhat is wrong \
         with the arguments; [`Error::InvalidGroup`](crate::Error::InvalidGroup) if the group was \
         destroyed.",
        method.doc, prepared.name
    );
    Some(Method {
        name: method.name.clone(),
        doc: doc_comment(&doc),
        buffers: buffers.collect(),
        arguments: trait_name(prepared),
        constant: member_constant(&prepared.owner, &prepared.name),
    })
}
