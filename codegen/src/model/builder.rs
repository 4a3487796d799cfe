//! Builds the [`Api`]: what all definitions share.

use super::api::{Api, CommonAttributes, Source};
use super::attributes::{AttributeTarget, Attributes};
use super::scope::Scope;
use crate::idl::{
    Diagnostic, Diagnostics, ExtendedAttribute, Member, Name, Rule, Sources, Span, TypeSyntax,
};

/// Builds the [`Api`], definition by definition.
pub(super) struct Builder<'a, 'd> {
    pub(super) sources: &'a Sources,
    pub(super) scope: &'a Scope<'a>,
    pub(super) diagnostics: &'d mut Diagnostics,
    /// What is built so far.
    pub(super) api: Api,
}

/// A member and the attributes of the (partial) definition that contains it.
#[derive(Clone)]
pub(super) struct DefinedMember<'a> {
    pub(super) member: &'a Member,
    pub(super) enclosing: CommonAttributes,
}

impl<'a> Builder<'a, '_> {
    pub(super) fn source(&self, span: Span) -> Source {
        Source { file: self.sources.name(span.file).to_owned(), line: self.sources.line(span) }
    }

    pub(super) fn report(&mut self, rule: Rule, span: Span, message: String, advice: &str) {
        self.diagnostics.push(Diagnostic::new(rule, span, message).advice(advice));
    }

    pub(super) fn attributes(
        &mut self,
        target: AttributeTarget,
        written: &'a [ExtendedAttribute],
    ) -> Attributes<'a> {
        Attributes::read(target, written, self.diagnostics)
    }

    pub(super) fn value_type(&mut self, written: &TypeSyntax) -> super::Type {
        self.scope.resolve_value(written, self.diagnostics)
    }

    /// The doc comment; reports if it is missing.
    pub(super) fn require_doc(&mut self, doc: &str, name: &Name) -> String {
        if doc.trim().is_empty() {
            let message = format!("`{}` has no documentation", name.text);
            let advice = "say what it is in `///` lines before it: users of every language read \
                          them";
            self.report(Rule::MissingDoc, name.span, message, advice);
        }
        doc.to_owned()
    }

    /// Reports every name that occurs more than once.
    pub(super) fn reject_duplicates<'n>(
        &mut self,
        what: &str,
        names: impl IntoIterator<Item = &'n Name>,
    ) {
        let mut seen: Vec<&Name> = Vec::new();
        for name in names {
            match seen.iter().find(|first| first.text == name.text) {
                None => seen.push(name),
                Some(first) => {
                    let message = format!("duplicate {what} `{}`", name.text);
                    let diagnostic = Diagnostic::new(Rule::DuplicateMember, name.span, message)
                        .related(first.span, "first defined here")
                        .advice("rename or remove one");
                    self.diagnostics.push(diagnostic);
                }
            }
        }
    }
}
