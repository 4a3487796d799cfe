//! Calls functions of the user on threads that nobody else needs. Knows nothing of what they do.
//!
//! They may wait, for the next operation of the very backend whose thread ended this one, or for
//! another that is late: neither that thread nor the one that looks at the clock may run them.

#[cfg(not(target_family = "wasm"))]
use crate::blocking::Threads;
use crate::completion::guarded;

#[cfg(not(target_family = "wasm"))]
static THREADS: Threads = Threads::new("polyrank-callbacks");

/// Calls `job`, which must not be waited for. A panic in it, which the panic hook reports, ends
/// nothing else.
#[cfg(not(target_family = "wasm"))]
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    THREADS.run(|| guarded(job));
}

/// Calls `job`: here no function waits.
#[cfg(target_family = "wasm")]
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    guarded(job);
}
