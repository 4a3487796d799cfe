//! Whether clients of other processes are connected to a server: whoever hosts it need not stay for
//! anybody where there are none. Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many of them there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(Arc<AtomicUsize>);

/// One of them, as long as this lives.
#[derive(Debug)]
pub(super) struct Present(Presence);

impl Presence {
    /// Counts one more.
    pub(super) fn enter(&self) -> Present {
        self.0.fetch_add(1, Ordering::AcqRel);
        Present(self.clone())
    }

    /// Whether there is one.
    pub(super) fn is_anybody(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
