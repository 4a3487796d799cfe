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
    use std::sync::{Condvar, Mutex, PoisonError, Weak};

    use super::super::apart;
    use super::Expiring;
    use crate::clock::{Instant, process_id};

    /// What is watched, and the process whose thread does it: a forked child has none.
    struct Watched {
        process: Option<u32>,
        all: Vec<(Instant, Weak<dyn Expiring>)>,
    }

    static WATCHED: Mutex<Watched> = Mutex::new(Watched { process: None, all: Vec::new() });
    static CHANGED: Condvar = Condvar::new();

    pub(super) fn watch(deadline: Instant, what: Weak<dyn Expiring>) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.process != Some(process_id()) {
            watched.all.clear();
            let thread = std::thread::Builder::new().name("polyrank-deadlines".to_owned());
            match thread.spawn(run) {
                Ok(_) => watched.process = Some(process_id()),
                // The next operation tries again; this one has no limit of its own.
                Err(error) => tracing::warn!(%error, "cannot start the thread for deadlines"),
            }
        }
        let is_next = watched.all.iter().all(|(other, _)| deadline < *other);
        // Of many operations, most are over.
        watched.all.retain(|(_, what)| what.strong_count() > 0);
        watched.all.push((deadline, what));
        drop(watched);
        if is_next {
            CHANGED.notify_one();
        }
    }

    fn run() {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let due: Vec<_> = watched.all.extract_if(.., |(until, _)| *until <= now).collect();
            if !due.is_empty() {
                drop(watched);
                for what in due.iter().filter_map(|(_, what)| what.upgrade()) {
                    // It calls functions of the user.
                    apart::run(move || what.expire());
                }
                watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let next = watched.all.iter().map(|(until, _)| *until).min();
            watched = match next {
                None => CHANGED.wait(watched).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let waited = CHANGED.wait_timeout(watched, next - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
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
