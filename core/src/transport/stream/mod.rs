//! Frames as a stream of bytes, for transports whose connections carry bytes in order: what waits
//! to leave, and what has come in part. Knows no transport.

mod inbox;
mod outbox;

pub(super) use self::inbox::{Inbox, Spare};
#[cfg(feature = "tcp")]
pub(super) use self::inbox::{Into, State};
pub(super) use self::outbox::{Flushed, Outbox};
