//! Text -> tokens. Knows nothing of how they fit together.

use super::diagnostics::{Diagnostic, Diagnostics};
use super::rule::Rule;
use super::span::Span;

/// A token, its place, and the doc comment before it.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) span: Span,
    /// The `///` lines right before it, and where they stand.
    pub(super) doc: Option<(String, Span)>,
}

/// The kinds of token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// An identifier or a keyword.
    Word(String),
    /// A string, without its quotes.
    String(String),
    Integer(i64),
    /// Its value, and how it was written.
    Decimal(f64, String),
    /// One of the characters that stand for themselves.
    Symbol(char),
    /// `...`
    Ellipsis,
    End,
}

/// All tokens of a text; the last one is [`TokenKind::End`].
pub(super) fn tokens(file: usize, text: &str, diagnostics: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer { file, text, at: 0, doc: None, tokens: Vec::new(), diagnostics };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'a> {
    file: usize,
    text: &'a str,
    at: usize,
    doc: Option<(String, Span)>,
    tokens: Vec<Token>,
    diagnostics: &'a mut Diagnostics,
}

impl Lexer<'_> {
    /// Reads one token or one piece of what stands between tokens; whether there may be more.
    fn step(&mut self) -> bool {
        let start = self.at;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else {
            self.push(start, TokenKind::End);
            return false;
        };
        if first.is_whitespace() {
            self.at += first.len_utf8();
        } else if rest.starts_with("//") {
            self.line_comment(rest);
        } else if rest.starts_with("/*") {
            self.block_comment(rest);
        } else if rest.starts_with("...") {
            self.at += 3;
            self.push(start, TokenKind::Ellipsis);
        } else if first == '"' {
            self.string(rest);
        } else if starts_number(rest) {
            self.number(rest);
        } else if starts_word(rest) {
            self.word(rest);
        } else if "()[]{}<>,;:?=*-".contains(first) {
            self.at += 1;
            self.push(start, TokenKind::Symbol(first));
        } else {
            self.at += first.len_utf8();
            let message = format!("the character `{}` is not allowed here", first.escape_debug());
            self.report(Rule::StrayCharacter, start, message, "remove it");
        }
        true
    }

    fn line_comment(&mut self, rest: &str) {
        let start = self.at;
        let line = rest.split('\n').next().unwrap_or(rest);
        self.at += line.len();
        let Some(doc) = line.strip_prefix("///").filter(|doc| !doc.starts_with('/')) else {
            return;
        };
        let doc = doc.strip_prefix(' ').unwrap_or(doc).trim_end();
        let span = self.span(start);
        match &mut self.doc {
            None => self.doc = Some((doc.to_owned(), span)),
            Some((lines, all)) => {
                lines.push('\n');
                lines.push_str(doc);
                *all = all.to(span);
            }
        }
    }

    fn block_comment(&mut self, rest: &str) {
        let start = self.at;
        match rest[2..].find("*/") {
            Some(length) => self.at += length + 4,
            None => {
                self.at = start + 2;
                let message = "this comment has no end".to_owned();
                self.report(Rule::UnterminatedComment, start, message, "close it with `*/`");
                self.at = self.text.len();
            }
        }
    }

    fn string(&mut self, rest: &str) {
        let start = self.at;
        let end = rest[1..].find(['"', '\n']).map(|length| length + 1);
        match end {
            Some(end) if rest[end..].starts_with('"') => {
                self.at += end + 1;
                self.push(start, TokenKind::String(rest[1..end].to_owned()));
            }
            _ => {
                self.at += end.unwrap_or(rest.len());
                let message = "this string has no end".to_owned();
                let advice = "close it with `\"` on the same line";
                self.report(Rule::UnterminatedString, start, message, advice);
                self.push(start, TokenKind::String(rest[1..self.at - start].to_owned()));
            }
        }
    }

    fn number(&mut self, rest: &str) {
        let start = self.at;
        let in_number = |index: usize, c: char| {
            let exponent_sign = (c == '-' || c == '+')
                && rest[..index].ends_with(['e', 'E'])
                && !rest.starts_with("0x");
            c.is_ascii_alphanumeric() || c == '.' || exponent_sign || (c == '-' && index == 0)
        };
        let written: String = rest
            .char_indices()
            .take_while(|&(index, c)| in_number(index, c))
            .map(|(_, c)| c)
            .collect();
        self.at += written.len();
        let kind = number(&written).unwrap_or_else(|| {
            let message = format!("`{written}` is not a number that fits 64 bits");
            let advice = "write a decimal or hexadecimal integer, or a number with a point";
            self.report(Rule::BadNumber, start, message, advice);
            TokenKind::Integer(0)
        });
        self.push(start, kind);
    }

    fn word(&mut self, rest: &str) {
        let start = self.at;
        let more = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = rest[1..].find(|c| !more(c)).map_or(rest.len(), |length| length + 1);
        self.at += end;
        // WebIDL: one leading underscore only lets a name look like a keyword.
        let name = rest[..end].strip_prefix('_').unwrap_or(&rest[..end]);
        self.push(start, TokenKind::Word(name.to_owned()));
    }

    fn push(&mut self, start: usize, kind: TokenKind) {
        let span = self.span(start);
        self.tokens.push(Token { kind, span, doc: self.doc.take() });
    }

    fn span(&self, start: usize) -> Span {
        Span { file: self.file, start, end: self.at }
    }

    fn report(&mut self, rule: Rule, start: usize, message: String, advice: &str) {
        self.diagnostics.push(Diagnostic::new(rule, self.span(start), message).advice(advice));
    }
}

fn starts_number(rest: &str) -> bool {
    let digits = rest.strip_prefix('-').unwrap_or(rest);
    let digits = digits.strip_prefix('.').unwrap_or(digits);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

fn starts_word(rest: &str) -> bool {
    let name = rest.strip_prefix('_').unwrap_or(rest);
    name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn number(written: &str) -> Option<TokenKind> {
    let (sign, digits) = match written.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, written),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    if let Some(hexadecimal) = hexadecimal {
        let value = i64::from_str_radix(hexadecimal, 16).ok()?;
        return (!hexadecimal.starts_with('+')).then_some(TokenKind::Integer(sign * value));
    }
    if digits.contains(['.', 'e', 'E']) {
        let value: f64 = written.parse().ok()?;
        return value.is_finite().then(|| TokenKind::Decimal(value, written.to_owned()));
    }
    written.parse().ok().map(TokenKind::Integer)
}
