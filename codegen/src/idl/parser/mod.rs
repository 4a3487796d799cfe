//! Tokens -> syntax tree, by recursive descent. Knows nothing of what names mean.
//!
//! A rule returns `None` after it has reported a mistake; the nearest list of definitions or
//! members then skips to the next `;` or `}` and continues, so that one run finds every mistake.

mod definition;
mod member;
mod value;

use super::diagnostics::{Diagnostic, Diagnostics};
use super::lexer::{self, Token, TokenKind};
use super::rule::Rule;
use super::span::{Sources, Span};
use super::syntax::{Definition, Name};

/// The definitions of one file.
pub fn parse(sources: &Sources, file: usize, diagnostics: &mut Diagnostics) -> Vec<Definition> {
    let tokens = lexer::tokens(file, sources.text(file), diagnostics);
    let mut parser = Parser { tokens, at: 0, diagnostics };
    let mut definitions = Vec::new();
    while !parser.at_end() {
        let start = parser.at;
        match parser.definition() {
            Some(definition) => definitions.push(definition),
            None => parser.skip_definition(start),
        }
    }
    if let Some((_, span)) = parser.tokens[parser.at].doc.take() {
        parser.lost_doc(span);
    }
    definitions
}

struct Parser<'a> {
    /// Never empty: the last one is `End`, and `at` never passes it.
    tokens: Vec<Token>,
    at: usize,
    diagnostics: &'a mut Diagnostics,
}

impl Parser<'_> {
    fn kind(&self) -> &TokenKind {
        &self.tokens[self.at].kind
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    fn previous_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn at_end(&self) -> bool {
        *self.kind() == TokenKind::End
    }

    fn at_symbol(&self, symbol: char) -> bool {
        *self.kind() == TokenKind::Symbol(symbol)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Word(text) if text == word)
    }

    /// Goes to the next token. A doc comment that nobody took documents nothing.
    fn advance(&mut self) {
        if let Some((_, span)) = self.tokens[self.at].doc.take() {
            self.lost_doc(span);
        }
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    /// The doc comment before the current token.
    fn take_doc(&mut self) -> String {
        self.tokens[self.at].doc.take().map(|(doc, _)| doc).unwrap_or_default()
    }

    fn accept_symbol(&mut self, symbol: char) -> bool {
        let there = self.at_symbol(symbol);
        if there {
            self.advance();
        }
        there
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let there = self.at_word(word);
        if there {
            self.advance();
        }
        there
    }

    fn symbol(&mut self, symbol: char, after: &str) -> Option<()> {
        if self.accept_symbol(symbol) {
            return Some(());
        }
        self.expected(&format!("`{symbol}` after {after}"))
    }

    /// A `;`. A missing one is reported, and reading continues as if it were there.
    fn semicolon(&mut self, after: &str) {
        if !self.accept_symbol(';') {
            let span = self.previous_span().after();
            let message = format!("{after} ends with `;`");
            let diagnostic = Diagnostic::new(Rule::Syntax, span, message);
            self.diagnostics.push(diagnostic.label("here").advice("add the `;`"));
        }
    }

    fn name(&mut self, what: &str) -> Option<Name> {
        if let TokenKind::Word(text) = self.kind() {
            let name = Name { text: text.clone(), span: self.span() };
            self.advance();
            return Some(name);
        }
        self.expected(what)
    }

    /// Reports what stands here instead of what was expected.
    fn expected<T>(&mut self, what: &str) -> Option<T> {
        let found = match self.kind() {
            TokenKind::Word(text) => format!("`{text}`"),
            TokenKind::String(text) => format!("the string \"{text}\""),
            TokenKind::Integer(value) => format!("the number {value}"),
            TokenKind::Decimal(_, text) => format!("the number {text}"),
            TokenKind::Symbol(symbol) => format!("`{symbol}`"),
            TokenKind::Ellipsis => "`...`".to_owned(),
            TokenKind::End => "the end of the file".to_owned(),
        };
        let message = format!("expected {what}, found {found}");
        let label = format!("expected {what}");
        let diagnostic = Diagnostic::new(Rule::Syntax, self.span(), message).label(label);
        self.diagnostics.push(diagnostic);
        None
    }

    fn unsupported<T>(&mut self, message: String, advice: &str) -> Option<T> {
        let diagnostic = Diagnostic::new(Rule::UnsupportedSyntax, self.span(), message);
        self.diagnostics.push(diagnostic.advice(advice));
        None
    }

    fn lost_doc(&mut self, span: Span) {
        let message = "this comment documents nothing";
        let advice = "put it right before a definition, a member or an enum value, before its \
                      `[…]`; other comments start with `//`";
        self.diagnostics.push(Diagnostic::new(Rule::LostDoc, span, message).advice(advice));
    }

    /// After a mistake in a member: past its `;`, or to the `}` that closes the list.
    fn skip_member(&mut self) {
        let mut depth = 0usize;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Symbol(';') if depth == 0 => return self.skip_token(),
                TokenKind::Symbol('}') if depth == 0 => return,
                TokenKind::Symbol('{') => depth += 1,
                TokenKind::Symbol('}') => depth -= 1,
                _ => {}
            }
            self.skip_token();
        }
    }

    /// After a mistake in a definition: past its `;`, its braces included.
    fn skip_definition(&mut self, start: usize) {
        let mut depth = 0usize;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Symbol(';') if depth == 0 => return self.skip_token(),
                TokenKind::Symbol('{') => depth += 1,
                TokenKind::Symbol('}') => depth = depth.saturating_sub(1),
                TokenKind::Word(word)
                    if depth == 0 && self.at > start && definition::starts(word) =>
                {
                    return;
                }
                _ => {}
            }
            self.skip_token();
        }
    }

    /// Continues without a word about doc comments: what they document is wrong already.
    fn skip_token(&mut self) {
        self.tokens[self.at].doc = None;
        self.advance();
    }
}
