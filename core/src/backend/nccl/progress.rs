//! All operations of this process that NCCL runs, and how they end: when their event has
//! come, at their deadline, or with their group. Somebody who waits looks, or else one thread in
//! the background.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::communicator::Communicator;
use super::running_operation::{AbandonedOperation, FinishedOperation, Group, RunningOperation};
use crate::backend::group_status::{FoundBy, STALL};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::generated::error::{Error, Result};
use crate::spin::PollStages;
use crate::tensor::OnDevice;
use crate::tensor::cuda::Event;
use crate::wire::abort::Abort;

/// How a thread waits. It never keeps its core: the device works without it.
const STAGES: PollStages = PollStages {
    spin: Duration::ZERO,
    yielding: Duration::from_micros(100),
    nap: Duration::from_micros(50),
};
/// How long operations may take to end after a rank was found to have died.
const LAST_MOMENTS: Duration = Duration::from_millis(100);
/// A sleep between two looks of the background.
pub(super) const REST: Duration = Duration::from_micros(500);
/// How often it is asked whether something failed elsewhere, or stands still.
const TICK: Duration = Duration::from_millis(20);
/// How long what the device uses of an operation that was given up is kept at most after the
/// communicator was aborted. Then the device itself hangs, and the memory is lost.
const LAST: Duration = Duration::from_secs(60);

/// The operations of this process.
pub(super) struct Progress {
    active: Mutex<Vec<RunningOperation>>,
    rung: Condvar,
    started: AtomicBool,
    /// When it was last asked whether something failed.
    asked: Mutex<Option<Instant>>,
}

/// Those of this process.
pub(super) fn progress() -> &'static Progress {
    static PROGRESS: OnceLock<Progress> = OnceLock::new();
    PROGRESS.get_or_init(|| Progress {
        active: Mutex::default(),
        rung: Condvar::new(),
        started: AtomicBool::new(false),
        asked: Mutex::default(),
    })
}

impl Progress {
    /// Takes operations that were enqueued. The caller calls [`Progress::sweep`] then.
    pub(super) fn add(&'static self, running: Vec<RunningOperation>) {
        for one in &running {
            one.group.in_flight.fetch_add(1, Ordering::SeqCst);
        }
        self.lock().extend(running);
        self.rung.notify_one();
        self.start_background();
    }

    /// Ends what was added while the group broke: that has taken what was there. Tells the
    /// waiters, so no lock may be held.
    pub(super) fn sweep(&self, group: &Arc<Group>) {
        if group.status.is_broken() {
            self.give_up(group, None);
        }
    }

    /// Waits until `completion` is done or `until` has come.
    pub(super) fn wait(&'static self, completion: &Completion, until: Option<Instant>) -> bool {
        let since = Instant::now();
        loop {
            self.turn();
            if completion.is_done() {
                return true;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return completion.is_done();
            }
            STAGES.pause(now - since, false);
        }
    }

    /// Has what is issued later on the waiter's streams, or else on those of an operation's owners,
    /// come after it. None if it is not under way, or has no such streams.
    pub(super) fn order(&self, completion: &Completion, waiter: &[OnDevice]) -> Option<Result<()>> {
        let active = self.lock();
        let running = active.iter().find(|it| std::ptr::eq(&*it.completion, completion))?;
        let (event, mut streams) = (running.event.clone(), running.streams.clone());
        if !running.orders || streams.is_empty() {
            return None;
        }
        let index = running.group.communicator.get().map(|it| it.gpu.index());
        drop(active);
        let here = waiter.iter().filter(|it| Some(it.index) == index).map(|it| it.stream);
        let here: Vec<usize> = here.collect();
        if !here.is_empty() {
            streams = here;
        }
        Some(streams.iter().try_for_each(|stream| event.comes_before(*stream)))
    }

    /// Fails everything of a group, in flight and later, and ends what is on the device. Tells
    /// the waiters, so no lock may be held.
    pub(super) fn break_group(&self, group: &Arc<Group>, abort: Abort, found: FoundBy) {
        let aborting = group.begin_abort();
        if !group.status.set_broken(abort) {
            return;
        }
        // First, for to the others an aborted communicator looks like a rank that is gone.
        if found == FoundBy::ThisRank {
            group.status.publish();
        }
        self.give_up(group, None);
        drop(aborting);
    }

    /// Has the group break when its backend for the host finds that a rank has died.
    pub(super) fn heed_host(&'static self, group: &Arc<Group>) {
        let Some(failure) = &group.host_failure else { return };
        let group = Arc::downgrade(group);
        failure.on_end(move |result| {
            let (Err(Error::RankFailed { rank, why, .. }), Some(group)) = (result, group.upgrade())
            else {
                return;
            };
            let (rank, why) = (*rank, why.clone());
            // It waits, and tells the store.
            let lose = move || self.lose_rank(&group, rank, why);
            let thread = std::thread::Builder::new().name("polyrank-failure".to_owned());
            if let Err(error) = thread.spawn(lose) {
                tracing::warn!(%error, "no thread to end operations over NCCL");
            }
        });
    }

    /// Fails everything of a group that needs a rank of which the host's backend says that it
    /// failed, if that has died: NCCL may reach one that TCP does not.
    fn lose_rank(&'static self, group: &Arc<Group>, rank: u32, why: String) {
        if !group.has_died(rank) {
            return;
        }
        // A rank may end when it is done with an operation that this one's device is still in.
        self.wait_idle(group, Instant::now() + LAST_MOMENTS);
        // Who breaks the group tells why before it ends.
        let died = (Abort::Failed { rank, why }, FoundBy::ThisRank);
        let (abort, found) = group.status.reason_told().unwrap_or(died);
        if group.in_flight.load(Ordering::SeqCst) > 0 {
            return self.break_group(group, abort, found);
        }
        // There is nothing to abort, and this process may be about to end, too.
        if group.status.set_broken(abort) && found == FoundBy::ThisRank {
            group.status.publish();
        }
    }

    /// Leaves a group that nobody has any more, when its operations are over: what was enqueued
    /// comes to its end. Each has its deadline.
    pub(super) fn leave_when_idle(&'static self, group: Arc<Group>) {
        let leave = move || {
            while group.in_flight.load(Ordering::SeqCst) > 0 {
                self.turn();
                std::thread::sleep(REST);
            }
            group.leave();
        };
        let thread = std::thread::Builder::new().name("polyrank-leave".to_owned());
        if let Err(error) = thread.spawn(leave) {
            tracing::warn!(%error, "no thread to leave a group: its communicator is aborted");
        }
    }

    /// Waits until nothing of `group` is in flight, or `until`; whether nothing is.
    pub(super) fn wait_idle(&'static self, group: &Group, until: Instant) -> bool {
        while group.in_flight.load(Ordering::SeqCst) > 0 {
            if Instant::now() >= until {
                return false;
            }
            self.turn();
            std::thread::sleep(STAGES.nap);
        }
        true
    }

    /// Ends the operations of a group that broke, and its communicator. `more` is of one that was
    /// enqueued in part.
    pub(super) fn give_up(&self, group: &Arc<Group>, more: Option<AbandonedOperation>) {
        let taken: Vec<RunningOperation> =
            self.lock().extract_if(.., |it| Arc::ptr_eq(&it.group, group)).collect();
        let (mut ended, mut kept) = (Vec::new(), Vec::from_iter(more));
        for running in taken {
            let error = group.status.error(running.name, running.sequence);
            let (over, keep) = running.give_up(error);
            ended.push(over);
            kept.push(keep);
        }
        let communicator = group.communicator.get().cloned();
        // Without a thread it is lost, and not overwritten under the device.
        let kept = ManuallyDrop::new(kept);
        let aborting = group.begin_abort();
        let end = move || {
            if let Some(communicator) = &communicator {
                communicator.abort();
            }
            release(ManuallyDrop::into_inner(kept), communicator.as_deref());
            drop(aborting);
        };
        // The library may take its time, and who waits shall not.
        let thread = std::thread::Builder::new().name("polyrank-abort".to_owned());
        if let Err(error) = thread.spawn(end) {
            tracing::warn!(%error, "no thread to abort an NCCL communicator");
        }
        ended.into_iter().for_each(FinishedOperation::settle);
    }

    /// Looks which operations are over, unless another thread does.
    fn turn(&'static self) {
        let Ok(mut active) = self.active.try_lock() else { return };
        let (mut over, mut failed) = (Vec::new(), Vec::new());
        let mut place = 0;
        while place < active.len() {
            match active[place].is_over() {
                Ok(false) => place += 1,
                Ok(true) => over.push(active.remove(place)),
                Err(error) => {
                    let group = active[place].group.clone();
                    let abort = failed_here(&group, &error);
                    failed.push((group, abort));
                    place += 1;
                }
            }
        }
        let now = Instant::now();
        for running in active.iter().filter(|running| running.deadline <= now) {
            failed.push((running.group.clone(), timed_out(running, now)));
        }
        drop(active);
        over.into_iter().map(RunningOperation::end).for_each(FinishedOperation::settle);
        for (group, abort) in failed {
            self.break_group(&group, abort, FoundBy::ThisRank);
        }
        self.ask(now);
    }

    /// Asks the library now and then whether something failed, and the store why something stands
    /// still.
    fn ask(&'static self, now: Instant) {
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.is_some_and(|last| now.saturating_duration_since(last) < TICK) {
                return;
            }
            *asked = Some(now);
        }
        let mut groups: Vec<(Arc<Group>, bool, u64)> = Vec::new();
        for running in self.lock().iter() {
            let stalled = now.saturating_duration_since(running.since) >= STALL;
            let number = if running.is_collective { running.sequence } else { 0 };
            match groups.iter_mut().find(|(group, ..)| Arc::ptr_eq(group, &running.group)) {
                // The first of a group is its oldest.
                Some((_, stands, oldest)) => {
                    *stands |= stalled;
                    *oldest = if *oldest == 0 && stalled { number } else { *oldest };
                }
                None => {
                    let oldest = if stalled { number } else { 0 };
                    groups.push((running.group.clone(), stalled, oldest));
                }
            }
        }
        for (group, stalled, oldest) in groups {
            let answer = group.communicator.get().map_or(Ok(true), |it| it.is_settled());
            match answer {
                Ok(_) if stalled && group.status.is_due() => self.look_elsewhere(group, oldest),
                Ok(_) => {}
                Err(error) => self.fail_elsewhere(group, error),
            }
        }
    }

    /// Asks the store why operations stand still, on a thread of its own: it may take its time.
    fn look_elsewhere(&'static self, group: Arc<Group>, oldest: u64) {
        let look = move || {
            if let Some((abort, found)) = group.status.look(oldest) {
                self.break_group(&group, abort, found);
            }
        };
        let thread = std::thread::Builder::new().name("polyrank-stall".to_owned());
        if let Err(error) = thread.spawn(look) {
            tracing::debug!(%error, "no thread to look for the reason of a stall");
        }
    }

    /// Breaks a group of which the library says that it failed. A rank that aborts looks to the
    /// others as one that is gone, so what it has told counts first.
    fn fail_elsewhere(&'static self, group: Arc<Group>, error: Error) {
        if group.is_failing.swap(true, Ordering::SeqCst) {
            return;
        }
        let fail = move || {
            let (abort, found) = group.status.who_failed(&error.to_string());
            self.break_group(&group, abort, found);
        };
        let thread = std::thread::Builder::new().name("polyrank-stall".to_owned());
        if let Err(error) = thread.spawn(fail) {
            tracing::debug!(%error, "no thread to look for the reason of a failure");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RunningOperation>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the background thread, if it does not run yet.
    fn start_background(&'static self) {
        if self.started.swap(true, Ordering::SeqCst) {
            return;
        }
        let thread = std::thread::Builder::new().name("polyrank-nccl".to_owned());
        if let Err(error) = thread.spawn(move || self.run()) {
            tracing::warn!(%error, "no background thread: operations end only when waited for");
        }
    }

    fn run(&'static self) {
        loop {
            let mut active = self.lock();
            while active.is_empty() {
                active = self.rung.wait(active).unwrap_or_else(PoisonError::into_inner);
            }
            drop(active);
            self.turn();
            std::thread::sleep(REST);
        }
    }
}

/// Releases what the device uses when it does not use it any more.
fn release(kept: Vec<AbandonedOperation>, communicator: Option<&Communicator>) {
    let until = Instant::now() + LAST;
    for mut kept in kept {
        let at_the_end = || {
            let communicator = communicator?;
            Event::now(&communicator.gpu, communicator.stream.raw()).ok().map(Arc::new)
        };
        let Some(event) = kept.event.take().or_else(at_the_end) else {
            std::mem::forget(kept.memory);
            continue;
        };
        while matches!(event.is_over(), Ok(false)) {
            if Instant::now() >= until {
                // To be overwritten by a device that hangs is worse than to be lost.
                std::mem::forget(std::mem::take(&mut kept.memory));
                break;
            }
            std::thread::sleep(REST);
        }
    }
}

fn timed_out(running: &RunningOperation, now: Instant) -> Abort {
    let status = &running.group.status;
    let late = if running.is_collective { status.late(running.sequence) } else { Vec::new() };
    let waited = now.saturating_duration_since(running.since);
    Abort::TimedOut {
        rank: status.rank(),
        sequence: running.sequence,
        operation: running.name.to_owned(),
        waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        waiting_for: late,
    }
}

/// The reason of a group in which the library or the driver reports an error.
fn failed_here(group: &Group, error: &Error) -> Abort {
    Abort::Failed { rank: group.status.rank(), why: error.to_string() }
}
