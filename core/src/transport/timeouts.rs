//! How long opening a connection to another rank may take. Knows no transport.

use std::time::Duration;

/// Timeouts until a connection is open.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// How long a peer, or its system, may take until a connection to it is open.
    pub connect_timeout: Duration,
    /// How long a peer's endpoints may refuse connections. Shorter, because ranks listen before
    /// they publish their cards: a rank that refuses is dead. It is asked a few times all the same,
    /// since what lies between two hosts may refuse in its place for a moment.
    pub refused_timeout: Duration,
    /// How long a peer that connected may take to send its hello.
    pub hello_timeout: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect_timeout: Duration::from_secs(30),
            refused_timeout: Duration::from_millis(100),
            hello_timeout: Duration::from_secs(10),
        }
    }
}
