//! `WebSocketStore`.

use std::time::Duration;

use crate::calls::answer::{Answer, IntoAnswer};
use crate::calls::invocation::Invocation;
use crate::calls::object::StoreObject;
use crate::calls::parameters::web_socket_store::*;
use crate::generated::error::{Error, Result};
use crate::rendezvous::open_web_socket_store;
use crate::store::WebSocketStoreOptions;

/// Connects.
pub(crate) async fn new(mut call: Invocation) -> Result<Answer> {
    let url: String = call.take(new::URL)?;
    let timeout: Duration = call.take(new::TIMEOUT)?;
    let grace: Option<Duration> = call.take(new::RECONNECT_GRACE)?;
    let options = WebSocketStoreOptions::new(timeout).reconnect_grace(grace);
    let store = open_web_socket_store(&url, options).await?;
    StoreObject::web_socket(store, url).into_answer()
}

/// The address that was given.
pub(crate) fn url(call: Invocation) -> Result<Answer> {
    let no = || Error::InvalidType { message: "the store is not a WebSocketStore".to_owned() };
    call.this_store()?.url().ok_or_else(no)?.into_answer()
}
