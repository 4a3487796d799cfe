//! What stands between a group and its backend from outside: gives operations their numbers, their
//! deadlines and errors that say where, and ends them when the group is aborted or left. Knows
//! nothing of what the backend does.
//!
//! The backend is given memory of its own, with copies of what is in the caller's, and what it has
//! written is copied back when the operation has ended well. So the memory of a caller who is told
//! that an operation failed is the caller's again, whatever the backend still does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Driver;
use super::apart;
use super::deadlines::{self, Expiring, Watch};
use super::waiting::until_ended;
use crate::backend::{
    Backend, Call, Capabilities, Direction, EndFuture, IssueOptions, IssuedOperation, Leaving,
    Transfer,
};
use crate::blocking::block_on;
use crate::clock::{self, Instant};
use crate::completion::{Completion, Notification, Outcome, inherited_error};
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::Region;

/// How many operations that failed are kept until somebody asks how they ended.
const MAX_FAILED: usize = 16;

/// A backend from outside, in a group.
pub(super) struct Guarded {
    name: String,
    group: String,
    rank: u32,
    /// The process that made it: a forked child has neither the backend's threads nor its peers.
    process: u32,
    driver: Arc<dyn Driver>,
    collectives: AtomicU64,
    messages: AtomicU64,
    state: Mutex<State>,
    itself: Weak<Guarded>,
}

#[derive(Default)]
struct State {
    open: Vec<Arc<Running>>,
    /// Why nothing can be issued any more.
    broken: Option<Break>,
    /// Operations that failed, until somebody asks how.
    failed: Vec<Arc<Completion>>,
    /// Whether somebody asked how one ended that failed.
    was_asked: bool,
    failure_hook: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// What broke the group.
#[derive(Clone)]
enum Break {
    /// An operation passed its deadline.
    Late(Error),
    /// Somebody aborted or left it, for this reason.
    Aborted(String),
}

/// An operation in flight.
struct Running {
    name: &'static str,
    sequence: u64,
    began: Instant,
    completion: Arc<Completion>,
    /// What is to be done if it ends well; nothing once it has ended, so that nobody holds the
    /// memory of the caller any more.
    ending: Mutex<Option<Ending>>,
    of: Weak<Guarded>,
}

/// What is to be done when an operation has ended well.
struct Ending {
    /// Who looks at the clock meanwhile.
    watch: Option<Watch>,
    /// Memory of the backend, and that of the caller for it.
    outputs: Vec<(Region, Region)>,
    finish: Option<Outcome>,
}

impl Guarded {
    pub(super) fn new(
        name: &str,
        group: &str,
        (rank, _size): (u32, u32),
        driver: Arc<dyn Driver>,
    ) -> Arc<Guarded> {
        Arc::new_cyclic(|itself| Guarded {
            name: name.to_owned(),
            group: group.to_owned(),
            rank,
            process: clock::process_id(),
            driver,
            collectives: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            state: Mutex::default(),
            itself: itself.clone(),
        })
    }

    /// Notes an operation that is about to be issued.
    fn begin(
        &self,
        name: &'static str,
        sequence: u64,
        outputs: Vec<(Region, Region)>,
        finish: Option<Outcome>,
    ) -> Result<Arc<Running>> {
        let running = Arc::new(Running {
            name,
            sequence,
            began: Instant::now(),
            completion: Arc::new(Completion::new()),
            ending: Mutex::new(Some(Ending { watch: None, outputs, finish })),
            of: self.itself.clone(),
        });
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(self.broken_error(broken, name, sequence));
        }
        state.open.push(running.clone());
        Ok(running)
    }

    /// Follows what the driver has issued. `peer` is the sender of what is received, where the
    /// caller named it.
    fn follow(
        &self,
        running: Arc<Running>,
        issued: Result<IssuedOperation>,
        peer: Option<u32>,
        deadline: Instant,
    ) -> Result<Arc<Running>> {
        let theirs = match issued {
            Ok(issued) => issued.completion,
            Err(error) => {
                let error = self.explained(running.name, running.sequence, error);
                // The caller is told by the call.
                self.end(&running, Err(error.clone()), false);
                return Err(error);
            }
        };
        if !theirs.is_done() {
            let watched: Weak<dyn Expiring> = Arc::downgrade(&running) as Weak<dyn Expiring>;
            let watch = deadlines::watch(deadline, watched);
            // Where it has ended meanwhile, nobody need look any more.
            if let Some(ending) = &mut *running.lock() {
                ending.watch = Some(watch);
            }
        }
        let (ended, known) = (running.clone(), Arc::downgrade(&theirs));
        theirs.on_end(move |result| {
            let source = known.upgrade().and_then(|completion| completion.source_rank());
            ended.ended(source.or(peer), result);
        });
        Ok(running)
    }

    /// Ends an operation, unless it has ended. The caller's memory is free when it is told, and
    /// when this returns.
    fn end(&self, running: &Arc<Running>, result: Result<()>, is_told: bool) {
        if let Some(notification) = self.settle(running, result, is_told) {
            deliver(notification);
        }
    }

    /// As [`Guarded::end`]; returns what is to be told to those who asked.
    fn settle(
        &self,
        running: &Arc<Running>,
        result: Result<()>,
        is_told: bool,
    ) -> Option<Notification> {
        {
            // Whoever comes second must not go on while the first still writes to the memory of
            // the caller.
            let mut ending = running.lock();
            let ending = ending.take()?;
            if result.is_ok() {
                ending.run();
            }
        }
        let mut state = self.lock();
        state.open.retain(|other| !Arc::ptr_eq(other, running));
        if is_told && result.is_err() && state.broken.is_none() {
            let before = state.failed.len();
            state.failed.retain(|completion| !completion.was_asked());
            state.was_asked |= state.failed.len() < before;
            if state.failed.len() < MAX_FAILED {
                state.failed.push(running.completion.clone());
            }
        }
        drop(state);
        running.completion.mark_done(result)
    }

    /// Has everything in flight fail, and everything later, unless that is so already.
    fn break_with(&self, broken: Break) -> bool {
        if self.is_inherited() {
            return false;
        }
        let open = {
            let mut state = self.lock();
            if state.broken.is_some() {
                return false;
            }
            state.broken = Some(broken.clone());
            state.open.clone()
        };
        if matches!(broken, Break::Late(_)) {
            let hook = self.lock().failure_hook.take();
            hook.iter().for_each(|hook| hook());
        }
        // What is called for the end of one may wait for another.
        let told = open.iter().filter_map(|running| {
            let error = self.broken_error(&broken, running.name, running.sequence);
            self.settle(running, Err(error), false)
        });
        told.collect::<Vec<_>>().into_iter().for_each(deliver);
        true
    }

    fn broken_error(&self, broken: &Break, name: &str, sequence: u64) -> Error {
        match broken {
            Break::Late(error) => error.clone(),
            Break::Aborted(why) => Error::Aborted {
                group: self.group.clone(),
                rank: self.rank,
                why: why.clone(),
                collective: name.to_owned(),
                sequence,
            },
        }
    }

    /// What an operation failed with, with the backend, the operation and the rank where the error
    /// does not say them.
    fn explained(&self, name: &str, sequence: u64, error: Error) -> Error {
        let message = match error {
            Error::Unsupported { operation, .. } => {
                let who = format!("the backend '{}'", self.name);
                return Error::Unsupported { who, operation };
            }
            kept @ (Error::CollectiveMismatch { .. }
            | Error::CollectiveTimeout { .. }
            | Error::RankFailed { .. }
            | Error::Aborted { .. }
            | Error::Reconfigured { .. }
            | Error::MessageSize { .. }
            | Error::MessageDType { .. }) => return kept,
            Error::Backend { message, .. } => message,
            other => other.to_string(),
        };
        let message = format!("{}: {message}", self.place_of(name, sequence));
        Error::Backend { backend: self.name.clone(), message }
    }

    /// Which operation of which group and rank it is.
    fn place_of(&self, name: &str, sequence: u64) -> String {
        let (group, rank) = (&self.group, self.rank);
        format!("{name} (operation {sequence} of group '{group}') on rank {rank}")
    }

    /// Whether this is a forked child, in which all that is there belongs to the parent.
    fn is_inherited(&self) -> bool {
        self.process != clock::process_id()
    }

    fn check_process(&self) -> Result<()> {
        if self.is_inherited() { Err(inherited_error()) } else { Ok(()) }
    }

    /// The next number, from 1 on.
    fn next(numbers: &AtomicU64) -> u64 {
        numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn start(&self, mut call: Call, options: IssueOptions) -> Result<Arc<Running>> {
        self.check_process()?;
        let (name, sequence) = (call.name, Self::next(&self.collectives));
        let mut outputs = Vec::with_capacity(call.output.len());
        for region in &mut call.input {
            *region = self.copy_of(name, region)?;
        }
        for region in &mut call.output {
            let theirs = self.copy_of(name, region)?;
            outputs.push((theirs.clone(), std::mem::replace(region, theirs)));
        }
        if matches!(call.agreed.reduce_op, ReduceOp::Avg | ReduceOp::PremulSum(_)) {
            // Factors are applied, and averages are made of sums, by the group.
            call.agreed.reduce_op = ReduceOp::Sum;
        }
        call.outputs = Vec::new();
        let running = self.begin(name, sequence, outputs, call.finish.take())?;
        let issued = self.driver.collective(&self.place_of(name, sequence), call, options);
        self.follow(running, issued, None, options.deadline)
    }

    /// Memory of the backend's own with the same bytes.
    fn copy_of(&self, name: &str, region: &Region) -> Result<Region> {
        if region.device().is_some() {
            let who = format!("the backend '{}', which runs on memory of the host,", self.name);
            return Err(Error::Unsupported { who, operation: format!("{name} of CUDA tensors") });
        }
        let copy = Region::for_elements(region.len()).ok_or_else(|| Error::InvalidArgument {
            message: format!("{name}: not enough memory for {} bytes", region.len()),
        })?;
        if !region.is_empty() {
            copy.write_from(region, |copy, bytes| copy.copy_from_slice(bytes));
        }
        Ok(copy)
    }

    fn message(
        &self,
        direction: Direction,
        mut transfer: Transfer,
        options: IssueOptions,
    ) -> Result<Arc<Running>> {
        let name = if direction == Direction::Send { "send" } else { "recv" };
        self.check_process()?;
        let sequence = Self::next(&self.messages);
        let theirs = self.copy_of(name, &transfer.memory)?;
        let ours = std::mem::replace(&mut transfer.memory, theirs.clone());
        let outputs = if direction == Direction::Send { Vec::new() } else { vec![(theirs, ours)] };
        let peer = transfer.peer;
        let running = self.begin(name, sequence, outputs, transfer.finish.take())?;
        let issued =
            self.driver.message(&self.place_of(name, sequence), direction, transfer, options);
        self.follow(running, issued, peer, options.deadline)
    }

    /// Operations that go together. If one cannot be issued, those before it end as well.
    fn all(
        &self,
        started: impl Iterator<Item = Result<Arc<Running>>>,
    ) -> Result<Vec<IssuedOperation>> {
        let mut issued: Vec<Arc<Running>> = Vec::new();
        for running in started {
            match running {
                Ok(running) => issued.push(running),
                Err(error) => {
                    // The caller has its memory back when it is told.
                    for running in issued {
                        self.end(&running, Err(error.clone()), false);
                    }
                    return Err(error);
                }
            }
        }
        Ok(issued.iter().map(|running| running.issued()).collect())
    }

    /// Leaves the group. What is in flight has until the limit to end.
    async fn leave(&self, leaving: Leaving) -> Result<()> {
        if self.is_inherited() {
            return Ok(());
        }
        let until = clock::after(leaving.limit);
        let open = self.lock().open.clone();
        for running in open {
            if !matches!(until_ended(&running.completion, until).await, Ok(true)) {
                break;
            }
        }
        let (failed, was_asked) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.failed), state.was_asked)
        };
        let was_whole = self.break_with(Break::Aborted("the process group was destroyed".into()));
        let nobody_asked = !was_asked && failed.iter().all(|completion| !completion.was_asked());
        let unasked = failed.first().filter(|_| was_whole && nobody_asked);
        let unasked = unasked.and_then(|completion| completion.peek()).unwrap_or(Ok(()));
        // All of it has one limit.
        let limit = until.saturating_duration_since(Instant::now());
        let ended = self.driver.leave(Leaving { limit, ..leaving }).await;
        unasked.and(ended.map_err(|error| self.explained("shutdown", 0, error)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells those who asked of an end. Not on this thread if that calls functions: it may be the one
/// that the backend's next operation needs.
fn deliver(notification: Notification) {
    if notification.has_callbacks() {
        apart::run(|| notification.deliver());
    } else {
        notification.deliver();
    }
}

impl Running {
    /// The backend has ended it.
    fn ended(self: &Arc<Self>, source: Option<u32>, result: &Result<()>) {
        let Some(group) = self.of.upgrade() else { return };
        if let Some(source) = source {
            self.completion.set_source_rank(source);
        }
        let result =
            result.clone().map_err(|error| group.explained(self.name, self.sequence, error));
        group.end(self, result, true);
    }

    fn issued(&self) -> IssuedOperation {
        IssuedOperation { sequence: self.sequence, completion: self.completion.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ending>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expiring for Running {
    fn expire(&self) {
        let Some(group) = self.of.upgrade().filter(|_| !self.completion.is_done()) else { return };
        let error = Error::CollectiveTimeout {
            group: group.group.clone(),
            collective: self.name.to_owned(),
            sequence: self.sequence,
            rank: group.rank,
            missing_ranks: Vec::new().into(),
            waiting_rank: group.rank,
            waited_ms: self.began.elapsed().as_millis() as u64,
            detail: format!("the backend '{}' had not ended it", group.name),
        };
        let why = error.to_string();
        if group.break_with(Break::Late(error)) {
            group.driver.abort(&why);
        }
    }
}

impl Ending {
    fn run(self) {
        for (theirs, ours) in &self.outputs {
            if !ours.is_empty() {
                ours.write_from(theirs, |ours, theirs| ours.copy_from_slice(theirs));
            }
        }
        if let Some(finish) = self.finish {
            finish();
        }
    }
}

impl Backend for Guarded {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.driver.capabilities()
    }

    fn collective(&self, call: Call, options: IssueOptions) -> Result<IssuedOperation> {
        self.start(call, options).map(|running| running.issued())
    }

    fn together(&self, calls: Vec<Call>, options: IssueOptions) -> Result<Vec<IssuedOperation>> {
        self.all(calls.into_iter().map(|call| self.start(call, options)))
    }

    fn messages(
        &self,
        messages: Vec<(Direction, Transfer)>,
        options: IssueOptions,
    ) -> Result<Vec<IssuedOperation>> {
        let issue = |(direction, transfer)| self.message(direction, transfer, options);
        self.all(messages.into_iter().map(issue))
    }

    fn send(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.message(Direction::Send, transfer, options).map(|running| running.issued())
    }

    fn recv(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.message(Direction::Receive, transfer, options).map(|running| running.issued())
    }

    fn set_failure_hook(&self, hook: Arc<dyn Fn() + Send + Sync>) -> bool {
        self.lock().failure_hook.get_or_insert(hook);
        true
    }

    fn failure(&self) -> Option<Error> {
        let broken = self.lock().broken.clone();
        broken.map(|broken| self.broken_error(&broken, "get_error", 0))
    }

    fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    fn abort(&self, why: &str) {
        if self.break_with(Break::Aborted(why.to_owned())) {
            self.driver.abort(why);
        }
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        block_on(self.leave(leaving))
    }

    fn shutdown_async(self: Arc<Self>, leaving: Leaving) -> EndFuture {
        Box::pin(async move { self.leave(leaving).await })
    }
}

/// Nobody has it any more: what is in flight has no one to end it.
impl Drop for Guarded {
    fn drop(&mut self) {
        self.break_with(Break::Aborted("the process group was dropped".to_owned()));
    }
}
