//! What the transports over sockets have in common: a table of the group's ranks with the state of
//! each, and how connections to them are accepted, awaited and given up. Knows nothing of frames.
//!
//! A transport says in [`Medium`] what its connections are, and in [`PeerTransport`] what it does
//! with them. Both are generic parameters, so that the path of a message has no dynamic calls.

mod pending_connections;
mod process;
mod table;
mod turns;

use std::time::Duration;

pub(super) use self::pending_connections::PendingConnections;
pub(super) use self::table::{DialAttempt, Link, Medium, Peer, PeerTable, WatchedSockets};
pub(super) use self::turns::PeerTransport;

/// How long an orderly close waits for room for its goodbyes; below a second.
pub(super) const GOODBYE_WAIT: Duration = Duration::from_millis(500);
