//! Calls functions of the user on threads that nobody else needs. Knows nothing of what they do.
//!
//! They may wait, for the next operation of the very backend whose thread ended this one, or for
//! another that is late: neither that thread nor the one that looks at the clock may run them. Each
//! is called at once, whatever those before it still wait for.

/// Calls `job`, which must not be waited for. A panic in it, which the panic hook reports, ends
/// nothing else.
#[cfg(not(target_family = "wasm"))]
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    threaded::run(Box::new(job));
}

/// Calls `job`: here no function waits.
#[cfg(target_family = "wasm")]
pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    crate::completion::guarded(job);
}

#[cfg(not(target_family = "wasm"))]
mod threaded {
    use std::collections::VecDeque;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use crate::clock::process_id;
    use crate::completion::guarded;

    type Job = Box<dyn FnOnce() + Send>;

    /// How long a thread waits for the next job before it ends.
    const LINGER: Duration = Duration::from_secs(10);

    /// What no thread has begun, and how many threads could: those of this process, as a forked
    /// child has none of its parent's.
    struct Jobs {
        process: Option<u32>,
        waiting: VecDeque<Job>,
        free: usize,
    }

    static JOBS: Mutex<Jobs> =
        Mutex::new(Jobs { process: None, waiting: VecDeque::new(), free: 0 });
    static CHANGED: Condvar = Condvar::new();

    pub(super) fn run(job: Job) {
        let mut jobs = lock();
        if jobs.process != Some(process_id()) {
            // Those of the parent are its own; what they hold is not this process's to end.
            std::mem::forget(std::mem::take(&mut jobs.waiting));
            (jobs.process, jobs.free) = (Some(process_id()), 0);
        }
        jobs.waiting.push_back(job);
        if jobs.waiting.len() <= jobs.free {
            drop(jobs);
            CHANGED.notify_one();
            return;
        }
        let thread = std::thread::Builder::new().name("polyrank-callbacks".to_owned());
        match thread.spawn(work) {
            Ok(_) => jobs.free += 1,
            Err(error) => {
                let own = jobs.waiting.pop_back();
                drop(jobs);
                tracing::warn!(%error, "cannot start a thread for callbacks");
                own.into_iter().for_each(guarded);
            }
        }
    }

    fn work() {
        let mut jobs = lock();
        loop {
            while let Some(job) = jobs.waiting.pop_front() {
                jobs.free -= 1;
                drop(jobs);
                guarded(job);
                jobs = lock();
                jobs.free += 1;
            }
            let waited = CHANGED.wait_timeout(jobs, LINGER);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            jobs = woken;
            if timeout.timed_out() && jobs.waiting.is_empty() {
                jobs.free -= 1;
                return;
            }
        }
    }

    fn lock() -> MutexGuard<'static, Jobs> {
        JOBS.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::run;

    #[test]
    fn one_that_waits_for_a_later_one_holds_up_nobody() {
        let (tell, told) = channel();
        let (go, gone) = channel();
        run(move || tell.send(gone.recv().unwrap()).unwrap());
        run(|| panic!("this panic is part of a test"));
        run(move || go.send(7).unwrap());
        assert_eq!(told.recv(), Ok(7));
    }
}
