//! The reader: `.webidl` text -> syntax trees with places, and every mistake of the text.
//!
//! Knows nothing of what names and attributes mean; that is the model's part.

mod diagnostics;
mod lexer;
mod parser;
mod rule;
mod span;
mod syntax;

pub use diagnostics::{Diagnostic, Diagnostics};
pub use parser::parse;
pub use rule::Rule;
pub use span::{Sources, Span};
pub use syntax::*;
