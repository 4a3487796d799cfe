//! The [`Backend`] of one group: what is issued, in which order, and what becomes of it when it
//! cannot be. Knows when to ask which module of this folder; each of them knows how.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::NcclOptions;
use super::abort_watch::{AbortWatch, WaitLimit};
use super::bootstrap::Arrival;
use super::collectives::Calls;
use super::communicator::{Communicator, Share};
use super::library::LoadedLibrary;
use super::progress::{Progress, progress};
use super::running_operation::{AbandonedOperation, Group, Memory, RunningOperation};
use crate::backend::group_status::{FoundBy, GroupStatus};
use crate::backend::registration::Bootstrap;
use crate::backend::{
    Backend, BackendOptions, Call, Capabilities, Direction, IssueOptions, IssuedOperation, Leaving,
    Mismatches, OpenComparison, Share as AnyShare, SplitRequest, Transfer,
};
use crate::clock::{self, Instant};
use crate::completion::{Completion, Outcome};
use crate::debug_level::{DebugLevel, get_debug_level};
use crate::generated::error::{Error, Result};
use crate::rendezvous::timed_out;
use crate::store::Store;
use crate::tensor::OnDevice;
use crate::tensor::cuda::{Event, Gpu};
use crate::tensor::{Device, Region};
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// How long a rank that leaves waits for the library to abort a communicator.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// One group of ranks over NCCL.
struct NcclBackend {
    found: &'static LoadedLibrary,
    group: Arc<Group>,
    store: Arc<dyn Store>,
    ranks: (u32, u32),
    /// Limit of meeting the others when the first operation comes.
    timeout: Duration,
    options: NcclOptions,
    debug_level: DebugLevel,
    process: u32,
    /// Operations are enqueued one after the other.
    issuing: Mutex<()>,
    progress: &'static Progress,
}

/// Joins a group whose ranks each have a device of their own.
///
/// # Errors
/// [`Error::BackendUnavailable`]; with a device, those of [`NcclBackend::communicator`].
pub(super) fn connect(
    found: &'static LoadedLibrary,
    bootstrap: Bootstrap<'_>,
) -> Result<Arc<dyn Backend>> {
    let Bootstrap { store, rank, size, group: name, timeout, options, share, host, .. } = bootstrap;
    let ranks = (rank, size);
    let device = match bootstrap.device {
        Some(Device::Cuda(index)) => Some(index),
        _ => None,
    };
    let group = Arc::new(Group {
        status: GroupStatus::join("nccl", name, ranks, store)?,
        communicator: OnceLock::new(),
        in_flight: AtomicUsize::new(0),
        aborting: AtomicUsize::new(0),
        is_failing: AtomicBool::new(false),
        host_failure: host.as_ref().and_then(|host| host.await_failure(&[])),
        host: host.as_ref().map(Arc::downgrade),
    });
    progress().heed_host(&group);
    let backend = NcclBackend {
        found,
        group,
        store: store.clone(),
        ranks,
        timeout,
        options: options.and_then(BackendOptions::get).cloned().unwrap_or_default(),
        debug_level: get_debug_level()?,
        process: clock::process_id(),
        issuing: Mutex::new(()),
        progress: progress(),
    };
    let watch = AbortWatch::new(&backend.group.status);
    let limit = WaitLimit { until: clock::after(timeout), watch: &watch };
    let share = share.and_then(|share| share.downcast::<Share>().ok());
    let joined = share.map(|share| share.join(ranks, &backend.options, limit)).transpose();
    let met = match joined.map_err(IssueError::Meeting) {
        Ok(Some(Some(joined))) => {
            let _ = backend.group.communicator.set(Arc::new(joined));
            Ok(())
        }
        Ok(_) => device.map_or(Ok(()), |index| backend.communicator(index, limit).map(drop)),
        Err(refused) => Err(refused),
    };
    met.map_err(|refused| backend.refuse("init_process_group", refused, limit))?;
    Ok(Arc::new(backend))
}

/// What goes together to the device, and what is told of it.
struct Item {
    name: &'static str,
    sequence: u64,
    is_collective: bool,
    fingerprint: Option<Fingerprint>,
    regions: Vec<Region>,
    finish: Option<Outcome>,
}

/// Where something is enqueued, and the streams that it comes after.
struct EnqueueTarget {
    on: Arc<Communicator>,
    streams: Vec<usize>,
}

/// Why nothing was issued.
enum IssueError {
    /// The call is wrong here. Nothing was enqueued, no number was used, and the group continues.
    Call(Error),
    /// The ranks did not form a communicator.
    Meeting(Error),
    /// The library failed at splitting one, here or on another rank.
    Split(Error),
    /// A part of it may be enqueued, and the device may use the memory.
    Midway(Error, Box<PartialOperation>),
}

/// What was enqueued in part.
struct PartialOperation {
    since: Instant,
    items: Vec<Item>,
    calls: Calls,
}

impl NcclBackend {
    /// The group's communicator, on the device with this index. The first call meets the other
    /// ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if this rank has a second device; those of the meeting.
    fn communicator(
        &self,
        index: u32,
        limit: WaitLimit<'_>,
    ) -> std::result::Result<&Arc<Communicator>, IssueError> {
        let known = &self.group.communicator;
        if known.get().is_none() {
            let gpu = Gpu::open(index).map_err(IssueError::Call)?;
            let met = self.store.clone_store().and_then(|store| {
                let (found, ranks) = (self.found, self.ranks);
                Arrival { found, store: &*store, ranks, limit }.meet(&gpu, &self.options)
            });
            let _ = known.set(Arc::new(met.map_err(IssueError::Meeting)?));
        }
        match known.get() {
            Some(communicator) if communicator.gpu.index() == index => Ok(communicator),
            Some(communicator) => Err(IssueError::Call(Error::InvalidArgument {
                message: format!(
                    "this rank uses cuda:{} in the group, and a tensor is on cuda:{index}: a rank \
                     has one device in a group over NCCL",
                    communicator.gpu.index()
                ),
            })),
            None => Err(IssueError::Call(unreachable_state())),
        }
    }

    fn check(&self, name: &str) -> Result<()> {
        self.check_process()?;
        self.group.status.check(name)
    }

    fn check_process(&self) -> Result<()> {
        if self.process == clock::process_id() {
            return Ok(());
        }
        let message = "NCCL belongs to the parent process, a forked child cannot use it";
        Err(Error::InvalidGroup { message: message.into() })
    }

    /// Whatever can be wrong on this rank alone, before anything has a number: the device, and that
    /// the communicator's stream comes after those of the tensors' owners.
    fn prepare(
        &self,
        name: &str,
        devices: &[OnDevice],
        limit: WaitLimit<'_>,
    ) -> std::result::Result<EnqueueTarget, IssueError> {
        let index = match (devices.first(), self.group.communicator.get()) {
            (Some(device), _) => device.index,
            (None, Some(communicator)) => communicator.gpu.index(),
            (None, None) => return Err(IssueError::Call(deviceless(name))),
        };
        let until = clock::after(self.timeout).min(limit.until);
        let on = self.communicator(index, WaitLimit { until, ..limit })?.clone();
        let mut streams: Vec<usize> = devices.iter().map(|device| device.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let own = on.stream.raw();
        let order = |stream: &usize| Event::now(&on.gpu, *stream)?.comes_before(own);
        streams.iter().try_for_each(order).map_err(IssueError::Call)?;
        Ok(EnqueueTarget { on, streams })
    }

    /// Enqueues what `add` adds, and takes care of it until it is over.
    fn enqueue(
        &self,
        EnqueueTarget { on, streams }: EnqueueTarget,
        items: Vec<Item>,
        limit: WaitLimit<'_>,
        add: impl FnOnce(&mut Calls, &Communicator) -> Result<()>,
    ) -> std::result::Result<Vec<IssuedOperation>, IssueError> {
        let _enqueuing = self.group.begin_enqueuing();
        let (mut calls, since) = (Calls::default(), Instant::now());
        if let Some(first) = items.first().filter(|item| item.is_collective) {
            limit.watch.waits_in(first.sequence);
        }
        let enqueued = add(&mut calls, &on)
            .and_then(|()| calls.enqueue(&on, limit))
            .and_then(|()| Event::now(&on.gpu, on.stream.raw()));
        let event = match enqueued {
            Ok(event) => Arc::new(event),
            Err(error) => {
                let partial = PartialOperation { since, items, calls };
                return Err(IssueError::Midway(error, Box::new(partial)));
            }
        };
        let deadline = limit.until;
        let mut scratch = std::mem::take(&mut calls.scratch);
        let mut issued = Vec::with_capacity(items.len());
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let completion = Arc::new(Completion::new());
            let compared = item.fingerprint.filter(|_| self.debug_level == DebugLevel::Detail);
            let compared = compared.map(|it| self.compare(item.sequence, it, deadline));
            all.push(RunningOperation {
                group: self.group.clone(),
                name: item.name,
                sequence: item.sequence,
                is_collective: item.is_collective,
                event: event.clone(),
                since,
                deadline,
                memory: (item.regions, std::mem::take(&mut scratch)),
                streams: streams.clone(),
                orders: !self.options.blocking_wait,
                finish: item.finish,
                completion: completion.clone(),
                compared,
            });
            issued.push(IssuedOperation { sequence: item.sequence, completion });
        }
        self.progress.add(all);
        Ok(issued)
    }

    /// Returns the outcome of issuing. No lock may be held: callbacks may call anything.
    fn outcome(
        &self,
        name: &str,
        issued: std::result::Result<Vec<IssuedOperation>, IssueError>,
        limit: WaitLimit<'_>,
    ) -> Result<Vec<IssuedOperation>> {
        match issued {
            Ok(issued) => {
                self.progress.sweep(&self.group);
                Ok(issued)
            }
            Err(refused) => Err(self.refuse(name, refused, limit)),
        }
    }

    /// Breaks the group, unless the call alone was wrong; the error of the call.
    fn refuse(&self, name: &str, refused: IssueError, limit: WaitLimit<'_>) -> Error {
        let status = &self.group.status;
        let take_reason = limit.watch.take_reason();
        match refused {
            IssueError::Call(error) => error,
            IssueError::Split(error) => {
                let take_reason =
                    take_reason.unwrap_or_else(|| status.who_failed(&error.to_string()));
                self.progress.break_group(&self.group, take_reason.0, take_reason.1);
                status.check(name).err().unwrap_or(error)
            }
            IssueError::Meeting(error) => {
                let was_broken = status.is_broken() || take_reason.is_some();
                let why = error.to_string();
                let here = (Abort::Failed { rank: self.ranks.0, why }, FoundBy::ThisRank);
                let (abort, found) = take_reason.unwrap_or(here);
                self.progress.break_group(&self.group, abort, found);
                let broken = status.check(name).err().filter(|_| was_broken);
                broken.unwrap_or(error)
            }
            IssueError::Midway(error, partial) => {
                let PartialOperation { since, items, calls } = *partial;
                let first = items.first().map(|item| (item.sequence, item.is_collective));
                let (sequence, is_collective) = first.unwrap_or_default();
                let is_late = Instant::now() >= limit.until;
                let (abort, found) = match take_reason {
                    Some(take_reason) => take_reason,
                    None if status.is_broken() => (self.left(), FoundBy::OtherRank),
                    None if is_late => {
                        let late = is_collective.then(|| status.late(sequence));
                        let abort = Abort::TimedOut {
                            rank: self.ranks.0,
                            sequence,
                            operation: name.to_owned(),
                            waited_ms: u64::try_from(since.elapsed().as_millis())
                                .unwrap_or(u64::MAX),
                            waiting_for: late.unwrap_or_default(),
                        };
                        (abort, FoundBy::ThisRank)
                    }
                    None => status.who_failed(&error.to_string()),
                };
                self.progress.break_group(&self.group, abort, found);
                let regions = items.into_iter().flat_map(|item| item.regions).collect();
                let memory: Memory = (regions, calls.scratch);
                self.progress
                    .give_up(&self.group, Some(AbandonedOperation { event: None, memory }));
                status.error(name, sequence)
            }
        }
    }

    /// Compares a collective with that of the others, on a thread of its own, and breaks the group
    /// if they differ. The returned flag is set once they agree.
    fn compare(&self, sequence: u64, ours: Fingerprint, deadline: Instant) -> Arc<AtomicBool> {
        let compared = Arc::new(AtomicBool::new(false));
        let (group, done, progress) = (self.group.clone(), compared.clone(), self.progress);
        let compare = move || match group.status.compare_with_all(sequence, ours, deadline) {
            Ok(None) => done.store(true, Ordering::SeqCst),
            Ok(Some(mismatch)) => progress.break_group(&group, mismatch, FoundBy::ThisRank),
            // The operation's own deadline says the rest.
            Err(error) => tracing::debug!(%error, "cannot compare operations through the store"),
        };
        let thread = std::thread::Builder::new().name("polyrank-compare".to_owned());
        if let Err(error) = thread.spawn(compare) {
            tracing::warn!(%error, "no thread to compare operations: they are not");
            compared.store(true, Ordering::SeqCst);
        }
        compared
    }

    fn message(&self, direction: Direction, transfer: &Transfer) -> Result<u32> {
        let name = name_of(direction);
        self.check(name)?;
        let unsupported = |operation: &str| Error::Unsupported {
            who: "the nccl backend".into(),
            operation: operation.into(),
        };
        if transfer.tag != 0 {
            return Err(unsupported("messages with tags"));
        }
        transfer.peer.ok_or_else(|| unsupported("receiving from any rank"))
    }

    /// Leaves the group: what is in flight after the limit fails on all ranks.
    ///
    /// # Errors
    /// That ranks disagree on what they ran, if that was not known.
    fn leave(&self, leaving: Leaving) -> Result<()> {
        if self.check_process().is_err() {
            return Ok(());
        }
        if !self.progress.wait_idle(&self.group, Instant::now() + leaving.limit) {
            self.progress.break_group(&self.group, self.left(), FoundBy::ThisRank);
        }
        let breaks = |abort, found_by| self.progress.break_group(&self.group, abort, found_by);
        // The device moves what was enqueued.
        let compared = self.group.status.compare_before_leaving(leaving, &breaks, &|| ());
        self.group.leave();
        compared
    }

    /// The reason why nothing can be done in a group that this rank left.
    fn left(&self) -> Abort {
        Abort::User { rank: self.ranks.0, why: "the process group was destroyed".to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.issuing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for NcclBackend {
    fn name(&self) -> &str {
        "nccl"
    }

    fn capabilities(&self) -> Capabilities {
        let mismatches = Mismatches::at(self.debug_level);
        Capabilities { mismatches, ..super::capabilities() }
    }

    fn collective(&self, call: Call, options: IssueOptions) -> Result<IssuedOperation> {
        let mut issued = self.together(vec![call], options)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn together(
        &self,
        mut calls: Vec<Call>,
        options: IssueOptions,
    ) -> Result<Vec<IssuedOperation>> {
        let Some(first) = calls.first() else { return Ok(Vec::new()) };
        self.check(first.name)?;
        calls.iter().try_for_each(super::reductions::check)?;
        let name = first.name;
        let regions = calls.iter().flat_map(|call| call.input.iter().chain(&call.output));
        let devices: Vec<OnDevice> = regions.filter_map(Region::device).collect();
        let watch = AbortWatch::new(&self.group.status);
        let limit = WaitLimit { until: options.deadline, watch: &watch };
        let issuing = self.lock();
        let issued = self.prepare(name, &devices, limit).and_then(|ready| {
            let items = calls.iter_mut().map(|call| self.item(call)).collect();
            self.enqueue(ready, items, limit, |together, on| {
                calls.iter().try_for_each(|call| together.add(on, call))
            })
        });
        drop(issuing);
        self.outcome(name, issued, limit)
    }

    fn send(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        let mut issued = self.messages(vec![(Direction::Send, transfer)], options)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn recv(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        let mut issued = self.messages(vec![(Direction::Receive, transfer)], options)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn messages(
        &self,
        messages: Vec<(Direction, Transfer)>,
        options: IssueOptions,
    ) -> Result<Vec<IssuedOperation>> {
        let peers = messages.iter().map(|(direction, it)| self.message(*direction, it));
        let peers = peers.collect::<Result<Vec<u32>>>()?;
        let Some((first, _)) = messages.first() else { return Ok(Vec::new()) };
        let name = name_of(*first);
        super::own_messages::check_own(&messages, self.group.status.rank())?;
        let devices = messages.iter().filter_map(|(_, transfer)| transfer.memory.device());
        let devices: Vec<OnDevice> = devices.collect();
        let watch = AbortWatch::new(&self.group.status);
        let limit = WaitLimit { until: options.deadline, watch: &watch };
        let mut parts = Vec::with_capacity(messages.len());
        for ((direction, transfer), peer) in messages.iter().zip(peers) {
            parts.push((*direction, transfer.memory.clone(), peer));
        }
        let issuing = self.lock();
        let issued = self.prepare(name, &devices, limit).and_then(|ready| {
            let items = messages.into_iter().map(|(direction, transfer)| Item {
                name: name_of(direction),
                sequence: self.group.status.next_message(),
                is_collective: false,
                fingerprint: None,
                regions: vec![transfer.memory],
                finish: transfer.finish,
            });
            self.enqueue(ready, items.collect(), limit, |together, _| {
                for (direction, memory, peer) in &parts {
                    match direction {
                        Direction::Send => together.send(memory, *peer),
                        Direction::Receive => together.recv(memory, *peer),
                    }
                }
                Ok(())
            })
        });
        drop(issuing);
        self.outcome(name, issued, limit)
    }

    fn order(&self, completion: &Completion, waiter: &[OnDevice]) -> Option<Result<()>> {
        match self.check_process() {
            Ok(()) => self.progress.order(completion, waiter),
            Err(error) => Some(Err(error)),
        }
    }

    fn split_off(&self, request: SplitRequest<'_>, until: Instant) -> Result<Option<AnyShare>> {
        let SplitRequest { color, key, options } = request;
        self.check("split_group")?;
        let Some(communicator) = self.group.communicator.get() else { return Ok(None) };
        let watch = AbortWatch::new(&self.group.status);
        let limit = WaitLimit { until, watch: &watch };
        let issuing = self.lock();
        let chosen = options.and_then(BackendOptions::get).unwrap_or(&self.options);
        let split = communicator.split(color, key, chosen, limit);
        drop(issuing);
        match split {
            Ok(share) => Ok(Some(Box::new(share))),
            Err(error @ Error::InvalidArgument { .. }) => Err(error),
            Err(error) => {
                let message = "not all ranks of the group split it: where it is bound to devices, \
                               all of them call split_group, members or not"
                    .to_owned();
                let refused = match Instant::now() >= until {
                    true => IssueError::Meeting(timed_out(self.ranks.0, Vec::new(), message)),
                    false => IssueError::Split(error),
                };
                Err(self.refuse("split_group", refused, limit))
            }
        }
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        if completion.is_done() {
            return true;
        }
        if self.process != clock::process_id() {
            completion.complete(self.check("wait"));
            return true;
        }
        self.progress.wait(completion, until)
    }

    fn is_broken(&self) -> bool {
        self.group.status.is_broken()
    }

    fn abort(&self, why: &str) {
        if self.process == clock::process_id() {
            let abort = Abort::User { rank: self.ranks.0, why: why.into() };
            self.progress.break_group(&self.group, abort, FoundBy::ThisRank);
        }
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        let left = self.leave(leaving);
        if self.process == clock::process_id() {
            // Nobody may end the process while the library works in it.
            self.group.wait_aborted(Instant::now() + ABORT_LIMIT);
        }
        left
    }

    fn open_comparison(&self) -> Option<OpenComparison> {
        self.group.status.open_comparison()
    }
}

impl NcclBackend {
    fn item(&self, call: &mut Call) -> Item {
        let fingerprint = call.fingerprint(0);
        Item {
            name: call.name,
            sequence: self.group.status.next_collective(fingerprint),
            is_collective: true,
            fingerprint: Some(fingerprint),
            regions: call.input.iter().chain(&call.output).cloned().collect(),
            finish: call.finish.take(),
        }
    }
}

impl Drop for NcclBackend {
    fn drop(&mut self) {
        let is_here = self.check_process().is_ok();
        match self.group.in_flight.load(Ordering::SeqCst) {
            // Somebody's stream may come after what was enqueued.
            1.. if is_here && !self.is_broken() => {
                self.progress.leave_when_idle(self.group.clone());
            }
            // Nobody is left who could be told of a disagreement.
            _ => drop(self.leave(Leaving::last(Duration::ZERO))),
        }
    }
}

fn name_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "send",
        Direction::Receive => "recv",
    }
}

fn deviceless(name: &str) -> Error {
    let message = format!(
        "{name}: no device is known for a call without tensors. Bind the group to one \
         (device='cuda:0'), or call something with a tensor first"
    );
    Error::InvalidArgument { message }
}

fn unreachable_state() -> Error {
    Error::InvalidGroup { message: "the group over NCCL lost its communicator".into() }
}
