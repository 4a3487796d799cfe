//! Who moves operations on while the event loop does something else: for each group one thread
//! that waits for whatever is in flight, oldest first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::threads;
use crate::process_group::ProcessGroup;
use crate::work::Work;

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_millis(500);

/// The operations in flight of one group.
#[derive(Default)]
struct Waiter {
    works: Mutex<VecDeque<Work>>,
    came: Condvar,
}

static WAITERS: Mutex<Option<HashMap<u64, Arc<Waiter>>>> = Mutex::new(None);

/// Makes a thread wait for `work`, of `group`, and so progress it until it is done.
pub(super) fn wait_in_background(group: &ProcessGroup, work: Work) {
    let key = group.identity();
    let mut waiters = lock(&WAITERS);
    let waiters = waiters.get_or_insert_default();
    if let Some(waiter) = waiters.get(&key) {
        lock(&waiter.works).push_back(work);
        waiter.came.notify_one();
        return;
    }
    let waiter = Arc::new(Waiter::default());
    lock(&waiter.works).push_back(work);
    waiters.insert(key, waiter.clone());
    threads::run(move || wait(key, &waiter));
}

/// Whether operations of `group` are in flight, so that a thread moves them already.
pub(super) fn has_waiter(group: &ProcessGroup) -> bool {
    let waiters = lock(&WAITERS);
    let waiter = waiters.as_ref().and_then(|waiters| waiters.get(&group.identity()));
    waiter.is_some_and(|waiter| !lock(&waiter.works).is_empty())
}

fn wait(key: u64, waiter: &Waiter) {
    loop {
        let works = lock(&waiter.works);
        let Some(oldest) = works.front().cloned() else {
            let waited = waiter.came.wait_timeout(works, LINGER);
            let (works, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            drop(works);
            if timeout.timed_out() && leave(key, waiter) {
                return;
            }
            continue;
        };
        drop(works);
        // Until it is done on its device, if it is on one. Its failure is for the caller that asks
        // for it.
        let _ = oldest.wait_slice(Duration::MAX);
        lock(&waiter.works).pop_front();
    }
}

/// Leaves the list of waiters, unless something came meanwhile.
fn leave(key: u64, waiter: &Waiter) -> bool {
    let mut waiters = lock(&WAITERS);
    let is_idle = lock(&waiter.works).is_empty();
    if let (true, Some(waiters)) = (is_idle, waiters.as_mut()) {
        waiters.remove(&key);
    }
    is_idle
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
