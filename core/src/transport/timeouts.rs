//! How long the ways to other ranks may take to come to stand. Knows no transport.

use std::time::Duration;

/// Limits of time until a connection stands.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// How long a peer, or its system, may take until a connection to it stands.
    pub connect_timeout: Duration,
    /// How long a peer's endpoints may refuse connections. Shorter, because ranks listen before
    /// they publish their cards: who refuses is dead.
    pub refused_timeout: Duration,
    /// How long a peer that connected may take to send its hello.
    pub hello_timeout: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect_timeout: Duration::from_secs(30),
            refused_timeout: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(10),
        }
    }
}
