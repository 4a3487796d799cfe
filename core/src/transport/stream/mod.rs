//! Frames as a stream of bytes, for transports whose connections carry bytes in order: frames that
//! wait to leave, and frames that have arrived in part. Knows no transport.

mod inbox;
mod outbox;

pub(super) use self::inbox::{Inbox, SpareBuffers};
#[cfg(feature = "tcp")]
pub(super) use self::inbox::{PayloadPlace, State};
pub(super) use self::outbox::{FlushResult, Outbox};
