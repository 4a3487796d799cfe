//! What a store behind a WebSocket is opened with. Knows no sockets.

use std::time::Duration;

use super::DEFAULT_TIMEOUT;

/// What a `WebSocketStore` is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebSocketStoreOptions {
    /// Limit of connecting and of requests that wait; zero is none.
    pub timeout: Duration,
    /// How long the others are to wait for this process when its WebSocket is lost and not closed:
    /// the store's server, and the ranks of the groups that meet in the store. They may have limits
    /// of their own. `None`: what `POLYRANK_RECONNECT_GRACE_MS` says here, or they choose.
    pub reconnect_grace: Option<Duration>,
}

impl WebSocketStoreOptions {
    /// With this limit, and a grace that the others choose.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, reconnect_grace: None }
    }

    /// Sets [`WebSocketStoreOptions::reconnect_grace`].
    pub fn reconnect_grace(mut self, grace: Option<Duration>) -> Self {
        self.reconnect_grace = grace;
        self
    }
}

impl Default for WebSocketStoreOptions {
    fn default() -> Self {
        Self::new(DEFAULT_TIMEOUT)
    }
}

/// A grace as it travels: milliseconds, of which 0 leaves the choice to the other side.
pub fn grace_to_ms(grace: Option<Duration>) -> Option<u32> {
    // No time at all is the shortest that can be said.
    grace.map(|grace| u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).max(1))
}
