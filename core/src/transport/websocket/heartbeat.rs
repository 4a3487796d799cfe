//! Signs of life on a WebSocket: when this side sends one, and when the other side's are missing.
//! One rule for pipes between ranks and for sessions with a store. Knows nothing of what is sent.

use std::time::Duration;

use crate::clock::Instant;
use crate::wire::session::MAX_SIGNS;

/// How often this side sends a sign of life and asks for one.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// If no sign of life arrives for this long, the socket counts as broken.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// The signs of life of one connection.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    next: Instant,
    last_heard: Instant,
    /// Pings and pongs of the other side since the last beat.
    signs: u32,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing.
    NotDue,
    /// A sign of life of this side.
    Due,
    /// The other side has been silent for [`SILENCE_LIMIT`].
    Silent,
}

impl Heartbeat {
    /// The signs of life of a connection that exists, or is being opened, since `now`.
    pub(crate) fn new(now: Instant) -> Heartbeat {
        Heartbeat { next: now + BEAT_INTERVAL, last_heard: now, signs: 0 }
    }

    /// Notes a sign of life of the other side.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Notes a ping or a pong. Returns false if there were too many.
    pub(crate) fn allows_sign(&mut self) -> bool {
        self.signs += 1;
        self.signs <= MAX_SIGNS
    }

    /// Whether the last call is so long ago that a whole beat was left out.
    #[cfg(any(target_family = "wasm", feature = "websocket"))]
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        now >= self.next + BEAT_INTERVAL
    }

    /// What is due at `now`, from which the next beat is counted.
    pub(crate) fn beat(&mut self, now: Instant) -> Beat {
        if now < self.next {
            return Beat::NotDue;
        }
        self.next = now + BEAT_INTERVAL;
        self.signs = 0;
        if now >= self.last_heard + SILENCE_LIMIT { Beat::Silent } else { Beat::Due }
    }

    /// When the next beat is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// The reason that is given for the loss of a silent side.
    pub(crate) fn silence() -> String {
        format!("it was silent for {} s", SILENCE_LIMIT.as_secs())
    }
}
