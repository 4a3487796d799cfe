//! Extended attributes: which exist, what they apply to, what values they take.
//!
//! The table below is the one that `idl/README.md` explains. Knows nothing of what they do.

use std::collections::BTreeMap;

use self::AttributeTarget::{
    Attribute, Callback, Constant, Constructor, Dictionary, Enum, Interface, Member, Namespace,
    Operation, Parameter, Typedef, Value,
};
use super::api::CommonAttributes;
use super::names::nearest;
use crate::idl::{AttributeValue, Diagnostic, Diagnostics, ExtendedAttribute, Name, Rule, Span};

/// What an extended attribute applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeTarget {
    Interface,
    Namespace,
    Dictionary,
    Enum,
    Callback,
    Typedef,
    Operation,
    Constructor,
    Attribute,
    Constant,
    /// An attribute of the namespaces `DType` and `ReduceOp`.
    Value,
    Parameter,
    Member,
}

impl AttributeTarget {
    fn name(self) -> &'static str {
        match self {
            Interface => "an interface",
            Namespace => "a namespace",
            Dictionary => "a dictionary",
            Enum => "an enum",
            Callback => "a callback",
            Typedef => "a typedef",
            Operation => "an operation",
            Constructor => "a constructor",
            Attribute => "an attribute",
            Constant => "a constant",
            Value => "a value of `DType` or `ReduceOp`",
            Parameter => "a parameter",
            Member => "a dictionary member",
        }
    }
}

/// The form of the value after the `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Nothing,
    Word,
    NothingOrWord,
    Words,
    OneOf(&'static [&'static str]),
    SomeOf(&'static [&'static str]),
    Text,
    NothingOrText,
    Integer,
    Number,
}

struct KnownAttribute {
    name: &'static str,
    /// `None` for every target.
    targets: Option<&'static [AttributeTarget]>,
    form: Form,
}

const fn known(
    name: &'static str,
    targets: &'static [AttributeTarget],
    form: Form,
) -> KnownAttribute {
    KnownAttribute { name, targets: Some(targets), form }
}

const fn anywhere(name: &'static str, form: Form) -> KnownAttribute {
    KnownAttribute { name, targets: None, form }
}

const BLOCKS: Form = Form::OneOf(&["None", "One", "All", "OneAtRoot", "AllAtRoot"]);
const SIZES: Form = Form::OneOf(&["Equal", "PerRank", "PerRankAtRoot", "Pairwise"]);
const CLASSES: Form = Form::OneOf(&["bool", "integer", "float", "complex"]);
const LANGUAGES: Form = Form::SomeOf(&["rust", "python", "javascript"]);
const CALLED: &[AttributeTarget] = &[Operation, Constructor, Attribute];
const BUILT: &[AttributeTarget] =
    &[Interface, Namespace, Operation, Constructor, Attribute, Parameter, Member];
const CARRIED: &[AttributeTarget] =
    &[Interface, Namespace, Operation, Constructor, Attribute, Parameter, Member, Dictionary];
const ALIASED: &[AttributeTarget] = &[Interface, Operation, Attribute, Constant, Dictionary, Enum];
const ARGUMENT: &[AttributeTarget] = &[Parameter, Member];

const TABLE: &[KnownAttribute] = &[
    known("Alias", ALIASED, Form::Words),
    known("AsyncOp", ARGUMENT, Form::Nothing),
    known("Backends", CARRIED, Form::Text),
    known("Bases", &[Dictionary], Form::Words),
    known("Blocks", &[Operation], Form::Nothing),
    known("Bytes", &[Value], Form::Integer),
    known("Carries", &[Dictionary], Form::Nothing),
    known("Class", &[Value], CLASSES),
    known("Coalesced", &[Operation], Form::Nothing),
    known("Collective", &[Operation], Form::Word),
    known("Compression", ARGUMENT, Form::Nothing),
    known("Constants", &[Enum], Form::Nothing),
    known("Custom", &[Value], Form::Nothing),
    known("DTypes", &[Namespace, Value], Form::NothingOrText),
    known("Error", &[Dictionary], Form::Nothing),
    known("Factor", &[Value], Form::Nothing),
    known("Factory", &[Constructor], Form::Word),
    known("Flat", &[Parameter], Form::Nothing),
    known("GlobalPeer", &[Parameter], Form::Nothing),
    known("GlobalRoot", &[Parameter], Form::Nothing),
    known("Group", &[Parameter], Form::Nothing),
    known("Handwritten", BUILT, Form::Nothing),
    known("In", &[Parameter], Form::Nothing),
    known("InOut", &[Parameter], Form::Nothing),
    known("Input", &[Operation], BLOCKS),
    anywhere("JavaScript", Form::Word),
    known("Leaves", &[Operation], Form::Word),
    known("Message", &[Dictionary], Form::Text),
    known("NonMember", &[Operation], Form::Nothing),
    anywhere("NotIn", LANGUAGES),
    known("NotInPages", &[Interface], Form::Nothing),
    known("Number", &[Operation, Value], Form::Integer),
    known("Numbers", &[Enum], Form::Text),
    known("Opaque", &[Typedef], Form::Nothing),
    known("Out", &[Parameter], Form::Nothing),
    known("Output", &[Operation], BLOCKS),
    anywhere("Own", LANGUAGES),
    known("Parent", &[Dictionary], Form::Word),
    known("Pairs", &[Value], Form::Nothing),
    known("Peer", ARGUMENT, Form::Nothing),
    known("Positional", &[Parameter], Form::Nothing),
    known("Prepares", &[Operation], Form::Word),
    anywhere("Python", Form::Word),
    known("ReduceOps", &[Namespace], Form::Nothing),
    known("Reduces", &[Operation], Form::Nothing),
    known("Root", ARGUMENT, Form::Nothing),
    known("RootTensor", ARGUMENT, Form::Nothing),
    known("Rooted", &[Operation], Form::Nothing),
    anywhere("Rust", Form::Word),
    anywhere("Since", Form::Number),
    known("Sizes", &[Operation], SIZES),
    known("Splits", &[Parameter], Form::NothingOrWord),
    known("Tag", ARGUMENT, Form::Nothing),
    known("Throws", CALLED, Form::Words),
    known("Unbuilt", BUILT, Form::Nothing),
    known("Unordered", &[Operation], Form::Nothing),
    known("Variant", &[Operation], Form::Word),
    known("Waits", &[Operation, Constructor], Form::Nothing),
];

/// The extended attributes of one item, known and of the right form.
#[derive(Clone, Debug)]
pub(super) struct Attributes<'a> {
    by_name: BTreeMap<&'static str, &'a ExtendedAttribute>,
    /// Those that are there with a wrong value, which was reported.
    malformed: Vec<&'static str>,
}

impl<'a> Attributes<'a> {
    /// Those of `written` that obey the rules; the others are reported.
    pub(super) fn read(
        target: AttributeTarget,
        written: &'a [ExtendedAttribute],
        diagnostics: &mut Diagnostics,
    ) -> Attributes<'a> {
        let mut by_name = BTreeMap::new();
        let mut malformed = Vec::new();
        for attribute in written {
            let Some(known) = find(target, attribute, diagnostics) else { continue };
            if !check_form(known, &attribute.value, attribute.span, diagnostics) {
                malformed.push(known.name);
                continue;
            }
            if let Some(first) = by_name.insert(known.name, attribute) {
                let message = format!("`{}` is given twice", known.name);
                let diagnostic = Diagnostic::new(Rule::RepeatedAttribute, attribute.span, message);
                diagnostics.push(diagnostic.related(first.span, "first here").advice("keep one"));
            }
        }
        Attributes { by_name, malformed }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether it is neither there nor was reported.
    pub(super) fn lacks(&self, name: &str) -> bool {
        !self.has(name) && !self.malformed.contains(&name)
    }

    /// Where it stands, if it does.
    pub(super) fn span(&self, name: &str) -> Option<Span> {
        self.by_name.get(name).map(|attribute| attribute.span)
    }

    /// The identifier, string or number after its `=`, with its position.
    pub(super) fn value(&self, name: &str) -> Option<&'a Name> {
        match &self.by_name.get(name)?.value {
            AttributeValue::None => None,
            AttributeValue::Words(words) => words.first(),
            AttributeValue::Text(value) | AttributeValue::Number(value) => Some(value),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|value| value.text.clone())
    }

    pub(super) fn words(&self, name: &str) -> &'a [Name] {
        match self.by_name.get(name).map(|attribute| &attribute.value) {
            Some(AttributeValue::Words(words)) => words,
            Some(AttributeValue::Text(text)) => std::slice::from_ref(text),
            _ => &[],
        }
    }

    pub(super) fn integer(&self, name: &str) -> Option<u32> {
        self.value(name)?.text.parse().ok()
    }

    /// The attributes that any sort of item can have.
    pub(super) fn common(&self) -> CommonAttributes {
        let texts = |name| self.words(name).iter().map(|word| word.text.clone()).collect();
        let backends = self.text("Backends").unwrap_or_default();
        CommonAttributes {
            aliases: texts("Alias"),
            python: self.text("Python"),
            rust: self.text("Rust"),
            since: self.text("Since"),
            throws: texts("Throws"),
            backends: backends.split_whitespace().map(str::to_owned).collect(),
            unbuilt: self.has("Unbuilt"),
            handwritten: self.has("Handwritten"),
            javascript: self.text("JavaScript"),
            not_in: texts("NotIn"),
            not_in_pages: self.has("NotInPages"),
            own: texts("Own"),
            waits: self.has("Waits"),
            blocks: self.has("Blocks"),
            unordered: self.has("Unordered"),
            leaves: self.text("Leaves"),
            factory: self.text("Factory"),
            non_member: self.has("NonMember"),
            positional: self.has("Positional"),
            constants: self.has("Constants"),
        }
    }
}

fn find(
    target: AttributeTarget,
    attribute: &ExtendedAttribute,
    diagnostics: &mut Diagnostics,
) -> Option<&'static KnownAttribute> {
    let name = attribute.name.text.as_str();
    let Some(known) = TABLE.iter().find(|known| known.name == name) else {
        let message = format!("there is no extended attribute `{name}`");
        let advice = match nearest(name, TABLE.iter().map(|known| known.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "idl/README.md lists the extended attributes".to_owned(),
        };
        let diagnostic = Diagnostic::new(Rule::UnknownAttribute, attribute.name.span, message);
        diagnostics.push(diagnostic.advice(advice));
        return None;
    };
    if let Some(targets) = known.targets.filter(|targets| !targets.contains(&target)) {
        let message = format!("`{name}` means nothing on {}", target.name());
        let targets: Vec<&str> = targets.iter().map(|target| target.name()).collect();
        let advice = format!("it applies to {}", targets.join(", "));
        let diagnostic = Diagnostic::new(Rule::MisplacedAttribute, attribute.name.span, message);
        diagnostics.push(diagnostic.advice(advice));
        return None;
    }
    Some(known)
}

fn check_form(
    known: &KnownAttribute,
    value: &AttributeValue,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> bool {
    // WebIDL wants its own keywords in quotes, so that a string may stand for an identifier.
    let words = match value {
        AttributeValue::Words(_) | AttributeValue::Text(_) => value.words(),
        AttributeValue::None | AttributeValue::Number(_) => &[],
    };
    let fits = match (known.form, value) {
        (Form::Nothing | Form::NothingOrWord | Form::NothingOrText, AttributeValue::None) => true,
        (Form::Word | Form::NothingOrWord, _) => words.len() == 1,
        (Form::Words, _) => !words.is_empty(),
        (Form::OneOf(names), _) => matches!(words, [it] if names.contains(&it.text.as_str())),
        (Form::SomeOf(names), _) => {
            !words.is_empty() && words.iter().all(|it| names.contains(&it.text.as_str()))
        }
        (Form::Text | Form::NothingOrText, AttributeValue::Text(_)) => true,
        (Form::Integer, AttributeValue::Number(number)) => number.text.parse::<u32>().is_ok(),
        (Form::Number, AttributeValue::Number(_) | AttributeValue::Text(_)) => true,
        _ => false,
    };
    if !fits {
        let name = known.name;
        let message = format!("`{name}` does not take this value");
        let advice = match known.form {
            Form::Nothing => format!("write `[{name}]` without a value"),
            Form::Word => format!("write `[{name}=identifier]`"),
            Form::NothingOrWord => format!("write `[{name}]` or `[{name}=identifier]`"),
            Form::Words => format!("write `[{name}=identifier]` or `[{name}=(a, b)]`"),
            Form::OneOf(names) => format!("write one of {}", names.join(", ")),
            Form::SomeOf(names) => format!("write one or more of {}", names.join(", ")),
            Form::Text => format!("write `[{name}=\"text\"]`"),
            Form::NothingOrText => format!("write `[{name}]` or `[{name}=\"text\"]`"),
            Form::Integer => format!("write a number from 0 on: `[{name}=0]`"),
            Form::Number => format!("write a version: `[{name}=0.1]`"),
        };
        diagnostics.push(Diagnostic::new(Rule::AttributeValue, span, message).advice(advice));
    }
    fits
}
