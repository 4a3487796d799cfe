//! The model: syntax trees of all files -> one [`Api`], every rule of the IDL checked.
//!
//! Knows nothing of text and of target languages.

mod api;
mod attributes;
mod build;
mod builder;
mod constants;
mod errors;
mod find;
mod interfaces;
mod listed;
mod methods;
pub mod names;
mod numbers;
mod order;
mod overloads;
mod roles;
mod scope;
mod types;

pub use api::*;
pub use build::build;
pub use order::Order;
pub use types::{Constant, Type};
