//! Extended attributes, types and literals.

use super::Parser;
use crate::idl::diagnostics::Diagnostic;
use crate::idl::lexer::TokenKind;
use crate::idl::rule::Rule;
use crate::idl::syntax::{AttributeValue, ExtendedAttribute, Literal, LiteralKind, Name};
use crate::idl::syntax::{TypeKind, TypeSyntax};

/// How many `sequence<` may be nested. Tensors in lists of lists need two.
const MAX_TYPE_DEPTH: usize = 8;

impl Parser<'_> {
    /// `[Name, Name=value]`, if it is there.
    pub(super) fn attributes(&mut self) -> Option<Vec<ExtendedAttribute>> {
        let mut attributes = Vec::new();
        if !self.accept_symbol('[') {
            return Some(attributes);
        }
        loop {
            let name = self.name("the name of an extended attribute")?;
            let value = match self.accept_symbol('=') {
                true => self.attribute_value()?,
                false => AttributeValue::None,
            };
            let span = name.span.to(self.previous_span());
            attributes.push(ExtendedAttribute { name, value, span });
            if !self.accept_symbol(',') {
                break;
            }
        }
        self.symbol(']', "the extended attributes")?;
        Some(attributes)
    }

    pub(super) fn type_syntax(&mut self) -> Option<TypeSyntax> {
        self.nested_type(0)
    }

    pub(super) fn literal(&mut self) -> Option<Literal> {
        let start = self.span();
        let kind = match self.kind().clone() {
            TokenKind::Integer(value) => LiteralKind::Integer(value),
            TokenKind::Decimal(value, _) => LiteralKind::Decimal(value),
            TokenKind::String(text) => LiteralKind::String(text),
            TokenKind::Word(word) => match word.as_str() {
                "null" => LiteralKind::Null,
                "true" => LiteralKind::Boolean(true),
                "false" => LiteralKind::Boolean(false),
                _ => {
                    return self.expected("a value: a number, a string, true, false, null, [], {}");
                }
            },
            TokenKind::Symbol('[') => return self.empty(']', LiteralKind::EmptySequence),
            TokenKind::Symbol('{') => return self.empty('}', LiteralKind::EmptyDictionary),
            _ => return self.expected("a value: a number, a string, true, false, null, [], {}"),
        };
        self.advance();
        Some(Literal { kind, span: start })
    }

    /// `[]` or `{}`
    fn empty(&mut self, close: char, kind: LiteralKind) -> Option<Literal> {
        let start = self.span();
        self.advance();
        self.symbol(close, "the opening one: only empty ones can be a default")?;
        Some(Literal { kind, span: start.to(self.previous_span()) })
    }

    fn attribute_value(&mut self) -> Option<AttributeValue> {
        let span = self.span();
        let value = match self.kind().clone() {
            TokenKind::Word(text) => AttributeValue::Words(vec![Name { text, span }]),
            TokenKind::String(text) => AttributeValue::Text(Name { text, span }),
            TokenKind::Integer(value) => {
                AttributeValue::Number(Name { text: value.to_string(), span })
            }
            TokenKind::Decimal(_, text) => AttributeValue::Number(Name { text, span }),
            TokenKind::Symbol('(') => return self.attribute_words(),
            _ => return self.expected("a value: an identifier, a string, a number, or (a, b)"),
        };
        self.advance();
        Some(value)
    }

    /// `(a, b)`, of identifiers or of strings.
    fn attribute_words(&mut self) -> Option<AttributeValue> {
        self.symbol('(', "`=`")?;
        let mut words = vec![self.attribute_word()?];
        while self.accept_symbol(',') {
            words.push(self.attribute_word()?);
        }
        self.symbol(')', "the list")?;
        Some(AttributeValue::Words(words))
    }

    fn attribute_word(&mut self) -> Option<Name> {
        let span = self.span();
        if let TokenKind::String(text) = self.kind() {
            let text = text.clone();
            self.advance();
            return Some(Name { text, span });
        }
        self.name("an identifier or a string")
    }

    fn nested_type(&mut self, depth: usize) -> Option<TypeSyntax> {
        let start = self.span();
        if self.at_symbol('(') {
            let advice = "write one overload for each type";
            return self.unsupported("unions are not part of this IDL".to_owned(), advice);
        }
        let kind = self.type_kind(depth)?;
        let nullable = self.accept_symbol('?');
        if self.at_symbol('?') {
            return self.expected("a name: one `?` is enough");
        }
        Some(TypeSyntax { kind, nullable, span: start.to(self.previous_span()) })
    }

    fn type_kind(&mut self, depth: usize) -> Option<TypeKind> {
        let name = self.name("a type")?;
        match name.text.as_str() {
            "sequence" => {
                self.symbol('<', "`sequence`")?;
                if depth == MAX_TYPE_DEPTH {
                    let message = "this type is too deep";
                    let advice = format!("at most {MAX_TYPE_DEPTH} sequences may be nested");
                    let diagnostic = Diagnostic::new(Rule::TypeTooDeep, name.span, message);
                    self.diagnostics.push(diagnostic.advice(advice));
                    return None;
                }
                let inner = self.nested_type(depth + 1)?;
                self.symbol('>', "the type of the elements")?;
                Some(TypeKind::Sequence(Box::new(inner)))
            }
            "unsigned" => {
                let short = !self.accept_word("long");
                if short {
                    return self.expected("`long` after `unsigned`");
                }
                let long = self.accept_word("long");
                let words = if long { "unsigned long long" } else { "unsigned long" };
                Some(TypeKind::Named(words.to_owned()))
            }
            "long" => {
                let long = self.accept_word("long");
                Some(TypeKind::Named(if long { "long long" } else { "long" }.to_owned()))
            }
            _ if self.at_symbol('<') => {
                let message = format!("`{}<…>` is not part of this IDL", name.text);
                self.unsupported(message, "the only type with a parameter is `sequence<T>`")
            }
            _ => Some(TypeKind::Named(name.text)),
        }
    }
}
