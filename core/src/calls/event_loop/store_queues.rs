//! Requests of stores in the order in which they were called, though each may run on a thread of
//! its own. Knows nothing of what a request is.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::threads;
use crate::calls::StorePlace;

/// A request that has not begun.
struct Request {
    /// Whether those after it continue as soon as it has to wait.
    until_begun: bool,
    run: Box<dyn FnOnce() + Send>,
}

/// Requests that wait for the one that runs, by store. A store that none runs of has no entry.
static QUEUES: LazyLock<Mutex<HashMap<u64, VecDeque<Request>>>> = LazyLock::new(Mutex::default);

/// Runs `request` on a thread, after the requests of its store that came before.
pub fn run(place: StorePlace, request: impl FnOnce() + Send + 'static) {
    let StorePlace { store, until_begun } = place;
    let is_free = {
        let mut queues = lock();
        let is_free = !queues.contains_key(&store);
        let queue = queues.entry(store).or_default();
        queue.push_back(Request { until_begun, run: Box::new(request) });
        is_free
    };
    if is_free {
        threads::run(move || go_on(store));
    }
}

/// Runs what waits, until nothing does or another thread continues with it.
fn go_on(store: u64) {
    while let Some(Request { until_begun, run }) = next(store) {
        let has_left = Rc::new(Cell::new(false));
        if until_begun {
            let has_left = has_left.clone();
            threads::when_waiting(move || {
                has_left.set(true);
                threads::run(move || go_on(store));
            });
        }
        // What a request ends with concerns its own caller: the others continue all the same.
        let _ = catch_unwind(AssertUnwindSafe(run));
        threads::forget_waiting();
        if has_left.get() {
            return;
        }
    }
}

/// The next request; a queue without any is over.
fn next(store: u64) -> Option<Request> {
    let mut queues = lock();
    let next = queues.get_mut(&store)?.pop_front();
    if next.is_none() {
        queues.remove(&store);
    }
    next
}

fn lock() -> MutexGuard<'static, HashMap<u64, VecDeque<Request>>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}
