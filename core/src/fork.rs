//! Whether this process is a forked child of the one that made something. Knows nothing else.
//!
//! Asking the system for the number of the process takes longer than a small operation may.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process in which this was first asked and this one: a child has
/// another answer than its parent.
pub(crate) fn forks() -> u32 {
    static WATCH: Once = Once::new();
    if !WATCH.is_completed() {
        WATCH.call_once(|| {
            // SAFETY: the function is called in the child of a fork and does no more than add to an
            // atomic, which is allowed there.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            if failed != 0 {
                tracing::warn!("no memory to watch for forks: groups must not be used in children");
            }
        });
    }
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
