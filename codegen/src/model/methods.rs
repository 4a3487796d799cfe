//! Operations and constructors: overloads of one name become one method.

use super::api::{Api, CommonAttributes, Dictionary, Method, Overload, Parameter, Role};
use super::attributes::{AttributeTarget, Attributes};
use super::builder::{Builder, DefinedMember};
use super::types::Type;
use super::{constants, numbers, overloads, roles};
use crate::idl::{Diagnostic, Member, MemberKind, Parameter as ParameterSyntax, Rule, Span};

/// The method of all `members`, at least one, that have the same name in `owner`.
pub(super) fn method<'a>(
    builder: &mut Builder<'a, '_>,
    owner: &str,
    members: &[&DefinedMember<'a>],
) -> Method {
    let first = members[0].member;
    let is_constructor = matches!(first.kind, MemberKind::Constructor { .. });
    let target = match is_constructor {
        true => AttributeTarget::Constructor,
        false => AttributeTarget::Operation,
    };
    let read =
        |defined: &&DefinedMember<'a>| builder.attributes(target, &defined.member.attributes);
    let attributes: Vec<Attributes<'a>> = members.iter().map(read).collect();
    let mut method = Method {
        owner: owner.to_owned(),
        name: if is_constructor { "new".to_owned() } else { first.name.text.clone() },
        doc: documentation(builder, members),
        source: builder.source(first.name.span),
        is_static: is_static(first),
        collective: agreed(builder, members, &attributes, "Collective"),
        coalesced: attributes.iter().any(|attributes| attributes.has("Coalesced")),
        prepares: agreed(builder, members, &attributes, "Prepares"),
        overloads: Vec::new(),
        common: common(builder, members, &attributes),
    };
    for DefinedMember { member, .. } in members {
        let overload = overload(builder, member, &method);
        method.overloads.push(overload);
    }
    for (DefinedMember { member, .. }, attributes) in members.iter().zip(&attributes) {
        if let Some(span) = attributes.span("Factory").filter(|_| attributes.lacks("Waits")) {
            let message = "a constructor that does not wait needs no factory";
            let advice = "say that it waits: `[Factory=…, Waits]`";
            builder.report(Rule::FactoryWithoutWaits, span, message.to_owned(), advice);
        }
        if is_static(member) != method.is_static {
            let what = "either all overloads are static or none";
            conflict(builder, what, member.name.span, first.name.span);
        }
        numbers::collective(builder, member, attributes, &method);
    }
    let spans: Vec<Span> = members.iter().map(|defined| defined.member.name.span).collect();
    overloads::check(builder, &method, &spans);
    method
}

/// Parameters of an operation, a constructor or a callback.
pub(super) fn parameters<'a>(
    builder: &mut Builder<'a, '_>,
    written: &'a [ParameterSyntax],
    is_collective: bool,
) -> Vec<Parameter> {
    builder.reject_duplicates("parameter", written.iter().map(|parameter| &parameter.name));
    let mut optional = None;
    let mut parameters = Vec::new();
    for parameter in written {
        let name = &parameter.name;
        match optional {
            None if parameter.optional => optional = Some(name.span),
            Some(first) if !parameter.optional => {
                let message =
                    format!("`{}` is required, but comes after an optional one", name.text);
                let diagnostic = Diagnostic::new(Rule::OptionalBeforeRequired, name.span, message)
                    .related(first, "optional")
                    .advice("make it optional, or put it first");
                builder.diagnostics.push(diagnostic);
            }
            _ => {}
        }
        let attributes = builder.attributes(AttributeTarget::Parameter, &parameter.attributes);
        if let Some(span) = attributes.span("Positional").filter(|_| !parameter.optional) {
            let message =
                format!("`{}` is required: it comes before the options in any case", name.text);
            let advice = "take `Positional` away, or make the parameter optional";
            builder.report(Rule::PositionalRequired, span, message, advice);
        }
        let ty = builder.value_type(&parameter.ty);
        let default = parameter.default.as_ref();
        parameters.push(Parameter {
            name: name.text.clone(),
            optional: parameter.optional,
            default: default.and_then(|literal| constants::constant(builder, literal, &ty)),
            role: roles::role(builder, &attributes, &ty, name),
            splits: attributes.text("Splits"),
            common: attributes.common(),
            ty,
        });
    }
    roles::complete(builder, written, &mut parameters, is_collective);
    parameters
}

/// Marks the dictionaries that some method takes, directly, inside another one or in its place.
pub(super) fn mark_arguments(api: &mut Api) {
    let methods = api
        .interfaces
        .iter()
        .flat_map(|interface| interface.constructor.iter().chain(&interface.methods));
    let methods = methods.chain(api.namespaces.iter().flat_map(|namespace| &namespace.functions));
    let parameters = methods.flat_map(|method| &method.overloads).flat_map(|it| &it.parameters);
    let mut names: Vec<String> =
        parameters.filter_map(|parameter| parameter.ty.named()).map(str::to_owned).collect();
    while let Some(name) = names.pop() {
        let dictionary = api.dictionaries.iter_mut().find(|dictionary| dictionary.name == name);
        if let Some(dictionary) = dictionary.filter(|dictionary| !dictionary.is_argument) {
            dictionary.is_argument = true;
            let members = dictionary.members.iter();
            names.extend(members.filter_map(|member| member.ty.named()).map(str::to_owned));
            let extends = |other: &&Dictionary| other.inherits.as_ref() == Some(&name);
            names.extend(api.dictionaries.iter().filter(extends).map(|other| other.name.clone()));
        }
    }
}

fn overload<'a>(builder: &mut Builder<'a, '_>, member: &'a Member, method: &Method) -> Overload {
    let (written, returns) = match &member.kind {
        MemberKind::Operation { parameters, returns, .. } => (parameters.as_slice(), Some(returns)),
        MemberKind::Constructor { parameters } => (parameters.as_slice(), None),
        MemberKind::Attribute { .. } | MemberKind::Constant { .. } => (&[][..], None),
    };
    let parameters = parameters(builder, written, method.collective.is_some());
    let returns = match returns {
        Some(returns) => builder.scope.resolve(returns, builder.diagnostics),
        None => Type::Interface(method.owner.clone()),
    };
    let name = if method.name == "new" { &method.owner } else { &method.name };
    Overload {
        form: form(name, &parameters),
        doc: member.doc.clone(),
        source: builder.source(member.name.span),
        parameters,
        returns,
    }
}

/// `allreduce(tensor: Tensor, op: ReduceOp = SUM)`
fn form(name: &str, parameters: &[Parameter]) -> String {
    let shown = |parameter: &Parameter| {
        let default = match (&parameter.default, parameter.optional) {
            (Some(default), _) => format!(" = {default}"),
            (None, true) => " = …".to_owned(),
            (None, false) => String::new(),
        };
        format!("{}: {}{default}", parameter.name, parameter.ty)
    };
    let shown: Vec<String> = parameters.iter().map(shown).collect();
    format!("{name}({})", shown.join(", "))
}

/// The first overload's documentation, which is required; later ones may add their own.
fn documentation(builder: &mut Builder<'_, '_>, members: &[&DefinedMember<'_>]) -> String {
    let documented = members.iter().find(|defined| !defined.member.doc.trim().is_empty());
    let member = documented.unwrap_or(&members[0]).member;
    builder.require_doc(&member.doc, &member.name)
}

/// The attributes of all overloads together, with those of the (partial) definition that contains
/// them.
fn common(
    builder: &mut Builder<'_, '_>,
    members: &[&DefinedMember<'_>],
    attributes: &[Attributes<'_>],
) -> CommonAttributes {
    let mut common = CommonAttributes {
        python: agreed(builder, members, attributes, "Python"),
        rust: agreed(builder, members, attributes, "Rust"),
        javascript: agreed(builder, members, attributes, "JavaScript"),
        factory: agreed(builder, members, attributes, "Factory"),
        leaves: agreed(builder, members, attributes, "Leaves"),
        since: attributes.iter().find_map(|attributes| attributes.text("Since")),
        ..CommonAttributes::default()
    };
    let first = &attributes[0];
    for (DefinedMember { member, enclosing }, attributes) in members.iter().zip(attributes) {
        let own = attributes.common();
        extend(&mut common.aliases, own.aliases);
        extend(&mut common.throws, own.throws);
        extend(&mut common.not_in, own.not_in);
        extend(&mut common.own, own.own);
        let backends =
            if own.backends.is_empty() { enclosing.backends.clone() } else { own.backends };
        extend(&mut common.backends, backends);
        let all_or_none = [
            (own.unbuilt, "Unbuilt"),
            (own.handwritten, "Handwritten"),
            (own.waits, "Waits"),
            (own.blocks, "Blocks"),
            (own.unordered, "Unordered"),
            (own.non_member, "NonMember"),
        ];
        for (flag, name) in all_or_none {
            if flag != first.has(name) {
                let what = format!("either all overloads are `{name}` or none");
                conflict(builder, &what, member.name.span, members[0].member.name.span);
            }
        }
        common.unbuilt |= own.unbuilt || enclosing.unbuilt;
        common.handwritten |= own.handwritten || enclosing.handwritten;
        common.waits |= own.waits;
        common.blocks |= own.blocks;
        common.unordered |= own.unordered;
        common.non_member |= own.non_member;
    }
    common
}

/// The value of an attribute on which all overloads that have it must agree.
fn agreed(
    builder: &mut Builder<'_, '_>,
    members: &[&DefinedMember<'_>],
    attributes: &[Attributes<'_>],
    name: &str,
) -> Option<String> {
    let mut found: Option<(String, Span)> = None;
    for (DefinedMember { member, .. }, attributes) in members.iter().zip(attributes) {
        let span = attributes.span(name).unwrap_or(member.name.span);
        match (&found, attributes.text(name)) {
            (None, Some(text)) => found = Some((text, span)),
            (Some((first, first_span)), Some(text)) if *first != text => {
                let what = format!("overloads have different values of `{name}`");
                conflict(builder, &what, span, *first_span);
            }
            _ => {}
        }
    }
    found.map(|(text, _)| text)
}

fn conflict(builder: &mut Builder<'_, '_>, what: &str, span: Span, first: Span) {
    let diagnostic = Diagnostic::new(Rule::OverloadConflict, span, what)
        .related(first, "the first overload")
        .advice("make them agree, or give this one another name");
    builder.diagnostics.push(diagnostic);
}

fn is_static(member: &Member) -> bool {
    matches!(member.kind, MemberKind::Operation { is_static: true, .. })
}

fn extend(all: &mut Vec<String>, more: Vec<String>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

impl Parameter {
    /// What it means, for comparing the readings of two overloads.
    pub(super) fn meaning(&self) -> (Role, &str) {
        (self.role, if self.role == Role::None { &self.name } else { "" })
    }
}
