//! The limit of a store's operations that wait, which may change while they run. Knows no store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit of the operations that wait; zero is none. Operations that have begun keep theirs.
#[derive(Debug)]
pub(crate) struct TimeoutSetting {
    ms: AtomicU64,
}

impl TimeoutSetting {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { ms: AtomicU64::new(to_millis(timeout)) }
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, timeout: Duration) {
        self.ms.store(to_millis(timeout), Ordering::Relaxed);
    }
}

/// With the same limit, and changed on its own.
impl Clone for TimeoutSetting {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

fn to_millis(timeout: Duration) -> u64 {
    // A limit below a millisecond must not become "no limit".
    let has_rest = !timeout.subsec_nanos().is_multiple_of(1_000_000);
    let rounded_up = timeout.as_millis() + u128::from(has_rest);
    u64::try_from(rounded_up).unwrap_or(u64::MAX)
}
