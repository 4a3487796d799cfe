//! Definitions: interfaces, namespaces, dictionaries, enums, callbacks, typedefs.

use super::Parser;
use crate::idl::diagnostics::Diagnostic;
use crate::idl::lexer::TokenKind;
use crate::idl::rule::Rule;
use crate::idl::syntax::{Definition, DefinitionKind, EnumValue, Name};

const STARTS: [&str; 7] =
    ["partial", "interface", "namespace", "dictionary", "enum", "callback", "typedef"];

/// Whether a definition can start with this word.
pub(super) fn starts(word: &str) -> bool {
    STARTS.contains(&word)
}

impl Parser<'_> {
    pub(super) fn definition(&mut self) -> Option<Definition> {
        let doc = self.take_doc();
        let attributes = self.attributes()?;
        let partial = self.accept_word("partial");
        let keyword = match self.kind() {
            TokenKind::Word(word) if starts(word) && word != "partial" => word.clone(),
            TokenKind::Word(word) => {
                let message = format!("a definition cannot start with `{word}`");
                let advice = "definitions are `interface`, `partial interface`, `namespace`, \
                              `dictionary`, `enum`, `callback` and `typedef`";
                let diagnostic = Diagnostic::new(Rule::UnknownDefinition, self.span(), message);
                self.diagnostics.push(diagnostic.advice(advice));
                return None;
            }
            _ => return self.expected("a definition"),
        };
        if partial && keyword != "interface" && keyword != "namespace" {
            let message = format!("a {keyword} cannot be partial");
            return self.unsupported(message, "only interfaces and namespaces can: write it whole");
        }
        self.advance();
        let (name, kind) = match keyword.as_str() {
            "enum" => self.enumeration()?,
            "callback" => self.callback()?,
            "typedef" => self.typedef()?,
            _ => self.container(&keyword)?,
        };
        self.semicolon(&format!("{} {keyword}", article(&keyword)));
        Some(Definition { doc, attributes, name, partial, kind })
    }

    /// `Name : Base { members }`
    fn container(&mut self, keyword: &str) -> Option<(Name, DefinitionKind)> {
        if self.at_word("mixin") {
            let advice = "write a `partial interface`, or a base interface";
            return self.unsupported("mixins are not part of this IDL".to_owned(), advice);
        }
        let name = self.name(&format!("the name of the {keyword}"))?;
        let inherits = match self.accept_symbol(':') {
            true => Some(self.name("the name of the base")?),
            false => None,
        };
        self.symbol('{', &format!("the name of the {keyword}"))?;
        let kind = match keyword {
            "dictionary" => {
                let members = self.list(Self::dictionary_member)?;
                DefinitionKind::Dictionary { inherits, members }
            }
            "namespace" => {
                let members = self.list(Self::member)?;
                DefinitionKind::Namespace { members }
            }
            _ => {
                let members = self.list(Self::member)?;
                DefinitionKind::Interface { inherits, members }
            }
        };
        Some((name, kind))
    }

    /// Members up to and with the `}`. A wrong one is left out.
    fn list<T>(&mut self, mut member: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut members = Vec::new();
        while !self.at_symbol('}') {
            if self.at_end() {
                return self.expected("`}` after the last member");
            }
            match member(self) {
                Some(member) => members.push(member),
                None => self.skip_member(),
            }
        }
        self.advance();
        Some(members)
    }

    /// `Name { "value", "value" }`
    fn enumeration(&mut self) -> Option<(Name, DefinitionKind)> {
        let name = self.name("the name of the enum")?;
        self.symbol('{', "the name of the enum")?;
        let mut values = Vec::new();
        while !self.at_symbol('}') {
            let doc = self.take_doc();
            let span = self.span();
            let TokenKind::String(text) = self.kind() else {
                return self.expected("a string: enum values stand in quotes");
            };
            values.push(EnumValue { doc, value: Name { text: text.clone(), span } });
            self.advance();
            if !self.accept_symbol(',') {
                break;
            }
        }
        self.symbol('}', "the values of the enum")?;
        Some((name, DefinitionKind::Enum { values }))
    }

    /// `Name = Type (parameters)`
    fn callback(&mut self) -> Option<(Name, DefinitionKind)> {
        let name = self.name("the name of the callback")?;
        self.symbol('=', "the name of the callback")?;
        let returns = self.type_syntax()?;
        let parameters = self.parameters()?;
        Some((name, DefinitionKind::Callback { returns, parameters }))
    }

    /// `Type Name`
    fn typedef(&mut self) -> Option<(Name, DefinitionKind)> {
        let ty = self.type_syntax()?;
        let name = self.name("the name of the typedef")?;
        Some((name, DefinitionKind::Typedef { ty }))
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
