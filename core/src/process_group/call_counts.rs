//! How often this rank has made calls of which each needs a number, the same on all ranks. Knows not
//! what they do.

use std::sync::atomic::{AtomicU64, Ordering};

/// Those of a group.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    pub(super) monitored_barriers: CallCount,
    #[cfg(feature = "tcp")]
    pub(super) state_syncs: CallCount,
}

/// Those of one method.
#[derive(Debug, Default)]
pub(super) struct CallCount(AtomicU64);

impl CallCount {
    /// The number of the next call, from 0.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
