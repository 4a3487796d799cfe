//! The threads that make progress: the one that issues, the one that waits, or the background
//! thread. Knows the executor and the clock; nothing of schedules, and no concrete transport.
//!
//! One lock guards the executor of a group. Completions are settled after it is released, so that
//! no user code runs under it. Of several threads that wait for one group, one leads: it spins or
//! sleeps in the system, and moves everything. The others sleep until they are done or the leader
//! leaves.

mod failures;
mod fast_path;
mod group_progress;
mod handover;
mod leader_bell;
mod windows;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use self::leader_bell::LeaderBell;
use super::advance::{Executor, Progress};
use super::background::Background;
use super::finished_operation::FinishedOperation;
use super::limits::TELLING_LIMIT;
use super::operation::{Message, Operation};
use super::probes::Probe;
use crate::clock::Instant;
use crate::completion::{Completion, Notification, WaitIntent, inherited_error};
use crate::fork;
use crate::generated::error::{Error, Result};
use crate::price::KnownPrices;
use crate::spin::{AdaptiveSpin, BackOff, SpinPolicy};
use crate::transport::{Bell, Interest, wait};
use crate::wire::abort::Abort;

/// How long the leader sleeps at a time where no other thread can wake it, because the process has
/// no descriptor left.
const WITHOUT_BELL: Duration = Duration::from_millis(1);

/// The executor of one group, and the threads that drive it.
pub struct Driver {
    executor: Mutex<Executor>,
    /// The number of forks before the driver was made; a forked child must not touch its
    /// connections.
    forks: u32,
    spin: SpinPolicy,
    spinning: AdaptiveSpin,
    background: &'static Background,
    /// Ends the leader's sleep.
    bell: LeaderBell,
    /// Whether the leader sleeps, or is about to.
    polling: AtomicBool,
    /// Threads in [`Driver::wait`].
    waiters: AtomicUsize,
    turn: Mutex<Turn>,
    turned: Condvar,
    /// Whether the executor had something in flight when the lock was last released.
    busy: AtomicBool,
    /// Whether there was more to do, without waiting for anybody, when it was last released.
    unfinished: AtomicBool,
    /// Whether it has to be looked after although nothing is in flight.
    watched: AtomicBool,
    /// Whether the background thread drives it, or sleeps until something arrives for it.
    driven_in_background: AtomicBool,
    /// Whether somebody is to be told of the end of what is in flight, and does not wait for it.
    is_urgent: AtomicBool,
    /// Whether it pays to poll before something is handed to the background thread.
    brief_polls: Mutex<BackOff>,
    /// Rises whenever a thread of the user issues or waits.
    activity: AtomicU64,
    stall_hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// How often it was left to the background thread.
    #[cfg(test)]
    left_to_background: AtomicUsize,
    /// Called when an operation is over and nobody has been notified yet.
    #[cfg(test)]
    before_telling: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Which of the waiting threads leads.
#[derive(Default)]
struct Turn {
    leader: Option<ThreadId>,
    sleeping: usize,
}

impl Driver {
    /// A driver of `executor`. If there are other ranks, the background thread looks out from now
    /// on for those that die, or say why the group broke, whether or not this one ever does
    /// anything.
    ///
    /// # Errors
    /// [`Error::Network`] if the system has no descriptor left.
    pub fn new(executor: Executor, spin: SpinPolicy) -> Result<Arc<Driver>> {
        let background = Background::of_this_process()?;
        let has_others = executor.has_others();
        let driver = Arc::new(Driver {
            background,
            executor: Mutex::new(executor),
            forks: fork::forks(),
            spin,
            spinning: AdaptiveSpin::new(spin),
            bell: LeaderBell::default(),
            polling: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            turn: Mutex::default(),
            turned: Condvar::new(),
            busy: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            driven_in_background: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            brief_polls: Mutex::new(handover::brief_polls()),
            activity: AtomicU64::new(0),
            stall_hook: OnceLock::new(),
            #[cfg(test)]
            left_to_background: AtomicUsize::new(0),
            #[cfg(test)]
            before_telling: OnceLock::new(),
        });
        let group: Weak<Driver> = Arc::downgrade(&driver);
        background.register(group);
        if has_others {
            background.start();
        }
        Ok(driver)
    }

    /// Starts a collective, and moves it as far as it goes immediately, unless `waiting` leaves
    /// that to others. Operations that are over by then are settled when the caller drops the
    /// result, which it does when it holds no lock.
    pub fn submit(&self, operation: Operation, waiting: WaitIntent) -> DeferredCompletions<'_> {
        let completion = operation.completion.clone();
        self.start(&completion, waiting, |executor, now| executor.submit(operation, now))
    }

    /// Starts to send a message, as [`Driver::submit`] starts a collective.
    pub fn send(&self, message: Message, waiting: WaitIntent) -> DeferredCompletions<'_> {
        let completion = message.completion.clone();
        self.start(&completion, waiting, |executor, now| executor.send(message, now))
    }

    /// Starts to receive a message, as [`Driver::submit`] starts a collective.
    pub fn recv(&self, message: Message, waiting: WaitIntent) -> DeferredCompletions<'_> {
        let completion = message.completion.clone();
        self.start(&completion, waiting, |executor, now| executor.recv(message, now))
    }

    /// Looks for a message, as [`Driver::submit`] starts a collective.
    pub fn probe(&self, probe: Probe, waiting: WaitIntent) -> DeferredCompletions<'_> {
        let completion = probe.completion.clone();
        self.start(&completion, waiting, |executor, now| executor.probe(probe, now))
    }

    /// Waits until `completion` is done or `until` has passed, and moves what can be moved
    /// meanwhile. Returns whether it is done. With an `until` in the past it moves things once.
    pub fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        if completion.is_done() {
            return true;
        }
        if self.is_inherited() {
            completion.complete(Err(inherited_error()));
            return true;
        }
        self.note_activity();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let done = self.wait_in_turn(completion, until);
        let left = self.waiters.fetch_sub(1, Ordering::SeqCst) - 1;
        if left == 0 {
            self.leave_to_background();
        }
        done
    }

    /// Fails everything in flight and everything later, on all ranks.
    pub fn break_with(&self, abort: Abort) {
        self.change(|executor, now| executor.break_with(abort, now));
    }

    /// As [`Driver::break_with`], as this rank cannot run operation `sequence`, or the next one
    /// if none is named: those before it may end well.
    pub fn break_from(&self, sequence: Option<u64>, abort: Abort) {
        self.change(|executor, now| executor.break_from(sequence, abort, now));
    }

    /// As [`Driver::break_with`], for a reason that another rank has published to all.
    pub fn break_as_told(&self, abort: Abort) {
        self.change(|executor, now| executor.break_as_told(abort, now));
    }

    /// The error that broke the group, if no caller has seen it and one should.
    pub fn untold(&self) -> Option<Error> {
        if self.is_inherited() { None } else { self.lock().untold() }
    }

    /// As [`Transport::disconnect`](crate::transport::Transport::disconnect).
    pub fn disconnect(&self, peer: u32) -> bool {
        !self.is_inherited() && self.lock().disconnect(peer)
    }

    /// What copies cost, as far as this rank knows.
    pub fn known_prices(&self) -> KnownPrices {
        if self.is_inherited() { KnownPrices::default() } else { self.lock().known_prices() }
    }

    /// Sets the function that is called, without any lock, while the oldest operation is stalled
    /// and no thread waits for it. The first hook stays. It must not block.
    pub fn set_stall_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.stall_hook.set(Box::new(hook));
    }

    /// Settles `completion` when the group fails for a reason other than this rank's own will,
    /// before what was in flight is settled. The first one stays.
    pub fn tell_first_of_failure(&self, completion: Arc<Completion>) {
        if !self.is_inherited() {
            self.lock().tell_first_of_failure(completion);
        }
    }

    /// A completion that is done when nothing is in flight, or at `until`.
    pub fn idle(&self, until: Instant) -> Arc<Completion> {
        let completion = Arc::new(Completion::new());
        if self.is_inherited() {
            completion.complete(Ok(()));
            return completion;
        }
        self.change(|executor, _| executor.tell_when_idle(completion.clone(), until));
        completion
    }

    /// Breaks the group if a collective is in flight, as if its deadline had passed.
    pub fn end_late(&self) {
        self.change(Executor::end_late);
    }

    /// Begins to leave the group: cleanly if nothing is in flight, otherwise by breaking it. Later
    /// operations fail immediately. The completion is done when the others were told why the group
    /// broke, if it did, or at `until`; [`Driver::end`] then ends it.
    pub fn leave(&self, until: Instant) -> Arc<Completion> {
        self.change(Executor::leave);
        self.idle(until)
    }

    /// As [`Driver::leave`], as the group gets other members: what is in flight fails with that.
    pub fn retire(&self, until: Instant) -> Arc<Completion> {
        self.change(Executor::retire);
        self.idle(until)
    }

    /// Leaves the group immediately, and closes what was open for it, even while other threads
    /// refer to this driver.
    pub fn end(&self) {
        if self.is_inherited() {
            return;
        }
        self.change(Executor::close);
        let connections = self.lock().take_connections();
        drop(connections);
        // Wakes the leader, if there is one.
        self.bell.end();
        self.background.refresh();
    }

    /// Leaves the group, and takes up to [`TELLING_LIMIT`] to tell the others why it broke,
    /// if it did.
    pub fn close(&self) {
        if self.is_inherited() {
            return;
        }
        let until = Instant::now() + TELLING_LIMIT;
        let mut finished = Vec::new();
        self.turn_once(&mut finished, Executor::leave);
        let mut interests = Vec::new();
        while self.is_busy() && Instant::now() < until {
            if !self.turn_once(&mut finished, |_, _| {}) {
                interests.clear();
                if self.lock().prepare_to_sleep(&mut interests) {
                    wait::wait(&interests, Some(Duration::from_millis(5)));
                }
            }
        }
        self.turn_once(&mut finished, Executor::close);
    }

    /// Whether anything is in flight.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    fn start(
        &self,
        completion: &Arc<Completion>,
        waiting: WaitIntent,
        start: impl FnOnce(&mut Executor, Instant),
    ) -> DeferredCompletions<'_> {
        let mut finished = Vec::new();
        if self.is_inherited() {
            finished.push(FinishedOperation::new(completion.clone(), Err(inherited_error())));
            return DeferredCompletions { driver: self, finished };
        }
        self.note_activity();
        match waiting {
            WaitIntent::Soon | WaitIntent::Likely | WaitIntent::Later => {
                self.turn(&mut finished, start)
            }
            WaitIntent::OtherThread => self.act(&mut finished, |executor, now| {
                start(executor, now);
                Progress { moved: true, unfinished: true }
            }),
        };
        if waiting != WaitIntent::Soon || completion.is_done() {
            self.leave_to_background();
        }
        DeferredCompletions { driver: self, finished }
    }

    /// Notes that a thread of the user issues or waits, and returns how often one did before:
    /// about, since a locked addition would take as long as much else of a small operation.
    fn note_activity(&self) -> u64 {
        let before = self.activity.load(Ordering::Relaxed);
        self.activity.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }

    /// Makes a change for which no thread of the user waits.
    fn change(&self, change: impl FnOnce(&mut Executor, Instant)) {
        if self.is_inherited() {
            return;
        }
        self.turn_once(&mut Vec::new(), change);
        self.leave_to_background();
    }

    /// Makes a change, moves what can be moved and settles the operations that are over. Returns
    /// whether anything moved.
    fn turn_once(
        &self,
        finished: &mut Vec<FinishedOperation>,
        change: impl FnOnce(&mut Executor, Instant),
    ) -> bool {
        let moved = self.turn(finished, change);
        self.settle(finished);
        moved
    }

    /// As [`Driver::turn_once`], but settles nothing.
    fn turn(
        &self,
        finished: &mut Vec<FinishedOperation>,
        change: impl FnOnce(&mut Executor, Instant),
    ) -> bool {
        self.act(finished, |executor, now| {
            change(executor, now);
            executor.advance(now)
        })
    }

    /// Calls `act` with the executor and takes the operations that are over. Returns whether
    /// anything moved.
    fn act(
        &self,
        finished: &mut Vec<FinishedOperation>,
        act: impl FnOnce(&mut Executor, Instant) -> Progress,
    ) -> bool {
        self.act_on(self.lock(), finished, act)
    }

    /// As [`Driver::act`], by a thread that has the executor already.
    fn act_on(
        &self,
        mut executor: MutexGuard<'_, Executor>,
        finished: &mut Vec<FinishedOperation>,
        act: impl FnOnce(&mut Executor, Instant) -> Progress,
    ) -> bool {
        let progress = act(&mut executor, Instant::now());
        executor.take_finished(finished);
        let is_busy = executor.is_busy();
        self.busy.store(is_busy, Ordering::SeqCst);
        if !is_busy && self.is_urgent.load(Ordering::Relaxed) {
            self.is_urgent.store(false, Ordering::SeqCst);
        }
        self.unfinished.store(progress.unfinished, Ordering::SeqCst);
        self.watched.store(executor.is_watched(), Ordering::SeqCst);
        drop(executor);
        if self.polling.load(Ordering::SeqCst) {
            // What the leader sleeps for may have happened in `act`, or have changed.
            self.bell.ring();
        }
        progress.moved
    }

    fn settle(&self, finished: &mut Vec<FinishedOperation>) {
        if finished.is_empty() {
            return;
        }
        if let Some(first) = finished.iter().position(FinishedOperation::comes_first) {
            finished.remove(first).settle();
        }
        #[cfg(test)]
        if let Some(hook) = self.before_telling.get() {
            hook();
        }
        // All are marked before any callback runs: it may wait for another of them.
        let notifications: Vec<_> =
            finished.drain(..).filter_map(FinishedOperation::mark_done).collect();
        // A thread that sleeps has looked at its completion under this lock.
        if self.lock_turn().sleeping > 0 {
            self.turned.notify_all();
        }
        // The leader may have gone to sleep after the lock was released and before its completion
        // was marked. It sets `polling` before it looks at the completion, so either it sees the
        // mark or this thread sees `polling`.
        fence(Ordering::SeqCst);
        if self.polling.load(Ordering::SeqCst) {
            self.bell.ring();
        }
        notifications.into_iter().for_each(Notification::deliver);
    }

    /// Waits as the leader, or until the leader is done.
    fn wait_in_turn(&self, completion: &Completion, until: Option<Instant>) -> bool {
        let own = thread::current().id();
        let mut turn = self.lock_turn();
        loop {
            if completion.is_done() {
                return true;
            }
            if turn.leader.is_none() {
                turn.leader = Some(own);
                break;
            }
            if turn.leader == Some(own) {
                // This is a callback on the leader's own thread, which would wait for itself.
                drop(turn);
                return self.lead(completion, until);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            turn.sleeping += 1;
            turn = match left {
                None => self.turned.wait(turn).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.turned.wait_timeout(turn, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            turn.sleeping -= 1;
        }
        drop(turn);
        let done = self.lead(completion, until);
        let mut turn = self.lock_turn();
        turn.leader = None;
        if turn.sleeping > 0 {
            self.turned.notify_all();
        }
        done
    }

    /// Moves everything until `completion` is done or `until` has passed.
    fn lead(&self, completion: &Completion, until: Option<Instant>) -> bool {
        let mut finished = Vec::new();
        let mut interests = Vec::new();
        let mut idle_since: Option<Instant> = None;
        loop {
            let moved = self.turn_once(&mut finished, |executor, _| executor.stay_awake());
            if completion.is_done() {
                return true;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return completion.is_done();
            }
            if moved {
                idle_since = None;
                continue;
            }
            if now - *idle_since.get_or_insert(now) < self.spinning.duration() {
                self.spinning.pause().take();
                continue;
            }
            self.sleep(completion, until, &mut interests);
            self.spinning.note_sleep(now.elapsed());
            idle_since = None;
        }
    }

    /// Sleeps until the transport can move something, the bell rings or it is time.
    fn sleep(
        &self,
        completion: &Completion,
        until: Option<Instant>,
        interests: &mut Vec<Interest>,
    ) {
        interests.clear();
        let bell = self.bell.open();
        interests.extend(bell.as_ref().and_then(Bell::interest));
        let (sleepy, deadline) = {
            let mut executor = self.lock();
            let sleepy = executor.prepare_to_sleep(interests);
            // No descriptor reports what another thread left unfinished when it released the lock.
            let sleepy = sleepy && !self.unfinished.load(Ordering::SeqCst);
            self.polling.store(true, Ordering::SeqCst);
            (sleepy, executor.next_deadline())
        };
        fence(Ordering::SeqCst);
        if sleepy && !completion.is_done() {
            let first = until.into_iter().chain(deadline).min();
            let timeout = first.map(|first| first.saturating_duration_since(Instant::now()));
            // A transport without descriptors has to be polled, and so has a group without a bell.
            let timeout = match interests.len() {
                _ if bell.is_none() => Some(timeout.unwrap_or(Duration::MAX).min(WITHOUT_BELL)),
                1 => Some(timeout.unwrap_or(Duration::MAX).min(Duration::from_micros(200))),
                _ => timeout,
            };
            wait::wait(interests, timeout);
        }
        self.polling.store(false, Ordering::SeqCst);
        self.bell.note_awake();
    }

    /// Ends the connections as a process that is killed would.
    #[cfg(test)]
    pub(super) fn vanish(&self) {
        self.lock().vanish();
    }

    /// Sets the function that is called when an operation is over and nobody has been notified yet.
    #[cfg(test)]
    pub(super) fn set_before_telling(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.before_telling.set(Box::new(hook));
    }

    /// How often it was left to the background thread so far.
    #[cfg(test)]
    pub(super) fn times_left_to_background(&self) -> usize {
        self.left_to_background.load(Ordering::SeqCst)
    }

    /// Whether the leader sleeps, or is about to.
    #[cfg(test)]
    pub(super) fn is_leader_asleep(&self) -> bool {
        self.polling.load(Ordering::SeqCst)
    }

    /// Whether this process inherited it by a fork; it must not touch its parent's connections.
    pub fn is_inherited(&self) -> bool {
        self.forks != fork::forks()
    }

    /// The memory of collective `sequence` has moved. Call it before anybody changes what lies
    /// where it was: other ranks may read that.
    pub fn note_moved(&self, sequence: u64) {
        self.lock().note_moved(sequence);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Executor> {
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Operations that are over and still have to be settled, which may run user code.
#[must_use = "its operations are settled when this is dropped, without a lock"]
pub struct DeferredCompletions<'a> {
    driver: &'a Driver,
    finished: Vec<FinishedOperation>,
}

impl Drop for DeferredCompletions<'_> {
    fn drop(&mut self) {
        self.driver.settle(&mut self.finished);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A forked child leaves the connections to its parent.
        self.close();
    }
}
