//! What only the transport over pipes can get wrong, and the worlds in which the suite of all
//! transports runs on it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "websocket")]
mod breaking;
#[cfg(feature = "websocket")]
mod floods;
mod greetings;
#[cfg(feature = "websocket")]
pub(crate) mod groups;
#[cfg(feature = "websocket")]
mod hostile;
pub(in crate::transport) mod memory;
#[cfg(feature = "websocket")]
pub(in crate::transport) mod relayed;
mod sessions;
