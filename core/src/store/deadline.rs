//! How long a store's operation may still wait. Knows nothing of what it waits for.

use crate::clock::Instant;
use std::time::Duration;

use super::interrupt;

/// Longest time between two looks at the interrupt check.
pub const SLICE: Duration = Duration::from_millis(100);

/// When an operation that began now gives up. A limit of zero is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    began: Instant,
    limit: Option<Duration>,
    /// Whether the thread's interrupt check ends it, too.
    heeds_interrupts: bool,
}

/// Why waiting ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitError {
    /// The limit has passed.
    TimedOut,
    /// The thread's interrupt check asked to stop.
    Interrupted,
}

impl Deadline {
    /// The deadline of an operation that begins now and may take `timeout`.
    pub(crate) fn after(timeout: Duration) -> Self {
        let limit = (!timeout.is_zero()).then_some(timeout);
        Self { began: Instant::now(), limit, heeds_interrupts: true }
    }

    /// The deadline of what cleans up after a wait: an interrupt has ended that wait
    /// already, perhaps, and asks for no more than that.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "it is for clients over TCP"))]
    pub(crate) fn uninterrupted(limit: Duration) -> Self {
        Self { heeds_interrupts: false, ..Self::after(limit) }
    }

    /// Whether the thread's interrupt check ends it, too.
    #[cfg(feature = "tcp")]
    pub(crate) fn heeds_interrupts(&self) -> bool {
        self.heeds_interrupts
    }

    /// The limit in milliseconds, as error messages state it; 0 is none.
    pub(crate) fn limit_ms(&self) -> u64 {
        self.limit.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    }

    /// What is left, zero once the limit has passed; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.began.elapsed()))
    }

    /// How long to wait before the next look, at most `step` and at most [`SLICE`].
    pub(crate) fn slice(&self, step: Duration) -> Result<Duration, WaitError> {
        if self.heeds_interrupts && interrupt::requested() {
            return Err(WaitError::Interrupted);
        }
        let step = step.min(SLICE);
        match self.remaining() {
            None => Ok(step),
            Some(left) if left.is_zero() => Err(WaitError::TimedOut),
            Some(left) => Ok(step.min(left)),
        }
    }

    /// Sleeps one slice of at most `step`.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn sleep(&self, step: Duration) -> Result<(), WaitError> {
        std::thread::sleep(self.slice(step)?);
        Ok(())
    }
}
