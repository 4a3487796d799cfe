//! Calls that begin in the order in which they were called, though each may run on a thread of its
//! own: the requests of a store, and those that make groups out of a group. Knows nothing of what
//! they do.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::threads;
use crate::calls::{CallPlace, CallSequence};

/// A call that has not begun.
struct Call {
    /// Whether those after it continue as soon as it has to wait.
    until_begun: bool,
    run: Box<dyn FnOnce() + Send>,
}

/// Calls that wait for the one that runs. A sequence that none runs of has no entry.
static QUEUES: LazyLock<Mutex<Queues>> = LazyLock::new(Mutex::default);

type Queues = HashMap<CallSequence, VecDeque<Call>>;

/// Runs `call` on a thread, after those of its sequence that came before.
pub fn run(place: CallPlace, call: impl FnOnce() + Send + 'static) {
    let CallPlace { sequence, until_begun } = place;
    let is_free = {
        let mut queues = lock();
        let is_free = !queues.contains_key(&sequence);
        let queue = queues.entry(sequence).or_default();
        queue.push_back(Call { until_begun, run: Box::new(call) });
        is_free
    };
    if is_free {
        threads::run(move || go_on(sequence));
    }
}

/// Runs what waits, until nothing does or another thread continues with it.
fn go_on(sequence: CallSequence) {
    while let Some(Call { until_begun, run }) = next(sequence) {
        let has_left = Rc::new(Cell::new(false));
        if until_begun {
            let has_left = has_left.clone();
            threads::when_waiting(move || {
                has_left.set(true);
                threads::run(move || go_on(sequence));
            });
        }
        // What a call ends with concerns its own caller: the others continue all the same.
        let _ = catch_unwind(AssertUnwindSafe(run));
        threads::forget_waiting();
        if has_left.get() {
            return;
        }
    }
}

/// The next call; a queue without any is over.
fn next(sequence: CallSequence) -> Option<Call> {
    let mut queues = lock();
    let next = queues.get_mut(&sequence)?.pop_front();
    if next.is_none() {
        queues.remove(&sequence);
    }
    next
}

fn lock() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}
