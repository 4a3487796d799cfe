//! Calls what has a deadline when that has come, by a thread of its own, which is started for the
//! first of them; where there are no threads, in a turn of the event loop. Knows no operations.

use std::sync::Weak;

use crate::clock::Instant;

/// What can be late.
pub(super) trait Expiring: Send + Sync {
    /// The deadline has come.
    fn expire(&self);
}

/// The deadline of something, which looks no longer at the clock when this is dropped.
pub(super) struct Watch {
    #[cfg(target_family = "wasm")]
    _sleeper: turns::Watch,
}

/// Has `what` called when `deadline` has come, if it is still there then.
#[cfg(not(target_family = "wasm"))]
pub(super) fn watch(deadline: Instant, what: Weak<dyn Expiring>) -> Watch {
    // The thread forgets what is not there any more.
    threaded::watch(deadline, what);
    Watch {}
}

/// Has `what` called when `deadline` has come, if it is still there then.
#[cfg(target_family = "wasm")]
pub(super) fn watch(deadline: Instant, what: Weak<dyn Expiring>) -> Watch {
    Watch { _sleeper: turns::watch(deadline, what) }
}

#[cfg(not(target_family = "wasm"))]
mod threaded {
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

    use super::super::apart;
    use super::Expiring;
    use crate::clock::{Instant, process_id};
    use crate::process_mutex::ProcessMutex;

    /// What the thread of one process watches: a forked child has no thread, and begins anew.
    struct Queue {
        process: u32,
        watched: Mutex<Vec<(Instant, Weak<dyn Expiring>)>>,
        changed: Condvar,
    }

    static QUEUE: ProcessMutex<Option<Arc<Queue>>> = ProcessMutex::new(None);

    pub(super) fn watch(deadline: Instant, what: Weak<dyn Expiring>) {
        let Some(queue) = Queue::of_this_process() else { return };
        let mut watched = queue.lock();
        let is_next = watched.iter().all(|(other, _)| deadline < *other);
        // Of many operations, most are over.
        watched.retain(|(_, what)| what.strong_count() > 0);
        watched.push((deadline, what));
        drop(watched);
        if is_next {
            queue.changed.notify_one();
        }
    }

    impl Queue {
        fn of_this_process() -> Option<Arc<Queue>> {
            let mut known = QUEUE.lock();
            if let Some(queue) = known.as_ref().filter(|queue| queue.process == process_id()) {
                return Some(queue.clone());
            }
            let (process, watched, changed) = (process_id(), Mutex::default(), Condvar::new());
            let queue = Arc::new(Queue { process, watched, changed });
            let thread = std::thread::Builder::new().name("polyrank-deadlines".to_owned());
            let watcher = queue.clone();
            match thread.spawn(move || watcher.run()) {
                Ok(_) => *known = Some(queue.clone()),
                // The next operation tries again; this one has no limit of its own.
                Err(error) => {
                    tracing::warn!(%error, "cannot start the thread for deadlines");
                    return None;
                }
            }
            Some(queue)
        }

        fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Weak<dyn Expiring>)>> {
            self.watched.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn run(&self) {
            let mut watched = self.lock();
            loop {
                let now = Instant::now();
                let due: Vec<_> = watched.extract_if(.., |(until, _)| *until <= now).collect();
                if !due.is_empty() {
                    drop(watched);
                    for what in due.iter().filter_map(|(_, what)| what.upgrade()) {
                        // It calls functions of the user.
                        apart::run(move || what.expire());
                    }
                    watched = self.lock();
                    continue;
                }
                let next = watched.iter().map(|(until, _)| *until).min();
                watched = match next {
                    None => self.changed.wait(watched).unwrap_or_else(PoisonError::into_inner),
                    Some(next) => {
                        let waited = self.changed.wait_timeout(watched, next - now);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
    }
}

#[cfg(target_family = "wasm")]
mod turns {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex, PoisonError, Weak};
    use std::task::{Context, Wake, Waker};

    use super::Expiring;
    use crate::clock::{Instant, Sleep, sleep_until};

    /// One that sleeps until its deadline, and is kept by that.
    pub(super) struct Watch(Arc<Sleeper>);

    impl Drop for Watch {
        fn drop(&mut self) {
            self.0.leave();
        }
    }

    struct Sleeper {
        sleep: Mutex<Option<Sleep>>,
        what: Weak<dyn Expiring>,
    }

    impl Sleeper {
        /// The event loop need not wait for it any more.
        fn leave(&self) {
            let sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(sleep);
        }
    }

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.leave();
            if let Some(what) = self.what.upgrade() {
                what.expire();
            }
        }
    }

    pub(super) fn watch(deadline: Instant, what: Weak<dyn Expiring>) -> Watch {
        let sleeper = Arc::new(Sleeper { sleep: Mutex::default(), what });
        let waker = Waker::from(sleeper.clone());
        let mut sleep = sleep_until(deadline);
        let is_due = Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_ready();
        *sleeper.sleep.lock().unwrap_or_else(PoisonError::into_inner) = Some(sleep);
        if is_due {
            waker.wake();
        }
        Watch(sleeper)
    }
}
