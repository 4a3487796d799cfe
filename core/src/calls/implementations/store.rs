//! `Store`, the base class.

use std::time::Duration;

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::{Invocation, references};
use crate::calls::parameters::store::*;
use crate::generated::error::Result;

/// Waits until all keys are there.
pub(crate) async fn wait(mut call: Invocation) -> Result<Answer> {
    let keys: Vec<String> = call.take(wait::KEYS)?;
    let timeout: Option<Duration> =
        if call.overload() == 0 { None } else { call.take(wait::TIMEOUT)? };
    let store = call.this_store()?;
    store.get().wait_async(&references(&keys), timeout).await.into_answer()
}

/// Another handle on the same data: an object of the same class.
pub(crate) async fn clone(call: Invocation) -> Result<Answer> {
    call.this_store()?.another().await?.into_answer()
}
