//! What no fork may come into: between the opening of a socket and its entry in the table, where it
//! would leave the child a copy, and while a lock of the whole process is held, which nobody would
//! free in the child. Knows nothing of what sockets and locks are for.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::{sockets, watch};

/// How long a thread that forks waits for those that it must not interrupt, and they for it: far
/// longer than either takes. Somebody else's handlers of forks may make them wait for each other,
/// and a child with a copy of a socket is better than none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads in the middle of what must not be interrupted.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// Threads that are forking.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// The socket that `open` opens without blocking. Forked children get no copy of it, so that it
/// closes when this process ends.
pub(crate) fn unshared<S: AsFd, E>(open: impl FnOnce() -> Result<S, E>) -> Result<S, E> {
    let _unforked = Unforked::begin();
    let opened = open();
    if let Ok(socket) = &opened {
        sockets::note(socket.as_fd());
    }
    opened
}

/// As [`unshared`], with a socket that may not be there yet.
pub(crate) fn poll_unshared<S: AsFd, E>(
    open: impl FnOnce() -> Poll<Result<S, E>>,
) -> Poll<Result<S, E>> {
    match unshared(|| match open() {
        Poll::Ready(opened) => opened.map_err(Poll::Ready),
        Poll::Pending => Err(Poll::Pending),
    }) {
        Ok(socket) => Poll::Ready(Ok(socket)),
        Err(other) => other.map(Err),
    }
}

/// No thread forks while this exists.
#[derive(Debug)]
pub(crate) struct Unforked;

thread_local! {
    /// How many of them this thread has. One that has one must not wait for a thread that waits
    /// for it.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

impl Unforked {
    pub(crate) fn begin() -> Unforked {
        watch();
        let mut is_patient = HELD.replace(HELD.get() + 1) == 0;
        loop {
            BUSY.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 || !is_patient {
                return Unforked;
            }
            end();
            is_patient = wait_for_none(&FORKING);
        }
    }
}

impl Drop for Unforked {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(1));
        end();
    }
}

fn end() {
    // There is none to count if what was called in between has forked, and this is the child.
    let _ = BUSY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Waits until `threads` are none; false when that takes too long.
fn wait_for_none(threads: &AtomicU32) -> bool {
    let mut since = None;
    while threads.load(Ordering::SeqCst) != 0 {
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

pub(super) extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    wait_for_none(&BUSY);
}

/// In the parent; also after a fork that failed.
pub(super) extern "C" fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// The child has none of its parent's other threads.
pub(super) fn in_child() {
    BUSY.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}
