//! Requests of stores in the order in which they were called, though each may run on a thread of
//! its own. Knows nothing of what a request is.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use polyrank::calls::StorePlace;

use crate::threads;

/// A request that has not begun.
struct Request {
    until_begun: bool,
    run: Box<dyn FnOnce() + Send>,
}

/// Requests that wait for the one that runs, by store. A store that none runs of has no entry.
static LINES: LazyLock<Mutex<HashMap<u64, VecDeque<Request>>>> = LazyLock::new(Mutex::default);

/// Runs `request` on a thread, behind the requests of its store that came before.
pub(crate) fn run(place: StorePlace, request: impl FnOnce() + Send + 'static) {
    let StorePlace { store, until_begun } = place;
    let mut lines = lock();
    if let Some(line) = lines.get_mut(&store) {
        line.push_back(Request { until_begun, run: Box::new(request) });
        return;
    }
    if until_begun {
        drop(lines);
        return threads::run(request);
    }
    lines.insert(store, VecDeque::new());
    drop(lines);
    threads::run(move || {
        // What a request ends with concerns its own caller: the others go on all the same.
        let _ = catch_unwind(AssertUnwindSafe(request));
        go_on(store);
    });
}

/// Runs what waits, until nothing does.
fn go_on(store: u64) {
    while let Some((Request { until_begun, run }, is_last)) = next(store) {
        if until_begun && !is_last {
            threads::run(run);
            continue;
        }
        let _ = catch_unwind(AssertUnwindSafe(run));
        if until_begun {
            return;
        }
    }
}

/// The next request, and whether its line ended with it. The line of one that holds it up stays.
fn next(store: u64) -> Option<(Request, bool)> {
    let mut lines = lock();
    let line = lines.get_mut(&store)?;
    let next = line.pop_front();
    let is_last = line.is_empty();
    let is_over = next.as_ref().is_none_or(|next| next.until_begun && is_last);
    if is_over {
        lines.remove(&store);
    }
    next.map(|next| (next, is_last))
}

fn lock() -> MutexGuard<'static, HashMap<u64, VecDeque<Request>>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}
