//! Who makes MPI's operations progress: the thread that issues, a thread that waits, or one thread
//! in the background when nobody waits. Knows when to look; what to look at is for
//! [`ActiveOperations`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::abi::Handle;
use super::active_operations::{ActiveOperations, DeferredCompletions};
use super::group::Group;
use super::job::Job;
use crate::backend::group_status::FoundBy;
use crate::clock::Instant;
use crate::completion::{Completion, WaitIntent};
use crate::spin::PollStages;
use crate::wire::abort::Abort;
use std::sync::Arc;

/// How a thread waits. It keeps its core for long: MPI moves large tensors only while it is called.
const STAGES: PollStages = PollStages {
    spin: Duration::from_millis(2),
    yielding: Duration::from_millis(20),
    nap: Duration::from_micros(50),
};
/// A sleep between two looks at what nobody waits for any more.
const LONG_NAP: Duration = Duration::from_millis(20);
/// How long the background leaves an operation to a thread that may be about to wait for it.
const GRACE: Duration = Duration::from_micros(100);
/// Looks without asking for the time, which takes as long as a look.
const BLIND_LOOKS: u32 = 16;
/// How often it is asked whether something stands still.
const STALL_TICK: Duration = Duration::from_millis(50);

/// The operations of the process, and who looks after them.
pub(super) struct Progress<H: Handle> {
    active: Mutex<ActiveOperations<H>>,
    /// Threads that wait.
    waiters: AtomicUsize,
    stopped: AtomicBool,
    /// Whether looking again takes a core that another rank needs.
    crowded: AtomicBool,
    background: Background,
}

/// The thread for what nobody waits for.
#[derive(Default)]
struct Background {
    started: AtomicBool,
    wanted: Mutex<bool>,
    rung: Condvar,
}

impl<H: Handle> Progress<H> {
    /// Nothing is in flight; `crowded` as for [`Progress::set_crowded`].
    pub(super) fn new(crowded: bool) -> Progress<H> {
        Progress {
            active: Mutex::default(),
            waiters: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            crowded: AtomicBool::new(crowded),
            background: Background::default(),
        }
    }

    /// The operations, unless another thread has them, or nothing of MPI can be called any more.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, ActiveOperations<H>>> {
        let active = match self.active.try_lock() {
            Ok(active) => active,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (!self.stopped.load(Ordering::Relaxed)).then_some(active)
    }

    /// Whether looking again takes a core that another rank needs.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Notes what the ranks of the whole job told one another of their cores.
    pub(super) fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Changes the operations, progresses them, and settles those that are done.
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut ActiveOperations<H>, &mut DeferredCompletions<H>) -> R,
    ) -> R {
        let mut ended = DeferredCompletions::default();
        let result = change(&mut self.lock(), &mut ended);
        ended.tell();
        result
    }

    /// To be called after something was issued: has the background look after it, unless the
    /// caller waits immediately.
    pub(super) fn leave_to(
        &'static self,
        job: &'static Job<H>,
        waiting: WaitIntent,
        is_done: bool,
    ) {
        if waiting != WaitIntent::Soon && !is_done && self.waiters.load(Ordering::SeqCst) == 0 {
            self.wake_background(job);
        }
    }

    /// Waits until `completion` is done or `until` has come, moving whatever can be moved.
    pub(super) fn wait(
        &'static self,
        job: &'static Job<H>,
        completion: &Completion,
        until: Option<Instant>,
    ) -> bool {
        if completion.is_done() {
            return true;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let done = self.wait_here(job, completion, until);
        let others = self.waiters.fetch_sub(1, Ordering::SeqCst) - 1;
        if others == 0 && !self.lock().is_empty() {
            self.wake_background(job);
        }
        done
    }

    fn wait_here(&self, job: &Job<H>, completion: &Completion, until: Option<Instant>) -> bool {
        let mut idle_since = None;
        let mut inspected = None;
        loop {
            let mut moved = until.is_none() && self.look(job);
            if completion.is_done() {
                return true;
            }
            let now = Instant::now();
            moved |= self.turn(job, Some(now));
            if completion.is_done() {
                return true;
            }
            if until.is_some_and(|until| now >= until) {
                return completion.is_done();
            }
            if moved {
                idle_since = Some(now);
                continue;
            }
            if now - *inspected.get_or_insert(now) >= STALL_TICK {
                inspected = Some(now);
                self.inspect(now);
            }
            self.pause(now - *idle_since.get_or_insert(now));
        }
    }

    /// Moves what can be moved, looking again and again without asking for the time, until
    /// something moves; whether that happened.
    fn look(&self, job: &Job<H>) -> bool {
        let Some(mut active) = self.try_lock().filter(|active| !active.is_empty()) else {
            return false;
        };
        let mut ended = DeferredCompletions::default();
        let moved = (0..BLIND_LOOKS).any(|_| active.poll(job, None, &mut ended));
        drop(active);
        ended.tell();
        moved
    }

    /// What a thread does between two looks.
    fn pause(&self, idle: Duration) {
        STAGES.pause(idle, self.is_crowded());
    }

    /// Moves what can be moved, unless another thread does; whether anything moved.
    fn turn(&self, job: &Job<H>, now: Option<Instant>) -> bool {
        let Some(mut active) = self.try_lock().filter(|active| !active.is_empty()) else {
            return false;
        };
        let mut ended = DeferredCompletions::default();
        let moved = active.poll(job, now, &mut ended);
        drop(active);
        ended.tell();
        moved
    }

    /// Asks the store why operations stand still, if some do. Blocks until it has answered.
    pub(super) fn inspect(&self, now: Instant) {
        let stalled = self.lock().stalled(now);
        for (group, oldest) in stalled {
            if let Some((abort, found)) = group.status.look(oldest) {
                self.break_group(&group, abort, found);
            }
        }
    }

    /// Fails everything of a group, in flight and later.
    pub(super) fn break_group(&self, group: &Arc<Group<H>>, abort: Abort, found: FoundBy) {
        self.change(|active, ended| active.break_group(group, abort, found, ended));
    }

    /// Waits until nothing of `group` is in flight, or `until`; whether nothing is.
    pub(super) fn wait_idle(&self, job: &'static Job<H>, group: &Group<H>, until: Instant) -> bool {
        let start = Instant::now();
        loop {
            if group.in_flight.load(Ordering::SeqCst) == 0 {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            if !self.turn(job, Some(now)) {
                self.pause(now - start);
            }
        }
    }

    /// Looks what MPI is done with, and waits until it has no memory that was only lent, of what
    /// failed. That has its limit, at which the job is ended.
    pub(super) fn drain(&self, job: &'static Job<H>) {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let moved = self.turn(job, Some(now));
            if self.is_stopped() || !self.lock().has_lent() {
                return;
            }
            if !moved {
                self.pause(now - start);
            }
        }
    }

    /// Calls MPI no more, from any thread.
    pub(super) fn stop(&self) {
        // Under the lock: a thread that is in MPI comes out first.
        let mut active = self.lock();
        active.close();
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether nothing of MPI can be called any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, ActiveOperations<H>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the background thread progress what is in flight; starts it, if it does not run yet.
    fn wake_background(&'static self, job: &'static Job<H>) {
        let background = &self.background;
        *background.wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        background.rung.notify_one();
        if background.started.swap(true, Ordering::SeqCst) {
            return;
        }
        let thread = std::thread::Builder::new().name("polyrank-mpi".to_owned());
        if let Err(error) = thread.spawn(move || self.run(job)) {
            tracing::warn!(%error, "no background thread: operations move only when waited for");
        }
    }

    fn run(&'static self, job: &'static Job<H>) {
        let mut idle_since = Instant::now();
        let mut inspected = idle_since;
        loop {
            if self.lock().is_empty() {
                self.sleep_until_wanted();
                idle_since = Instant::now();
                std::thread::sleep(GRACE);
                continue;
            }
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            if self.waiters.load(Ordering::SeqCst) > 0 {
                // They look themselves; deadlines are looked at by them as well.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let now = Instant::now();
            if self.turn(job, Some(now)) {
                idle_since = now;
            }
            if now - inspected >= STALL_TICK {
                inspected = now;
                self.inspect_elsewhere(now);
            }
            match self.lock().is_abandoned() {
                true => std::thread::sleep(LONG_NAP),
                false => self.pause(now - idle_since),
            }
        }
    }

    /// As [`Progress::inspect`], on a thread of its own: the store may take its time.
    fn inspect_elsewhere(&'static self, now: Instant) {
        if self.lock().stalled(now).is_empty() {
            return;
        }
        let thread = std::thread::Builder::new().name("polyrank-stall".to_owned());
        if let Err(error) = thread.spawn(move || self.inspect(now)) {
            tracing::debug!(%error, "no thread to look for the reason of a stall");
        }
    }

    fn sleep_until_wanted(&self) {
        let background = &self.background;
        let mut wanted = background.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        while !*wanted {
            wanted = background.rung.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        *wanted = false;
    }
}
