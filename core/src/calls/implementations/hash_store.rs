//! `HashStore`.

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::StoreObject;
use crate::generated::error::Result;
use crate::store::HashStore;

/// An empty store.
pub(crate) fn new(_: Invocation) -> Result<Answer> {
    StoreObject::from(HashStore::new()).into_answer()
}
