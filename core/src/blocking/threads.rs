//! Threads on which jobs may block: as many as there are jobs, because one of them may be what
//! another one waits for. Knows no jobs.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::process_id;

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads for one kind of jobs. They end when there are none.
pub(crate) struct Threads {
    name: &'static str,
    jobs: Mutex<Jobs>,
    came: Condvar,
}

struct Jobs {
    /// Whose they are: a forked child has none of its parent's threads.
    process: Option<u32>,
    waiting: VecDeque<Job>,
    idle: usize,
}

impl Threads {
    /// Threads of this name.
    pub(crate) const fn new(name: &'static str) -> Threads {
        let jobs = Jobs { process: None, waiting: VecDeque::new(), idle: 0 };
        Threads { name, jobs: Mutex::new(jobs), came: Condvar::new() }
    }

    /// Runs `job` at once on a thread that is free, or on a new one; on this one if there can be
    /// none.
    pub(crate) fn run(&'static self, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.lock();
        let ours = Some(process_id());
        if jobs.process != ours {
            // Those of the parent are its own; what they hold is not this process's to end.
            std::mem::forget(std::mem::take(&mut jobs.waiting));
            (jobs.process, jobs.idle) = (ours, 0);
        }
        jobs.waiting.push_back(Box::new(job));
        if jobs.waiting.len() <= jobs.idle {
            drop(jobs);
            self.came.notify_one();
            return;
        }
        drop(jobs);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        if let Err(error) = thread.spawn(|| self.work()) {
            tracing::warn!(%error, "cannot start a thread '{}'", self.name);
            let job = self.lock().waiting.pop_back();
            job.into_iter().for_each(|job| job());
        }
    }

    fn work(&self) {
        let mut jobs = self.lock();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                drop(jobs);
                job();
                jobs = self.lock();
                continue;
            }
            jobs.idle += 1;
            let waited = self.came.wait_timeout(jobs, LINGER);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            jobs = guard;
            jobs.idle -= 1;
            if timeout.timed_out() && jobs.waiting.is_empty() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_job_that_waits_for_a_later_one_holds_up_nobody() {
        static THREADS: Threads = Threads::new("polyrank-test");
        let (tell, told) = channel();
        let (go, gone) = channel();
        THREADS.run(move || tell.send(gone.recv().unwrap()).unwrap());
        THREADS.run(|| panic!("this panic is part of a test"));
        THREADS.run(move || go.send(7).unwrap());
        assert_eq!(told.recv(), Ok(7));
    }
}
