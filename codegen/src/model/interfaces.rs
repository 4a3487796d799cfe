//! Interfaces and namespaces, with their partial definitions.

use super::api::{Attribute, CommonAttributes, Interface, Method, NamedConstant, Namespace};
use super::attributes::{AttributeTarget, Attributes};
use super::builder::{Builder, DefinedMember};
use super::names::nearest;
use super::scope::DefinedName;
use super::types::Constant;
use super::{constants, methods, numbers};
use crate::idl::{Definition, DefinitionKind, Diagnostic, Member, MemberKind, Name, Rule};

pub(super) fn interface<'a>(builder: &mut Builder<'a, '_>, defined: &DefinedName<'a>) {
    let definition = defined.definition;
    let (attributes, members) = members(builder, defined, AttributeTarget::Interface);
    check_bases(builder, definition);
    let inherits = inherits_of(definition).map(|name| name.text.clone());
    let mut parts = parts(builder, definition, &members);
    check_prepared(builder, &members, &parts.methods);
    let constructor = match parts.methods.iter().position(|method| method.name == "new") {
        Some(index) => Some(parts.methods.remove(index)),
        None => None,
    };
    let interface = Interface {
        name: definition.name.text.clone(),
        doc: builder.require_doc(&definition.doc, &definition.name),
        source: builder.source(definition.name.span),
        inherits,
        constructor,
        attributes: parts.attributes,
        constants: parts.constants,
        methods: parts.methods,
        common: attributes.common(),
    };
    builder.api.interfaces.push(interface);
}

pub(super) fn namespace<'a>(builder: &mut Builder<'a, '_>, defined: &DefinedName<'a>) {
    let definition = defined.definition;
    let (attributes, members) = members(builder, defined, AttributeTarget::Namespace);
    let doc = builder.require_doc(&definition.doc, &definition.name);
    if attributes.has("DTypes") {
        builder.api.dtype_doc = doc;
        builder.api.dtype_source = builder.source(definition.name.span);
        return numbers::dtypes(builder, &members);
    }
    if attributes.has("ReduceOps") {
        builder.api.reduce_op_doc = doc;
        builder.api.reduce_op_source = builder.source(definition.name.span);
        return numbers::reduce_ops(builder, &members);
    }
    for DefinedMember { member, .. } in &members {
        let is_static = matches!(
            member.kind,
            MemberKind::Operation { is_static: true, .. }
                | MemberKind::Attribute { is_static: true, .. }
        );
        if is_static || matches!(member.kind, MemberKind::Constructor { .. }) {
            let message = "a namespace has no instances".to_owned();
            let advice = "leave `static` away; a constructor belongs to an interface";
            builder.report(Rule::Syntax, member.name.span, message, advice);
        }
    }
    let parts = parts(builder, definition, &members);
    let namespace = Namespace {
        name: definition.name.text.clone(),
        doc,
        source: builder.source(definition.name.span),
        attributes: parts.attributes,
        constants: parts.constants,
        functions: parts.methods,
        common: attributes.common(),
    };
    builder.api.namespaces.push(namespace);
}

#[derive(Default)]
struct Parts {
    attributes: Vec<Attribute>,
    constants: Vec<NamedConstant>,
    methods: Vec<Method>,
}

/// The attributes of the whole definition, and the members of all its parts.
fn members<'a>(
    builder: &mut Builder<'a, '_>,
    defined: &DefinedName<'a>,
    target: AttributeTarget,
) -> (Attributes<'a>, Vec<DefinedMember<'a>>) {
    let whole = builder.attributes(target, &defined.definition.attributes);
    let common = whole.common();
    let define = |enclosing: &CommonAttributes| {
        let enclosing = enclosing.clone();
        move |member| DefinedMember { member, enclosing: enclosing.clone() }
    };
    let mut members: Vec<DefinedMember<'a>> =
        members_of(defined.definition).iter().map(define(&common)).collect();
    for partial in &defined.partials {
        let mut own = builder.attributes(target, &partial.attributes).common();
        own.unbuilt |= common.unbuilt;
        own.handwritten |= common.handwritten;
        members.extend(members_of(partial).iter().map(define(&own)));
    }
    (whole, members)
}

fn parts<'a>(
    builder: &mut Builder<'a, '_>,
    definition: &Definition,
    members: &[DefinedMember<'a>],
) -> Parts {
    let mut parts = Parts::default();
    check_names(builder, members);
    for (index, DefinedMember { member, enclosing }) in members.iter().enumerate() {
        match &member.kind {
            MemberKind::Attribute { is_static, readonly, ty } => {
                let mut common =
                    builder.attributes(AttributeTarget::Attribute, &member.attributes).common();
                common.unbuilt |= enclosing.unbuilt;
                common.handwritten |= enclosing.handwritten;
                let attribute = Attribute {
                    name: member.name.text.clone(),
                    doc: builder.require_doc(&member.doc, &member.name),
                    source: builder.source(member.name.span),
                    ty: builder.value_type(ty),
                    readonly: *readonly,
                    is_static: *is_static,
                    common,
                };
                parts.attributes.push(attribute);
            }
            MemberKind::Constant { ty, value } => {
                let attributes = builder.attributes(AttributeTarget::Constant, &member.attributes);
                let ty = builder.value_type(ty);
                let value = constants::constant(builder, value, &ty).unwrap_or(Constant::Null);
                let name = member.name.text.clone();
                let doc = builder.require_doc(&member.doc, &member.name);
                parts.constants.push(NamedConstant {
                    name,
                    doc,
                    ty,
                    value,
                    common: attributes.common(),
                });
            }
            MemberKind::Constructor { .. } | MemberKind::Operation { .. } => {
                let same = |other: &&DefinedMember<'a>| {
                    is_method(other.member) && named(other.member, member)
                };
                if members[..index].iter().any(|other| same(&other)) {
                    continue;
                }
                let overloads: Vec<&DefinedMember<'a>> = members.iter().filter(same).collect();
                let method = methods::method(builder, &definition.name.text, &overloads);
                parts.methods.push(method);
            }
        }
    }
    parts
}

/// What is prepared is a call of a method that there is.
fn check_prepared(
    builder: &mut Builder<'_, '_>,
    members: &[DefinedMember<'_>],
    methods: &[Method],
) {
    let attributes = members.iter().flat_map(|defined| &defined.member.attributes);
    let prepared = attributes.filter(|attribute| attribute.name.text == "Prepares");
    for name in prepared.flat_map(|attribute| attribute.value.words()) {
        if methods.iter().any(|method| method.name == name.text && method.prepares.is_none()) {
            continue;
        }
        let message = format!(
            "this interface has no method `{}`, so its calls cannot be prepared",
            name.text
        );
        let advice = match nearest(&name.text, methods.iter().map(|method| &*method.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "name a method of the same interface, by its IDL name".to_owned(),
        };
        builder.report(Rule::UnknownMethod, name.span, message, &advice);
    }
}

/// Attributes, constants and methods have different names, and no alias is another one's name.
fn check_names(builder: &mut Builder<'_, '_>, members: &[DefinedMember<'_>]) {
    let single = members.iter().map(|defined| defined.member).enumerate();
    let single = single.filter(|(index, member)| {
        let mut earlier = members[..*index].iter().map(|defined| defined.member);
        !is_method(member) || !earlier.any(|other| is_method(other) && named(other, member))
    });
    let single: Vec<&Member> = single.map(|(_, member)| member).collect();
    builder.reject_duplicates("member", single.iter().map(|member| &member.name));
    let mut taken: Vec<(&Name, &Member)> =
        single.iter().map(|member| (&member.name, *member)).collect();
    for DefinedMember { member, .. } in members {
        let aliases = member.attributes.iter().filter(|attribute| attribute.name.text == "Alias");
        for alias in aliases.flat_map(|attribute| attribute.value.words()) {
            let first = taken.iter().find(|(name, _)| name.text == alias.text);
            match first.filter(|(_, other)| !named(other, member) || other.name.text == alias.text)
            {
                None => taken.push((alias, member)),
                Some((first, _)) => {
                    let message = format!("`{}` is the name of another member", alias.text);
                    let diagnostic = Diagnostic::new(Rule::DuplicateAlias, alias.span, message)
                        .related(first.span, "here")
                        .advice("choose another alias, or take it away");
                    builder.diagnostics.push(diagnostic);
                }
            }
        }
    }
}

fn check_bases(builder: &mut Builder<'_, '_>, definition: &Definition) {
    let mut seen = vec![definition.name.text.clone()];
    let mut current = definition;
    while let Some(base) = inherits_of(current) {
        let reported = builder.diagnostics.len();
        let found = builder.scope.base(base, "interface", builder.diagnostics);
        if seen.len() > 1 {
            builder.diagnostics.truncate(reported);
        }
        let Some(found) = found else { return };
        if seen.contains(&base.text) {
            let message = format!("`{}` is its own base", base.text);
            return builder.report(Rule::Cycle, base.span, message, "take one of the bases away");
        }
        seen.push(base.text.clone());
        current = found.definition;
    }
}

fn inherits_of(definition: &Definition) -> Option<&Name> {
    match &definition.kind {
        DefinitionKind::Interface { inherits, .. } => inherits.as_ref(),
        _ => None,
    }
}

fn members_of(definition: &Definition) -> &[Member] {
    match &definition.kind {
        DefinitionKind::Interface { members, .. } | DefinitionKind::Namespace { members } => {
            members
        }
        _ => &[],
    }
}

fn is_method(member: &Member) -> bool {
    matches!(member.kind, MemberKind::Operation { .. } | MemberKind::Constructor { .. })
}

fn named(left: &Member, right: &Member) -> bool {
    left.name.text == right.name.text
}
