//! What a fork makes of this process: whether it is a forked child of the one that made something,
//! and whose the sockets are. Knows neither groups nor stores.
//!
//! Asking the system for the number of the process takes longer than a small operation may.

#![allow(unsafe_code)]

mod sockets;
mod unforked;

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use unforked::{Unforked, poll_unshared, unshared};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process in which this was first asked and this one: a child has
/// another answer than its parent.
pub(crate) fn forks() -> u32 {
    watch();
    FORKS.load(Ordering::Relaxed)
}

fn watch() {
    static WATCH: Once = Once::new();
    if WATCH.is_completed() {
        return;
    }
    WATCH.call_once(|| {
        // SAFETY: the functions live as long as the process. The one that is called in the child
        // uses atomics and system calls that POSIX allows there.
        let failed = unsafe {
            libc::pthread_atfork(
                Some(unforked::before_fork),
                Some(unforked::after_fork),
                Some(in_child),
            )
        };
        if failed != 0 {
            tracing::warn!("no memory to watch for forks: groups must not be used in children");
        }
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    unforked::in_child();
    sockets::leave_to_parent();
}
