//! The threads on which calls of an event loop may block. Knows no calls.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::blocking::{Caller, Threads};
use crate::store::install_interrupt_check;

static THREADS: Threads = Threads::new("polyrank-call");

thread_local! {
    /// What ends the waits of this thread's call.
    static CANCELLED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    /// What is to be done when this thread's call has to wait.
    static WAITING: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs `job` on a thread that is free, or on a new one; on this one if there can be none. It works
/// for the caller of this thread: an event loop is one caller, on however many threads.
pub fn run(job: impl FnOnce() + Send + 'static) {
    let caller = Caller::of_thread();
    THREADS.run(move || caller.run(job));
}

/// Runs `call` so that its waits end soon after `cancelled` becomes true.
pub fn cancellable<T>(cancelled: Arc<AtomicBool>, call: impl FnOnce() -> T) -> T {
    let previous = CANCELLED.replace(Some(cancelled));
    let guard = install_interrupt_check(|| {
        // A store asks whenever it is about to wait.
        if let Some(act) = WAITING.take() {
            act();
        }
        CANCELLED.with_borrow(|it| it.as_ref().is_some_and(|it| it.load(Ordering::Relaxed)))
    });
    let result = call();
    drop(guard);
    CANCELLED.set(previous);
    result
}

/// Calls `act` once, when the next call on this thread has to wait.
pub fn when_waiting(act: impl FnOnce() + 'static) {
    WAITING.set(Some(Box::new(act)));
}

/// The call is over, whether it had to wait or not.
pub fn forget_waiting() {
    drop(WAITING.take());
}

/// Drops `value` on another thread: the last handle of a group or a store says goodbye to others.
pub fn drop_later(value: impl Send + 'static) {
    run(move || drop(value));
}
