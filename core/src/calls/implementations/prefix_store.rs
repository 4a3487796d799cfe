//! `PrefixStore`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::StoreObject;
use crate::calls::parameters::prefix_store::*;
use crate::generated::error::{Error, Result};

/// A view of another store.
pub(crate) fn new(mut call: Invocation) -> Result<Answer> {
    let prefix: String = call.take(new::PREFIX)?;
    let store = call.object(new::STORE).cloned();
    let store = store.ok_or_else(|| invalid("'store' must be a Store"))?;
    StoreObject::under(prefix, store)?.into_answer()
}

/// The store that this one is a view of, as it was given.
pub(crate) fn underlying_store(call: Invocation) -> Result<Answer> {
    let store = call.this_store()?;
    let (_, underlying) = store.prefixed().ok_or_else(no_prefix_store)?;
    underlying.clone().into_answer()
}

/// The prefix.
pub(crate) fn prefix(call: Invocation) -> Result<Answer> {
    let store = call.this_store()?;
    let (prefix, _) = store.prefixed().ok_or_else(no_prefix_store)?;
    prefix.into_answer()
}

fn no_prefix_store() -> Error {
    invalid("the store is not a PrefixStore")
}

fn invalid(message: &str) -> Error {
    Error::InvalidType { message: message.to_owned() }
}
