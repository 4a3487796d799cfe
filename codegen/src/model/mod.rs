//! The model: syntax trees of all files -> one [`Api`], every rule of the IDL checked.
//!
//! Knows nothing of text and of target languages.

mod api;
mod types;

pub use api::*;
pub use types::{Constant, Type};
