//! Opening sockets while another thread may fork: no fork comes between the opening of a socket and
//! its entry in the table, where it would leave the child a copy. Knows nothing of what sockets are
//! for.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::{sockets, watch};

/// How long a thread that forks waits for those that open sockets, and they for it: far longer than
/// either takes. Somebody else's handlers of forks may make them wait for each other, and a child
/// with a copy of a socket is better than none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads that are opening a socket.
static OPENING: AtomicU32 = AtomicU32::new(0);
/// Threads that are forking.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// The socket that `open` opens without blocking. Forked children get no copy of it, so that it
/// closes when this process ends.
pub(crate) fn unshared<S: AsFd, E>(open: impl FnOnce() -> Result<S, E>) -> Result<S, E> {
    let _opening = Opening::begin();
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
struct Opening;

impl Opening {
    fn begin() -> Opening {
        watch();
        let mut is_patient = true;
        loop {
            OPENING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 || !is_patient {
                return Opening;
            }
            end_opening();
            is_patient = wait_for_none(&FORKING);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        end_opening();
    }
}

fn end_opening() {
    // There is none to count if what was called in between has forked, and this is the child.
    let _ = OPENING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
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
    wait_for_none(&OPENING);
}

/// In the parent; also after a fork that failed.
pub(super) extern "C" fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// The child has none of its parent's other threads.
pub(super) fn in_child() {
    OPENING.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}
