//! Everything that has a number that travels: dtypes, reduction operators, collectives, enums.

use super::api::{Collective, DType, Method, ReduceOp};
use super::attributes::{AttributeTarget, Attributes};
use super::builder::{Builder, DefinedMember};
use super::names::{camel_case, nearest};
use crate::idl::{Definition, DefinitionKind, Diagnostic, Member, MemberKind, Name, Rule, Span};

/// The values of the namespace that is marked `[DTypes]`.
pub(super) fn dtypes<'a>(builder: &mut Builder<'a, '_>, members: &[DefinedMember<'a>]) {
    let mut numbers = Vec::new();
    for (member, attributes) in values(builder, members) {
        let number = required_number(builder, &attributes, "Number", &member.name);
        let size_bytes = required_number(builder, &attributes, "Bytes", &member.name);
        let class = required(builder, &attributes, "Class", &member.name);
        numbers.push((number, member.name.span));
        let dtype = DType {
            name: member.name.text.clone(),
            variant: attributes.text("Rust").unwrap_or_else(|| camel_case(&member.name.text)),
            doc: builder.require_doc(&member.doc, &member.name),
            number: number.unwrap_or_default(),
            size_bytes: size_bytes.unwrap_or_default(),
            class: class.unwrap_or_default(),
        };
        builder.api.dtypes.push(dtype);
    }
    consecutive(builder, "dtypes", &numbers);
    builder.api.dtypes.sort_by_key(|dtype| dtype.number);
}

/// The values of the namespace that is marked `[ReduceOps]`. Which dtypes each has is known only
/// when the dtypes are: [`finish`] fills them in.
pub(super) fn reduce_ops<'a>(builder: &mut Builder<'a, '_>, members: &[DefinedMember<'a>]) {
    let mut numbers = Vec::new();
    for (member, attributes) in values(builder, members) {
        let number = required_number(builder, &attributes, "Number", &member.name);
        required(builder, &attributes, "DTypes", &member.name);
        numbers.push((number, member.name.span));
        let reduce_op = ReduceOp {
            name: member.name.text.clone(),
            variant: attributes.text("Rust").unwrap_or_else(|| camel_case(&member.name.text)),
            doc: builder.require_doc(&member.doc, &member.name),
            number: number.unwrap_or_default(),
            dtypes: Vec::new(),
            factor: attributes.has("Factor"),
            custom: attributes.has("Custom"),
            pairs: attributes.has("Pairs"),
        };
        builder.api.reduce_ops.push(reduce_op);
    }
    consecutive(builder, "reduction operators", &numbers);
    builder.api.reduce_ops.sort_by_key(|reduce_op| reduce_op.number);
}

/// The facts of a collective, if they stand on this overload.
pub(super) fn collective(
    builder: &mut Builder<'_, '_>,
    member: &Member,
    attributes: &Attributes<'_>,
    method: &Method,
) {
    const FACTS: [&str; 7] = ["Number", "Variant", "Input", "Output", "Sizes", "Reduces", "Rooted"];
    let Some(name) = &method.collective else {
        for fact in FACTS.iter().chain(&["Coalesced"]) {
            if let Some(span) = attributes.span(fact) {
                let message = format!("`{fact}` means nothing without `Collective`");
                let advice = "write `[Collective=name, …]`";
                builder.report(Rule::MissingAttribute, span, message, advice);
            }
        }
        return;
    };
    if !FACTS.iter().any(|fact| attributes.has(fact)) {
        return;
    }
    let number = required_number(builder, attributes, "Number", &member.name);
    let input = required(builder, attributes, "Input", &member.name);
    let output = required(builder, attributes, "Output", &member.name);
    let sizes = required(builder, attributes, "Sizes", &member.name);
    let collective = Collective {
        name: name.clone(),
        variant: attributes.text("Variant").unwrap_or_else(|| camel_case(name)),
        doc: method.doc.clone(),
        number: number.unwrap_or_default(),
        input: input.unwrap_or_default(),
        output: output.unwrap_or_default(),
        sizes: sizes.unwrap_or_default(),
        rooted: attributes.has("Rooted"),
        reduces: attributes.has("Reduces"),
        source: builder.source(member.name.span),
    };
    builder.api.collectives.push(collective);
}

/// The numbers of an enum's values, if it has `[Numbers="…"]`.
pub(super) fn of_enum(
    builder: &mut Builder<'_, '_>,
    attributes: &Attributes<'_>,
    values: usize,
) -> Vec<u32> {
    let Some(written) = attributes.value("Numbers") else { return Vec::new() };
    let numbers: Option<Vec<u32>> =
        written.text.split_whitespace().map(|number| number.parse().ok()).collect();
    match numbers.filter(|numbers| numbers.len() == values) {
        Some(numbers) => numbers,
        None => {
            let message = format!("`Numbers` is not {values} numbers");
            let advice = "write one number from 0 on for each value, with spaces between";
            builder.report(Rule::AttributeValue, written.span, message, advice);
            Vec::new()
        }
    }
}

/// Checks and completes what needs all definitions: the collectives, and the dtypes of operators.
pub(super) fn finish(builder: &mut Builder<'_, '_>, definitions: &[Definition]) {
    let mut operations = Vec::new();
    for definition in definitions {
        let members = match &definition.kind {
            DefinitionKind::Interface { members, .. } => members,
            DefinitionKind::Namespace { members } => members,
            _ => continue,
        };
        for member in members {
            for attribute in &member.attributes {
                match attribute.name.text.as_str() {
                    "DTypes" => reduced_dtypes(builder, member, attribute.value.words()),
                    "Collective" => operations.push((member, attribute.value.words())),
                    _ => {}
                }
            }
        }
    }
    collectives(builder, &operations);
}

/// That every collective has its facts once, and that the numbers are consecutive.
fn collectives(builder: &mut Builder<'_, '_>, operations: &[(&Member, &[Name])]) {
    let has_facts = |member: &Member| member.attributes.iter().any(|a| a.name.text == "Number");
    let mut facts: Vec<(&str, &Member)> = Vec::new();
    let mut numbers = Vec::new();
    for (member, names) in operations.iter().filter(|(member, _)| has_facts(member)) {
        let Some(name) = names.first() else { continue };
        let number = member.attributes.iter().find(|a| a.name.text == "Number");
        let digits = number.and_then(|number| number.value.words().first());
        numbers.push((digits.and_then(|digits| digits.text.parse().ok()), member.name.span));
        match facts.iter().find(|(other, _)| *other == name.text) {
            None => facts.push((&name.text, member)),
            Some((_, first)) => {
                let message = format!("the facts of `{}` stand here again", name.text);
                let diagnostic = Diagnostic::new(Rule::CollectiveFacts, name.span, message)
                    .related(first.name.span, "first here")
                    .advice("keep `Number`, `Input`, `Output`, … on one overload");
                builder.diagnostics.push(diagnostic);
            }
        }
    }
    for (_, names) in operations {
        let Some(name) = names.first() else { continue };
        if !facts.iter().any(|(other, _)| *other == name.text) {
            let message = format!("nothing says what the collective `{}` is", name.text);
            let advice = match nearest(&name.text, facts.iter().map(|(name, _)| *name)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write `Number`, `Input`, `Output` and `Sizes` on one overload".to_owned(),
            };
            builder.report(Rule::CollectiveFacts, name.span, message, &advice);
            // One report for each name is enough.
            facts.push((&name.text, operations[0].0));
        }
    }
    consecutive(builder, "collectives", &numbers);
    builder.api.collectives.sort_by_key(|collective| collective.number);
}

/// `all -complex`: the dtypes of one operator.
fn reduced_dtypes(builder: &mut Builder<'_, '_>, member: &Member, written: &[Name]) {
    let mut chosen = vec![false; builder.api.dtypes.len()];
    for text in written {
        for word in text.text.split_whitespace() {
            let (name, include) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let class = name.strip_suffix('s').unwrap_or(name);
            let dtypes = builder.api.dtypes.iter().enumerate();
            let named: Vec<usize> = dtypes
                .filter(|(_, it)| name == "all" || it.name == name || it.class == class)
                .map(|(index, _)| index)
                .collect();
            if named.is_empty() {
                let message = format!("there is no dtype, and no class of them, `{name}`");
                let advice = "write names of dtypes, or all, bool, integers, floats, complex; with \
                              `-` before what is left out";
                builder.report(Rule::UnknownDType, text.span, message, advice);
            }
            named.into_iter().for_each(|index| chosen[index] = include);
        }
    }
    let dtypes = builder.api.dtypes.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
    let dtypes = dtypes.map(|(dtype, _)| dtype.name.clone()).collect();
    let reduce_ops = &mut builder.api.reduce_ops;
    if let Some(reduce_op) = reduce_ops.iter_mut().find(|it| it.name == member.name.text) {
        reduce_op.dtypes = dtypes;
    }
}

/// The attributes of a namespace of values, each with its extended attributes.
fn values<'a>(
    builder: &mut Builder<'a, '_>,
    members: &[DefinedMember<'a>],
) -> Vec<(&'a Member, Attributes<'a>)> {
    builder.reject_duplicates("value", members.iter().map(|defined| &defined.member.name));
    let mut values = Vec::new();
    for DefinedMember { member, .. } in members {
        if !matches!(member.kind, MemberKind::Attribute { readonly: true, .. }) {
            let message = format!("`{}` is not a value", member.name.text);
            let advice = "write `readonly attribute`: this namespace lists values";
            builder.report(Rule::MisplacedType, member.name.span, message, advice);
            continue;
        }
        let attributes = builder.attributes(AttributeTarget::Value, &member.attributes);
        values.push((*member, attributes));
    }
    values
}

fn required(
    builder: &mut Builder<'_, '_>,
    attributes: &Attributes<'_>,
    what: &str,
    name: &Name,
) -> Option<String> {
    if attributes.lacks(what) {
        let message = format!("`{}` has no `{what}`", name.text);
        let advice = format!("write `[{what}=…]` before it");
        builder.report(Rule::MissingAttribute, name.span, message, &advice);
    }
    attributes.text(what)
}

fn required_number(
    builder: &mut Builder<'_, '_>,
    attributes: &Attributes<'_>,
    what: &str,
    name: &Name,
) -> Option<u32> {
    required(builder, attributes, what, name)?;
    attributes.integer(what)
}

/// That the numbers are 0, 1, 2, …, each once, in any order.
fn consecutive(builder: &mut Builder<'_, '_>, what: &str, numbers: &[(Option<u32>, Span)]) {
    let mut sorted: Vec<(u32, Span)> =
        numbers.iter().filter_map(|(number, span)| number.map(|number| (number, *span))).collect();
    sorted.sort();
    for pair in sorted.windows(2) {
        let [(first, first_span), (second, span)] = pair else { continue };
        if first == second {
            let message = format!("two {what} have the number {second}");
            let diagnostic = Diagnostic::new(Rule::Number, *span, message)
                .related(*first_span, "first here")
                .advice("numbers travel between ranks: give the newer one the next free number");
            return builder.diagnostics.push(diagnostic);
        }
    }
    let gap = (0u32..).zip(&sorted).find(|(expected, (number, _))| expected != number);
    if let Some((expected, (number, span))) = gap {
        let message = format!("number {number} leaves a gap: no {what} have the number {expected}");
        let advice = format!("numbers are 0, 1, 2, …: take {expected}");
        builder.report(Rule::Number, *span, message, &advice);
    }
}
