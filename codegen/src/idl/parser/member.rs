//! Members of interfaces, namespaces and dictionaries, and their parameters.

use super::Parser;
use crate::idl::diagnostics::Diagnostic;
use crate::idl::lexer::TokenKind;
use crate::idl::rule::Rule;
use crate::idl::syntax::Parameter;
use crate::idl::syntax::{DictionaryMember, ExtendedAttribute, Literal, Member, MemberKind, Name};

impl Parser<'_> {
    pub(super) fn member(&mut self) -> Option<Member> {
        let doc = self.take_doc();
        let attributes = self.attributes()?;
        let (name, kind) = self.member_kind()?;
        self.semicolon("a member");
        Some(Member { doc, attributes, name, kind })
    }

    pub(super) fn dictionary_member(&mut self) -> Option<DictionaryMember> {
        let doc = self.take_doc();
        let attributes = self.attributes()?;
        let required = self.accept_word("required");
        let ty = self.type_syntax()?;
        let name = self.name("the name of the member")?;
        let default = self.default(required, "a required member")?;
        self.semicolon("a member");
        Some(DictionaryMember { doc, attributes, required, ty, name, default })
    }

    /// `(parameter, parameter)`
    pub(super) fn parameters(&mut self) -> Option<Vec<Parameter>> {
        self.symbol('(', "the name")?;
        let mut parameters = Vec::new();
        if self.accept_symbol(')') {
            return Some(parameters);
        }
        loop {
            parameters.push(self.parameter()?);
            if !self.accept_symbol(',') {
                break;
            }
        }
        self.symbol(')', "the parameters")?;
        Some(parameters)
    }

    fn member_kind(&mut self) -> Option<(Name, MemberKind)> {
        if self.at_word("constructor") {
            let name = self.name("`constructor`")?;
            let parameters = self.parameters()?;
            return Some((name, MemberKind::Constructor { parameters }));
        }
        if self.accept_word("const") {
            return self.constant();
        }
        for word in ["getter", "setter", "deleter", "stringifier", "iterable", "async", "inherit"] {
            if self.at_word(word) {
                let message = format!("`{word}` is not part of this IDL");
                return self.unsupported(message, "write an operation with a name");
            }
        }
        let is_static = self.accept_word("static");
        let readonly = self.accept_word("readonly");
        if self.accept_word("attribute") {
            let ty = self.type_syntax()?;
            let name = self.name("the name of the attribute")?;
            return Some((name, MemberKind::Attribute { is_static, readonly, ty }));
        }
        if readonly {
            return self.expected("`attribute` after `readonly`");
        }
        let returns = self.type_syntax()?;
        let name = self.name("the name of the operation")?;
        let parameters = self.parameters()?;
        Some((name, MemberKind::Operation { is_static, returns, parameters }))
    }

    /// `Type NAME = value`
    fn constant(&mut self) -> Option<(Name, MemberKind)> {
        let ty = self.type_syntax()?;
        let name = self.name("the name of the constant")?;
        self.symbol('=', "the name of the constant")?;
        let value = self.literal()?;
        Some((name, MemberKind::Constant { ty, value }))
    }

    fn parameter(&mut self) -> Option<Parameter> {
        let attributes = self.attributes()?;
        let optional = self.accept_word("optional");
        let attributes = self.attributes_of_type(attributes)?;
        let ty = self.type_syntax()?;
        if *self.kind() == TokenKind::Ellipsis {
            let message = "variadic parameters are not part of this IDL".to_owned();
            return self.unsupported(message, "take a `sequence<T>`");
        }
        let name = self.name("the name of the parameter")?;
        let default = self.default(!optional, "a required parameter")?;
        Some(Parameter { attributes, optional, ty, name, default })
    }

    /// WebIDL lets attributes stand before `optional` or before the type; they mean the same here.
    fn attributes_of_type(
        &mut self,
        mut attributes: Vec<ExtendedAttribute>,
    ) -> Option<Vec<ExtendedAttribute>> {
        attributes.extend(self.attributes()?);
        Some(attributes)
    }

    /// `= value`, if it is there.
    fn default(&mut self, required: bool, what: &str) -> Option<Option<Literal>> {
        let span = self.span();
        if !self.accept_symbol('=') {
            return Some(None);
        }
        let literal = self.literal()?;
        if required {
            let message = format!("{what} has no default");
            let advice = match what.contains("parameter") {
                true => "write `optional` before the type, or leave the default away",
                false => "leave `required` or the default away",
            };
            let span = span.to(literal.span);
            let diagnostic = Diagnostic::new(Rule::DefaultOfRequired, span, message);
            self.diagnostics.push(diagnostic.advice(advice));
            return Some(None);
        }
        Some(Some(literal))
    }
}
