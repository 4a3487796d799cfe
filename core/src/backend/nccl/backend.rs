//! The [`Backend`] of one group, and how its ranks come to a communicator. Knows when to ask which
//! room of this folder; each of them knows how.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::collectives::Calls;
use super::communicator::{Communicator, Share, new_id};
use super::library::Found;
use super::options::NcclOptions;
use super::progress::{Progress, progress};
use super::running::{Group, Running};
use crate::backend::bulletin::{Bulletin, Found as FoundBy};
use crate::backend::detail::{Detail, detail};
use crate::backend::{
    Backend, Call, Capabilities, Direction, Issued, Mismatches, Share as AnyShare, Transfer,
    Waiting,
};
use crate::clock::{self, Instant};
use crate::executor::{Completion, Outcome};
use crate::store::Store;
use crate::tensor::OnDevice;
use crate::tensor::cuda::{Event, Gpu};
use crate::transport::host;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;
use crate::{Error, Region, Result};

/// Who takes part in a group, where they meet, and what was chosen.
pub(crate) struct Meeting<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) ranks: (u32, u32),
    pub(crate) name: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) options: NcclOptions,
    /// The device of this rank, if it is known from the start. Then the ranks meet at once.
    pub(crate) device: Option<u32>,
    /// What was split off the group from which this one comes.
    pub(crate) share: Option<AnyShare>,
}

/// One group of ranks over NCCL.
struct NcclBackend {
    found: &'static Found,
    group: Arc<Group>,
    store: Arc<dyn Store>,
    ranks: (u32, u32),
    /// Limit of meeting the others when the first operation comes.
    timeout: Duration,
    options: NcclOptions,
    detail: Detail,
    process: u32,
    /// Operations are enqueued one after the other.
    issuing: Mutex<()>,
    progress: &'static Progress,
}

/// Joins a group whose ranks each have a device of their own.
///
/// # Errors
/// [`Error::BackendUnavailable`]; with a device, those of [`NcclBackend::communicator`].
pub(super) fn connect(found: &'static Found, meeting: Meeting<'_>) -> Result<Arc<dyn Backend>> {
    let Meeting { store, ranks, name, timeout, options, device, share } = meeting;
    let group = Group {
        bulletin: Bulletin::join("nccl", name, ranks, store)?,
        communicator: OnceLock::new(),
        in_flight: AtomicUsize::new(0),
        is_failing: AtomicBool::new(false),
    };
    let backend = NcclBackend {
        found,
        group: Arc::new(group),
        store: store.clone(),
        ranks,
        timeout,
        options,
        detail: detail()?,
        process: clock::process_id(),
        issuing: Mutex::new(()),
        progress: progress(),
    };
    let until = clock::after(timeout);
    let share = share.and_then(|share| share.downcast::<Share>().ok());
    let joined = share.map(|share| share.join(ranks, &backend.options, until)).transpose()?;
    if let Some(joined) = joined.flatten() {
        let _ = backend.group.communicator.set(Arc::new(joined));
    } else if let Some(index) = device {
        backend.communicator(index, until)?;
    }
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

impl NcclBackend {
    /// The group's communicator, on the device with this index. The first call meets the other
    /// ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if two ranks have one device, or this one a second;
    /// [`Error::RendezvousTimeout`] if not all come; those of the library.
    fn communicator(&self, index: u32, until: Instant) -> Result<&Arc<Communicator>> {
        let known = &self.group.communicator;
        if known.get().is_none() {
            let gpu = Gpu::open(index)?;
            let met = self.meet(&gpu, until).inspect_err(|error| {
                let abort = Abort::Failed { rank: self.ranks.0, why: error.to_string() };
                self.progress.break_group(&self.group, abort, FoundBy::Here);
            })?;
            let _ = known.set(Arc::new(met));
        }
        match known.get() {
            Some(communicator) if communicator.gpu.index() == index => Ok(communicator),
            Some(communicator) => Err(Error::InvalidArgument {
                message: format!(
                    "this rank uses cuda:{} in the group, and a tensor is on cuda:{index}: a rank \
                     has one device in a group over NCCL",
                    communicator.gpu.index()
                ),
            }),
            None => Err(unreachable_state()),
        }
    }

    fn meet(&self, gpu: &Arc<Gpu>, until: Instant) -> Result<Communicator> {
        // A connection of its own: the user's may be waiting.
        let store = self.store.clone_store()?;
        self.publish_device(&*store, gpu, until)?;
        let id = self.exchange_id(&*store, until)?;
        Communicator::join(self.found, gpu, &id, self.ranks, &self.options, until)
    }

    /// Tells the others which device this rank has, and hears of theirs: NCCL hangs, or fails
    /// without saying why, where two ranks have one.
    fn publish_device(&self, store: &dyn Store, gpu: &Gpu, until: Instant) -> Result<()> {
        let (rank, size) = self.ranks;
        let ours = format!("{} {}", gpu.bus_id()?, host::identity());
        let key = |rank: u32| format!("nccl/device/{rank}");
        store.set(&key(rank), ours.as_bytes())?;
        let keys: Vec<String> = (0..size).map(key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Err(error) = store.wait(&keys, Some(left(until))) {
            let came = |key: &&str| store.check(&[*key]).unwrap_or(false);
            let missing = (0..size).filter(|&rank| !came(&keys[rank as usize]));
            let missing: Vec<u32> = missing.collect();
            return Err(match missing.is_empty() {
                true => error,
                false => Error::RendezvousTimeout {
                    message: format!(
                        "ranks {missing:?} did not come to the NCCL communicator: every rank of \
                         the group takes part in its first call on CUDA tensors"
                    ),
                },
            });
        }
        let devices = store.multi_get(&keys)?;
        for (one, device) in (0..).zip(&devices) {
            let same = (one + 1..).zip(&devices[one as usize + 1..]).find(|it| it.1 == device);
            let Some((other, _)) = same else { continue };
            let device = String::from_utf8_lossy(device);
            let bus = device.split(' ').next().unwrap_or_default();
            return Err(Error::InvalidArgument {
                message: format!(
                    "ranks {one} and {other} both use the CUDA device at {bus} of one host: over \
                     NCCL, each rank needs a device of its own. Choose it by the local rank \
                     (LOCAL_RANK)"
                ),
            });
        }
        Ok(())
    }

    fn exchange_id(&self, store: &dyn Store, until: Instant) -> Result<Vec<u8>> {
        const KEY: &str = "nccl/id";
        if self.ranks.0 == 0 {
            let id = new_id(self.found)?;
            store.set(KEY, &id)?;
            return Ok(id);
        }
        store.wait(&[KEY], Some(left(until)))?;
        store.get(KEY)
    }

    fn check(&self, name: &str) -> Result<()> {
        if self.process != clock::process_id() {
            let message = "NCCL belongs to the parent process, a forked child cannot use it";
            return Err(Error::InvalidGroup { message: message.into() });
        }
        self.group.bulletin.check(name)
    }

    /// Enqueues what `add` adds, and takes care of it until it is over.
    fn issue(
        &self,
        items: Vec<Item>,
        deadline: Instant,
        add: impl FnOnce(&mut Calls, &Communicator) -> Result<()>,
    ) -> Result<Vec<Issued>> {
        let devices = || items.iter().flat_map(|item| &item.regions).filter_map(Region::device);
        let index = match (devices().next(), self.group.communicator.get()) {
            (Some(device), _) => device.index,
            (None, Some(communicator)) => communicator.gpu.index(),
            (None, None) => return Err(self.deviceless(items.first().map_or("", |it| it.name))),
        };
        let meet_by = clock::after(self.timeout).min(deadline);
        let communicator = self.communicator(index, meet_by)?.clone();
        let mut streams: Vec<usize> = devices().map(|OnDevice { stream, .. }| stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let own = communicator.stream.raw();
        for stream in &streams {
            Event::now(&communicator.gpu, *stream)?.comes_before(own)?;
        }
        let mut calls = Calls::default();
        let enqueued = add(&mut calls, &communicator)
            .and_then(|()| calls.enqueue(&communicator, deadline))
            .and_then(|()| Event::now(&communicator.gpu, own));
        let event = match enqueued {
            Ok(event) => Arc::new(event),
            // Nothing was enqueued, here and on all other ranks alike.
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => return Err(self.fail(items.first().map_or("", |it| it.name), &error)),
        };
        let mut scratch = std::mem::take(&mut calls.scratch);
        let mut issued = Vec::with_capacity(items.len());
        for item in items {
            let completion = Arc::new(Completion::new());
            let compared = item.fingerprint.filter(|_| self.detail == Detail::Full);
            let compared = compared.map(|it| self.compare(item.sequence, it, deadline));
            self.progress.add(Running {
                group: self.group.clone(),
                name: item.name,
                sequence: item.sequence,
                is_collective: item.is_collective,
                event: event.clone(),
                since: Instant::now(),
                deadline,
                kept: (item.regions, std::mem::take(&mut scratch)),
                streams: if self.options.blocking_wait { Vec::new() } else { streams.clone() },
                finish: item.finish,
                completion: completion.clone(),
                compared,
            });
            issued.push(Issued { sequence: item.sequence, completion });
        }
        Ok(issued)
    }

    /// Breaks the group over what the library or the driver says; the error of the operation.
    fn fail(&self, name: &str, error: &Error) -> Error {
        let (abort, found) = self.group.bulletin.who_failed(&error.to_string());
        self.progress.break_group(&self.group, abort, found);
        self.group.bulletin.check(name).err().unwrap_or_else(|| error.clone())
    }

    /// Has a collective compared with that of the others, on a thread of its own, and the group
    /// broken if they differ. What is returned is set when all is well.
    fn compare(&self, sequence: u64, ours: Fingerprint, deadline: Instant) -> Arc<AtomicBool> {
        let compared = Arc::new(AtomicBool::new(false));
        let (group, done, progress) = (self.group.clone(), compared.clone(), self.progress);
        let compare = move || match group.bulletin.compare_with_all(sequence, ours, deadline) {
            Ok(None) => done.store(true, Ordering::SeqCst),
            Ok(Some(mismatch)) => progress.break_group(&group, mismatch, FoundBy::Here),
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

    fn deviceless(&self, name: &str) -> Error {
        let message = format!(
            "{name}: no device is known for a call without tensors. Bind the group to one \
             (device='cuda:0'), or call something with a tensor first"
        );
        Error::InvalidArgument { message }
    }

    fn message(&self, direction: Direction, transfer: &Transfer) -> Result<u32> {
        let name = match direction {
            Direction::Send => "send",
            Direction::Receive => "recv",
        };
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

    /// Leaves the group: what is in flight after `limit` fails on all ranks.
    fn leave(&self, limit: Duration) {
        if self.process != clock::process_id() {
            return;
        }
        if !self.progress.wait_idle(&self.group, Instant::now() + limit) {
            let why = "the process group was destroyed".to_owned();
            let abort = Abort::User { rank: self.ranks.0, why };
            self.progress.break_group(&self.group, abort, FoundBy::Here);
        }
        if self.group.bulletin.leave()
            && let Some(communicator) = self.group.communicator.get()
        {
            communicator.leave();
        }
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
        let mismatches = match self.detail {
            Detail::Full => Mismatches::Always,
            Detail::Little => Mismatches::WhenStalled,
        };
        Capabilities { mismatches, ..super::capabilities() }
    }

    fn collective(&self, call: Call, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        let mut issued = self.together(vec![call], deadline, waiting)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn together(&self, mut calls: Vec<Call>, deadline: Instant, _: Waiting) -> Result<Vec<Issued>> {
        let Some(first) = calls.first() else { return Ok(Vec::new()) };
        self.check(first.name)?;
        for call in calls.iter().filter(|call| call.collective.facts().reduces) {
            super::reductions::reduction(call.name, call.reduce_op, call.dtype)?;
        }
        let _issuing = self.lock();
        let items = calls.iter_mut().map(|call| self.item(call)).collect();
        self.issue(items, deadline, |together, on| {
            calls.iter().try_for_each(|call| together.add(on, call))
        })
    }

    fn send(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        let mut issued = self.messages(vec![(Direction::Send, transfer)], deadline, waiting)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn recv(&self, transfer: Transfer, deadline: Instant, waiting: Waiting) -> Result<Issued> {
        let mut issued = self.messages(vec![(Direction::Receive, transfer)], deadline, waiting)?;
        issued.pop().ok_or_else(unreachable_state)
    }

    fn messages(
        &self,
        messages: Vec<(Direction, Transfer)>,
        deadline: Instant,
        _: Waiting,
    ) -> Result<Vec<Issued>> {
        let peers = messages.iter().map(|(direction, it)| self.message(*direction, it));
        let peers = peers.collect::<Result<Vec<u32>>>()?;
        let _issuing = self.lock();
        let mut parts = Vec::with_capacity(messages.len());
        let mut items = Vec::with_capacity(messages.len());
        for ((direction, transfer), peer) in messages.into_iter().zip(peers) {
            parts.push((direction, transfer.memory.clone(), peer));
            items.push(Item {
                name: if direction == Direction::Send { "send" } else { "recv" },
                sequence: self.group.bulletin.next_message(),
                is_collective: false,
                fingerprint: None,
                regions: vec![transfer.memory],
                finish: transfer.finish,
            });
        }
        self.issue(items, deadline, |together, _| {
            for (direction, memory, peer) in &parts {
                match direction {
                    Direction::Send => together.send(memory, *peer),
                    Direction::Receive => together.recv(memory, *peer),
                }
            }
            Ok(())
        })
    }

    fn order(&self, completion: &Completion) -> Option<Result<()>> {
        self.progress.order(completion)
    }

    fn split_off(&self, color: Option<u32>, key: u32, until: Instant) -> Result<Option<AnyShare>> {
        self.check("split_group")?;
        let Some(communicator) = self.group.communicator.get() else { return Ok(None) };
        let _issuing = self.lock();
        let share = communicator.split(color, key, &self.options, until)?;
        Ok(Some(Box::new(share)))
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        if completion.is_done() {
            return true;
        }
        if self.process != clock::process_id() {
            completion.settle(self.check("wait"));
            return true;
        }
        self.progress.wait(completion, until)
    }

    fn is_broken(&self) -> bool {
        self.group.bulletin.is_broken()
    }

    fn abort(&self, why: &str) {
        if self.process == clock::process_id() {
            let abort = Abort::User { rank: self.ranks.0, why: why.into() };
            self.progress.break_group(&self.group, abort, FoundBy::Here);
        }
    }

    fn shutdown(&self, limit: Duration) {
        self.leave(limit);
    }

    fn shutdown_async(&self, limit: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move { self.leave(limit) })
    }
}

impl NcclBackend {
    fn item(&self, call: &mut Call) -> Item {
        let fingerprint = call.fingerprint(0);
        Item {
            name: call.name,
            sequence: self.group.bulletin.next_collective(fingerprint),
            is_collective: true,
            fingerprint: Some(fingerprint),
            regions: call.input.iter().chain(&call.output).cloned().collect(),
            finish: call.finish.take(),
        }
    }
}

impl Drop for NcclBackend {
    fn drop(&mut self) {
        self.leave(Duration::ZERO);
    }
}

fn left(until: Instant) -> Duration {
    // Zero would be no limit.
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn unreachable_state() -> Error {
    Error::InvalidGroup { message: "the group over NCCL lost its communicator".into() }
}
