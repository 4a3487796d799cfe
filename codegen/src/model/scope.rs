//! Which names are defined, and what types they stand for.

use std::collections::BTreeMap;

use super::names::nearest;
use super::types::Type;
use crate::idl::{Definition, DefinitionKind, Diagnostic, Diagnostics, Name, Rule, Span};
use crate::idl::{TypeKind, TypeSyntax};

const BUILT_IN: &[(&str, Type)] = &[
    ("undefined", Type::Undefined),
    ("boolean", Type::Boolean),
    ("long", Type::Long),
    ("unsigned long", Type::UnsignedLong),
    ("long long", Type::LongLong),
    ("unsigned long long", Type::UnsignedLongLong),
    ("double", Type::Double),
    ("DOMString", Type::String),
    ("any", Type::Object),
    ("object", Type::Object),
];

/// The names that `[Opaque] typedef any …` may define.
const OPAQUE: &[(&str, Type)] = &[
    ("Tensor", Type::Tensor),
    ("Bytes", Type::Bytes),
    ("Duration", Type::Duration),
    ("Object", Type::Object),
];

/// A name, where it was defined, and the partial definitions that add to it.
pub(super) struct DefinedName<'a> {
    pub(super) definition: &'a Definition,
    pub(super) partials: Vec<&'a Definition>,
}

/// All names.
pub(super) struct Scope<'a> {
    by_name: BTreeMap<&'a str, DefinedName<'a>>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(definitions: &'a [Definition], diagnostics: &mut Diagnostics) -> Scope<'a> {
        let mut scope = Scope { by_name: BTreeMap::new() };
        for definition in definitions.iter().filter(|definition| !definition.partial) {
            scope.define(definition, diagnostics);
        }
        for partial in definitions.iter().filter(|definition| definition.partial) {
            scope.join(partial, diagnostics);
        }
        scope
    }

    pub(super) fn get(&self, name: &str) -> Option<&DefinedName<'a>> {
        self.by_name.get(name)
    }

    /// All definitions but the partial ones.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &'a Definition> {
        self.by_name.values().map(|defined| defined.definition)
    }

    /// The base of an interface or a dictionary.
    pub(super) fn parent(&self, name: &str) -> Option<&'a str> {
        match &self.get(name)?.definition.kind {
            DefinitionKind::Interface { inherits, .. }
            | DefinitionKind::Dictionary { inherits, .. } => {
                inherits.as_ref().map(|base| base.text.as_str())
            }
            _ => None,
        }
    }

    /// The type that is written; `Object` after a mistake, so that it is reported once.
    pub(super) fn resolve(&self, written: &TypeSyntax, diagnostics: &mut Diagnostics) -> Type {
        self.resolve_in(written, &mut Vec::new(), diagnostics)
    }

    /// As [`Scope::resolve`], where a value must be: `undefined` is none.
    pub(super) fn resolve_value(
        &self,
        written: &TypeSyntax,
        diagnostics: &mut Diagnostics,
    ) -> Type {
        let ty = self.resolve(written, diagnostics);
        if *ty.non_null() == Type::Undefined {
            let message = "`undefined` can only be returned";
            let diagnostic = Diagnostic::new(Rule::MisplacedType, written.span, message);
            diagnostics.push(diagnostic.advice("name the type of the value"));
            return Type::Object;
        }
        ty
    }

    /// The base that is named, if it is a definition with the same keyword.
    pub(super) fn base(
        &self,
        name: &Name,
        keyword: &str,
        diagnostics: &mut Diagnostics,
    ) -> Option<&DefinedName<'a>> {
        let base = self.get(&name.text);
        if let Some(base) = base.filter(|base| base.definition.kind.keyword() == keyword) {
            return Some(base);
        }
        let message = format!("there is no {keyword} `{}`", name.text);
        let names = self.by_name.iter();
        let same = names.filter(|(_, other)| other.definition.kind.keyword() == keyword);
        let near = nearest(&name.text, same.map(|(name, _)| *name));
        diagnostics.push(suggest(Diagnostic::new(Rule::UnknownBase, name.span, message), near));
        None
    }

    fn define(&mut self, definition: &'a Definition, diagnostics: &mut Diagnostics) {
        let name = &definition.name;
        if let Some(first) = self.by_name.get(name.text.as_str()) {
            let message = format!("`{}` is defined twice", name.text);
            let advice = match definition.kind.keyword() {
                "interface" | "namespace" => "write `partial` before one, or rename it",
                _ => "rename one",
            };
            let diagnostic = Diagnostic::new(Rule::DuplicateName, name.span, message)
                .related(first.definition.name.span, "first here")
                .advice(advice);
            return diagnostics.push(diagnostic);
        }
        if BUILT_IN.iter().any(|(built_in, _)| *built_in == name.text) {
            let message = format!("`{}` is a built-in type", name.text);
            let diagnostic = Diagnostic::new(Rule::DuplicateName, name.span, message);
            return diagnostics.push(diagnostic.advice("rename the definition"));
        }
        self.by_name.insert(&name.text, DefinedName { definition, partials: Vec::new() });
    }

    fn join(&mut self, partial: &'a Definition, diagnostics: &mut Diagnostics) {
        let keyword = partial.kind.keyword();
        match self.by_name.get_mut(partial.name.text.as_str()) {
            Some(whole) if whole.definition.kind.keyword() == keyword => {
                whole.partials.push(partial);
            }
            _ => {
                let name = &partial.name;
                let message = format!("there is no {keyword} `{}` to add to", name.text);
                let same = self.by_name.iter();
                let same = same.filter(|(_, other)| other.definition.kind.keyword() == keyword);
                let near = nearest(&name.text, same.map(|(name, _)| *name));
                let diagnostic = Diagnostic::new(Rule::PartialOfNothing, name.span, message);
                diagnostics.push(suggest(diagnostic, near));
            }
        }
    }

    fn resolve_in(
        &self,
        written: &TypeSyntax,
        typedefs: &mut Vec<&'a str>,
        diagnostics: &mut Diagnostics,
    ) -> Type {
        let ty = match &written.kind {
            TypeKind::Sequence(inner) => {
                let mut ty = self.resolve_in(inner, typedefs, diagnostics);
                if ty == Type::Undefined {
                    let message = "a sequence of `undefined` has no elements";
                    let rule = Rule::MisplacedType;
                    diagnostics.push(Diagnostic::new(rule, inner.span, message));
                    ty = Type::Object;
                }
                Type::Sequence(Box::new(ty))
            }
            TypeKind::Named(name) => self.resolve_name(name, written.span, typedefs, diagnostics),
        };
        match ty {
            Type::Nullable(_) => ty,
            other if written.nullable => Type::Nullable(Box::new(other)),
            other => other,
        }
    }

    fn resolve_name(
        &self,
        name: &str,
        span: Span,
        typedefs: &mut Vec<&'a str>,
        diagnostics: &mut Diagnostics,
    ) -> Type {
        if let Some((_, ty)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return ty.clone();
        }
        let Some((&key, defined)) = self.by_name.get_key_value(name) else {
            let message = format!("there is no type `{name}`");
            let built_in = BUILT_IN.iter().map(|(name, _)| *name);
            let near = nearest(name, self.by_name.keys().copied().chain(built_in));
            diagnostics.push(suggest(Diagnostic::new(Rule::UnknownType, span, message), near));
            return Type::Object;
        };
        let definition = defined.definition;
        let has = |attribute: &str| definition.attributes.iter().any(|a| a.name.text == attribute);
        let owned = name.to_owned();
        match &definition.kind {
            DefinitionKind::Interface { .. } => Type::Interface(owned),
            DefinitionKind::Enum { .. } => Type::Enum(owned),
            DefinitionKind::Callback { .. } => Type::Callback(owned),
            DefinitionKind::Namespace { .. } if has("DTypes") => Type::DType,
            DefinitionKind::Namespace { .. } if has("ReduceOps") => Type::ReduceOp,
            DefinitionKind::Dictionary { .. } if !has("Error") => Type::Dictionary(owned),
            DefinitionKind::Dictionary { .. } | DefinitionKind::Namespace { .. } => {
                let what = if has("Error") { "an error" } else { "a namespace" };
                let message = format!("`{name}` is {what}, not a type");
                diagnostics.push(Diagnostic::new(Rule::MisplacedType, span, message));
                Type::Object
            }
            DefinitionKind::Typedef { .. } if has("Opaque") => opaque(name),
            DefinitionKind::Typedef { ty } => {
                if typedefs.contains(&key) {
                    let message = format!("`{name}` is defined by itself");
                    let diagnostic = Diagnostic::new(Rule::Cycle, ty.span, message);
                    diagnostics.push(diagnostic.advice("write the type that is meant"));
                    return Type::Object;
                }
                typedefs.push(key);
                let ty = self.resolve_in(ty, typedefs, diagnostics);
                typedefs.pop();
                ty
            }
        }
    }
}

/// Checks that an opaque typedef has a name that the generator knows.
pub(super) fn check_opaque(name: &Name, diagnostics: &mut Diagnostics) {
    if OPAQUE.iter().all(|(known, _)| *known != name.text) {
        let names: Vec<&str> = OPAQUE.iter().map(|(known, _)| *known).collect();
        let message = format!("no language knows the opaque type `{}`", name.text);
        let advice = format!("opaque types are {}", names.join(", "));
        let diagnostic = Diagnostic::new(Rule::UnknownType, name.span, message);
        diagnostics.push(diagnostic.advice(advice));
    }
}

fn opaque(name: &str) -> Type {
    let known = OPAQUE.iter().find(|(known, _)| *known == name);
    known.map_or(Type::Object, |(_, ty)| ty.clone())
}

fn suggest(diagnostic: Diagnostic, near: Option<&str>) -> Diagnostic {
    match near {
        Some(near) => diagnostic.advice(format!("did you mean `{near}`?")),
        None => diagnostic.advice("define it, or check its spelling"),
    }
}
