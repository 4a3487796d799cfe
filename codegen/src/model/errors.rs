//! Kinds of error: dictionaries marked `[Error]`, and where errors are named.

use super::api::{ErrorKind, Member};
use super::attributes::Attributes;
use super::builder::Builder;
use super::names::nearest;
use crate::idl::{Definition, DefinitionKind, Name, Rule};

/// What every error has in some language: in JavaScript `name` and `kind` can only be read. Not
/// `message`, whose field is part of what the error says.
const RESERVED: [&str; 9] =
    ["name", "kind", "stack", "cause", "constructor", "args", "errno", "source", "backtrace"];

/// A dictionary that is marked `[Error]`.
pub(super) fn error(
    builder: &mut Builder<'_, '_>,
    definition: &Definition,
    attributes: &Attributes<'_>,
    doc: String,
    fields: Vec<Member>,
) {
    let message = match attributes.value("Message") {
        Some(message) => {
            check_fields(builder, message, &fields);
            message.text.clone()
        }
        None if !attributes.lacks("Message") => String::new(),
        None => {
            let name = &definition.name;
            let message = format!("the error `{}` has no message", name.text);
            let advice = "write `Message=\"…\"` beside `Error`, with `{field}` for its fields";
            builder.report(Rule::MissingAttribute, name.span, message, advice);
            String::new()
        }
    };
    check_reserved(builder, definition);
    let error = ErrorKind {
        name: definition.name.text.clone(),
        doc,
        source: builder.source(definition.name.span),
        bases: attributes.words("Bases").iter().map(|base| base.text.clone()).collect(),
        parent: attributes.text("Parent"),
        carries: attributes.has("Carries"),
        message,
        fields,
        common: attributes.common(),
    };
    builder.api.errors.push(error);
}

/// Reports attributes of errors on a dictionary that is none.
pub(super) fn only_on_errors(builder: &mut Builder<'_, '_>, attributes: &Attributes<'_>) {
    for name in ["Bases", "Carries", "Message", "Parent"] {
        if let Some(span) = attributes.span(name) {
            let message = format!("`{name}` means nothing without `Error`");
            builder.report(Rule::MissingAttribute, span, message, "write `[Error, …]`");
        }
    }
}

/// Checks every name of an error: in `Throws` and in `Parent`.
pub(super) fn finish(builder: &mut Builder<'_, '_>, definitions: &[Definition]) {
    for definition in definitions {
        let members = match &definition.kind {
            DefinitionKind::Interface { members, .. } => members.as_slice(),
            DefinitionKind::Namespace { members } => members.as_slice(),
            _ => &[],
        };
        let of_members = members.iter().flat_map(|member| &member.attributes);
        for attribute in of_members.chain(&definition.attributes) {
            if matches!(attribute.name.text.as_str(), "Throws" | "Parent") {
                attribute.value.words().iter().for_each(|name| known(builder, name));
            }
        }
    }
}

fn known(builder: &mut Builder<'_, '_>, name: &Name) {
    let errors = &builder.api.errors;
    if errors.iter().any(|error| error.name == name.text) {
        return;
    }
    let message = format!("there is no error `{}`", name.text);
    let advice = match nearest(&name.text, errors.iter().map(|error| error.name.as_str())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "define it: `[Error, Message=\"…\"] dictionary …`".to_owned(),
    };
    builder.report(Rule::UnknownError, name.span, message, &advice);
}

/// Refuses fields that are called as what every error has in some language.
fn check_reserved(builder: &mut Builder<'_, '_>, definition: &Definition) {
    let DefinitionKind::Dictionary { members, .. } = &definition.kind else { return };
    for Name { text, span } in members.iter().map(|member| &member.name) {
        if RESERVED.contains(&text.as_str()) {
            let message = format!("a field of an error cannot be called `{text}`");
            let advice = "every error has that itself; say what it is of, as `group_name` does";
            builder.report(Rule::ReservedField, *span, message, advice);
        }
    }
}

/// Every `{field}` of a message is a field.
fn check_fields(builder: &mut Builder<'_, '_>, message: &Name, fields: &[Member]) {
    let mut rest = message.text.as_str();
    while let Some((_, from_field)) = rest.split_once('{') {
        let (field, after) = from_field.split_once('}').unwrap_or((from_field, ""));
        rest = after;
        if !fields.iter().any(|member| member.name == field) {
            let text = format!("the error has no field `{field}`");
            let names = fields.iter().map(|member| member.name.as_str());
            let advice = match nearest(field, names) {
                Some(near) => format!("did you mean `{{{near}}}`?"),
                None => "add it to the dictionary's members".to_owned(),
            };
            builder.report(Rule::MessageField, message.span, text, &advice);
        }
    }
}
