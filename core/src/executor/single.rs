//! Progress without a background thread, as in a browser: made by the caller that issues, and by
//! the event loop, which calls [`drive_all`]. Knows the executor and the clock; no concrete
//! transport.
//!
//! [`clock::set_alarm`] tells the event loop when to call it although no socket has an event.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::advance::Executor;
use super::finished_operation::FinishedOperation;
use super::operation::{Envelope, Message, Operation, SmallOperation};
use super::probes::Probe;
use super::small_collective::SmallAttempt;
use super::windows::{ExposedMemory, GoneRanks, WindowCall, WindowOperation};
use crate::clock::{self, CAN_BLOCK, Instant};
use crate::completion::{Completion, Notification, WaitIntent};
use crate::generated::error::{Error, Result};
use crate::price::KnownPrices;
use crate::spin::{SpinBudget, SpinPolicy};
use crate::tensor::LentMemory;
use crate::transport::Rank;
use crate::wire::abort::Abort;

/// Turns of all drivers in one [`drive_all`], so that the event loop gets its turn.
const MAX_TURNS: usize = 16;

/// How often operations in flight are checked although nothing arrives: one may be stalled.
const CHECK_INTERVAL: Duration = Duration::from_millis(150);

/// How long an operation may be stalled before the stall hook is called.
const STALL_LIMIT: Duration = Duration::from_millis(300);

/// The longest sleep of a thread that waits, since nothing wakes it.
#[cfg(not(target_family = "wasm"))]
const MAX_NAP: Duration = Duration::from_micros(200);

/// The drivers of this process, or of this page or worker.
static DRIVERS: Mutex<Vec<Weak<Driver>>> = Mutex::new(Vec::new());

/// Moves whatever can be moved, and wakes the futures that sleep until `now`. Returns when to call
/// it again at the latest, even if no socket has an event: `now` if there is more to do.
pub fn drive_all(now: Instant) -> Option<Instant> {
    let drivers: Vec<Arc<Driver>> = {
        let mut known = DRIVERS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|driver| driver.strong_count() > 0);
        known.iter().filter_map(Weak::upgrade).collect()
    };
    let mut unfinished = false;
    for _ in 0..MAX_TURNS {
        unfinished = false;
        for driver in &drivers {
            unfinished |= driver.turn_once(now, |_, _| {});
        }
        if !unfinished {
            break;
        }
    }
    let sleepers = clock::wake_sleepers(now);
    if unfinished {
        return Some(now);
    }
    let deadlines = drivers.iter().filter_map(|driver| driver.look_after(now));
    deadlines.chain(sleepers).min()
}

/// The executor of one group.
pub struct Driver {
    executor: Mutex<Executor>,
    stall_hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Driver {
    /// A driver of `executor`. Nothing spins, whatever the policy says.
    ///
    /// # Errors
    /// None; drivers with threads have some.
    pub fn new(executor: Executor, _: SpinPolicy) -> Result<Arc<Driver>> {
        let driver =
            Arc::new(Driver { executor: Mutex::new(executor), stall_hook: OnceLock::new() });
        let mut known = DRIVERS.lock().unwrap_or_else(PoisonError::into_inner);
        known.push(Arc::downgrade(&driver));
        Ok(driver)
    }

    /// Starts a collective, and moves it as far as it goes immediately. Operations that are over by
    /// then are settled when the caller drops the result, which it does when it holds no lock.
    pub fn submit(&self, operation: Operation, _: WaitIntent) -> DeferredCompletions {
        self.start(|executor, now| executor.submit(operation, now))
    }

    /// Tries to run a small operation immediately; without a board, that does nothing.
    pub fn try_small(
        &self,
        operation: &SmallOperation,
        memory: &mut LentMemory<'_>,
        _: WaitIntent,
        meanwhile: &mut dyn FnMut(u64),
    ) -> (SmallAttempt, DeferredCompletions) {
        let mut executor = self.lock();
        let attempt = executor.try_small(operation, memory, SpinBudget::NONE, meanwhile);
        (attempt, DeferredCompletions(Vec::new()))
    }

    /// Sends a short message immediately; without threads, that does nothing.
    pub fn send_short(&self, _: Envelope, _: &[u8]) -> (bool, DeferredCompletions) {
        (false, DeferredCompletions(Vec::new()))
    }

    /// Receives a short message immediately; without threads, that does nothing.
    pub fn receive_short(&self, _: Envelope, _: &mut [u8]) -> (Option<Rank>, DeferredCompletions) {
        (None, DeferredCompletions(Vec::new()))
    }

    /// Starts to send a message.
    pub fn send(&self, message: Message, _: WaitIntent) -> DeferredCompletions {
        self.start(|executor, now| executor.send(message, now))
    }

    /// Starts to receive a message.
    pub fn recv(&self, message: Message, _: WaitIntent) -> DeferredCompletions {
        self.start(|executor, now| executor.recv(message, now))
    }

    /// Looks for a message.
    pub fn probe(&self, probe: Probe, _: WaitIntent) -> DeferredCompletions {
        self.start(|executor, now| executor.probe(probe, now))
    }

    /// Settles `completion` when the group fails for a reason other than this rank's own will,
    /// before what was in flight is settled. The first one stays.
    pub fn tell_first_of_failure(&self, completion: Arc<Completion>) {
        self.lock().tell_first_of_failure(completion);
    }

    /// Opens a window, whose signals count from now on; `gone` is kept up to date.
    pub fn open_window(&self, window: u32, gone: Arc<GoneRanks>) {
        self.change(|executor, now| executor.open_window(window, gone, now));
    }

    /// Closes a window, on which nobody here makes a call any more; the others are told.
    pub fn close_window(&self, window: u32) {
        self.change(|executor, now| executor.close_window(window, now));
    }

    /// Lets others access `memory`, or nothing any more.
    pub fn expose(&self, window: u32, memory: Option<ExposedMemory>) {
        self.change(|executor, now| executor.expose(window, memory, now));
    }

    /// Starts a call on a window.
    pub fn start_on_window(
        &self,
        operation: WindowOperation,
        call: WindowCall,
        _: WaitIntent,
    ) -> DeferredCompletions {
        self.start(|executor, now| executor.start_on_window(operation, call, now))
    }

    /// No memory moves here.
    pub fn note_moved(&self, _: u64) {}

    /// For a caller that is to be told of the end of an operation: here, that is not sooner.
    pub fn hasten(&self, _: &Completion) {}

    /// Moves what can be moved; whether `completion` is done.
    pub fn poll_for(&self, completion: &Completion, _: Duration) -> bool {
        self.wait(completion, Some(Instant::now()))
    }

    /// As [`Driver::poll_for`].
    pub fn poll_while_moving(&self, completion: &Completion, _: Duration, _: Duration) -> bool {
        self.wait(completion, Some(Instant::now()))
    }

    /// Moves what can be moved, and returns whether `completion` is done. Waits for it until
    /// `until`, except in a browser, where nothing would arrive meanwhile.
    pub fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        loop {
            let next = drive_all(Instant::now());
            if completion.is_done() || !CAN_BLOCK {
                return completion.is_done();
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return false;
            }
            #[cfg(not(target_family = "wasm"))]
            {
                let first = until.into_iter().chain(next).min();
                let left = first.map_or(MAX_NAP, |first| first.saturating_duration_since(now));
                std::thread::sleep(left.min(MAX_NAP));
            }
            #[cfg(target_family = "wasm")]
            let _ = next;
        }
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
        drop(self.start(|executor, now| executor.break_as_told(abort, now)));
    }

    /// Whether this process inherited it by a fork: never, since there are no forks without
    /// threads.
    pub fn is_inherited(&self) -> bool {
        false
    }

    /// The error that broke the group, if no caller has seen it and one should.
    pub fn untold(&self) -> Option<Error> {
        self.lock().untold()
    }

    /// What copies cost, as far as this rank knows.
    pub fn known_prices(&self) -> KnownPrices {
        self.lock().known_prices()
    }

    /// Sets the function that is called, without any lock, again and again while the oldest
    /// operation is stalled. The first hook stays. It must not block.
    pub fn set_stall_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.stall_hook.set(Box::new(hook));
    }

    /// A completion that is done when nothing is in flight, or at `until`.
    pub fn idle(&self, until: Instant) -> Arc<Completion> {
        let completion = Arc::new(Completion::new());
        self.change(|executor, _| executor.tell_when_idle(completion.clone(), until));
        completion
    }

    /// A completion that fails when the group breaks. Starts to connect to `peers`.
    pub fn await_failure(&self, peers: &[Rank]) -> Arc<Completion> {
        let completion = Arc::new(Completion::new());
        self.change(|executor, _| executor.tell_of_failure(&completion, peers));
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

    /// Leaves the group immediately.
    pub fn end(&self) {
        self.change(Executor::close);
    }

    /// Whether anything is in flight.
    pub fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    fn start(&self, start: impl FnOnce(&mut Executor, Instant)) -> DeferredCompletions {
        let mut deferred_completions = DeferredCompletions(Vec::new());
        self.turn(Instant::now(), &mut deferred_completions.0, start);
        // What moved may have reached another rank of this process.
        clock::ring_alarm();
        deferred_completions
    }

    /// Makes a change on behalf of the user, whose event loop learns of what is left to do.
    fn change(&self, change: impl FnOnce(&mut Executor, Instant)) {
        self.turn_once(Instant::now(), change);
        // What moved may have reached another rank of this process.
        clock::ring_alarm();
    }

    /// Makes a change, moves what can be moved and settles what is over; whether anything moved.
    fn turn_once(&self, now: Instant, change: impl FnOnce(&mut Executor, Instant)) -> bool {
        // Dropped with what is over.
        let mut deferred_completions = DeferredCompletions(Vec::new());
        self.turn(now, &mut deferred_completions.0, change)
    }

    /// As [`Driver::turn_once`], but settles nothing.
    fn turn(
        &self,
        now: Instant,
        finished: &mut Vec<FinishedOperation>,
        change: impl FnOnce(&mut Executor, Instant),
    ) -> bool {
        let mut executor = self.lock();
        change(&mut executor, now);
        let progress = executor.advance(now);
        executor.take_finished(finished);
        progress.moved || progress.unfinished
    }

    /// Tells of a stall; when to look again.
    fn look_after(&self, now: Instant) -> Option<Instant> {
        let (busy, deadline, stalled) = {
            let executor = self.lock();
            (executor.is_busy(), executor.next_deadline(), executor.stalled(now))
        };
        if stalled.is_some_and(|report| report.stalled_for >= STALL_LIMIT)
            && let Some(hook) = self.stall_hook.get()
        {
            hook();
        }
        deadline.into_iter().chain(busy.then_some(now + CHECK_INTERVAL)).min()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Executor> {
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is over and still to be told, which may run code of the user.
#[must_use = "what is over is told when this is dropped, without a lock"]
pub struct DeferredCompletions(Vec<FinishedOperation>);

impl Drop for DeferredCompletions {
    fn drop(&mut self) {
        // A callback may look for what is over as well.
        let notifications: Vec<_> =
            self.0.drain(..).filter_map(FinishedOperation::mark_done).collect();
        notifications.into_iter().for_each(Notification::deliver);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}
