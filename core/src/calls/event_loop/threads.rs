//! Threads on which the core may block: as many as there are calls that wait, because one of them
//! may be what another one waits for. Knows no calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::blocking::Caller;
use crate::store::install_interrupt_check;

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    idle: usize,
}

static JOBS: Mutex<Jobs> = Mutex::new(Jobs { waiting: VecDeque::new(), idle: 0 });
static CAME: Condvar = Condvar::new();

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
    let mut jobs = lock();
    jobs.waiting.push_back(Box::new(move || caller.run(job)));
    if jobs.waiting.len() <= jobs.idle {
        drop(jobs);
        CAME.notify_one();
        return;
    }
    drop(jobs);
    let started = std::thread::Builder::new().name("polyrank-call".to_owned()).spawn(work);
    if started.is_err() {
        let job = lock().waiting.pop_back();
        job.into_iter().for_each(|job| job());
    }
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

fn work() {
    let mut jobs = lock();
    loop {
        if let Some(job) = jobs.waiting.pop_front() {
            drop(jobs);
            job();
            jobs = lock();
            continue;
        }
        jobs.idle += 1;
        let waited = CAME.wait_timeout(jobs, LINGER);
        let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        jobs = guard;
        jobs.idle -= 1;
        if timeout.timed_out() && jobs.waiting.is_empty() {
            return;
        }
    }
}

fn lock() -> MutexGuard<'static, Jobs> {
    JOBS.lock().unwrap_or_else(PoisonError::into_inner)
}
