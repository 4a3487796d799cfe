//! The backend that runs schedules over a transport of ours. Knows no process group.

mod kept;
mod messages;
mod shutdown_driver;

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use super::call_parts::{equal_blocks, executed, executed_collective, own_part};
use super::departure::{Departure, OpenComparison};
use super::discovery::Gathering;
use super::kept_prices::KeptPrices;
use super::registration::{Bootstrap, ConnectFuture};
use super::stall::{AGAIN, StallInspector};
use super::windows::Mappings;
use super::{
    Attempt, Backend, Call, CallFacts, Capabilities, EndFuture, IssueOptions, IssuedOperation,
    Leaving, LentMemory, PersistentBuffers, ProbeRequest, SmallCall, Transfer, Windows, discovery,
};
use crate::blocking::{WaitMode, block_on};
use crate::clock::{CAN_BLOCK, Instant};
use crate::completion::{Completion, error_of};
use crate::env::variable::{self, Variable};
use crate::executor::{
    Bindings, Driver, Envelope, Executor, GroupIdentity, Operation, OwnPart, Probe, SPIN_LIMITS,
    SlotProgress, SmallAttempt, SmallCollective, SmallOperation, TELLING_LIMIT, suits_direct,
};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::schedule::cache::{Cache, Key};
use crate::schedule::select::{CallSize, Overrides, Selector};
use crate::schedule::{Place, Schedule};
use crate::spin::SpinPolicy;
use crate::transport::Transport;
use crate::transport::board::board_bytes;
use crate::wire::abort::Abort;
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint};

/// Runs the operations of one group as schedules, over what leads from rank to rank: `tcp` and
/// `websocket` are two names of it.
pub struct ScheduledBackend {
    backend: &'static str,
    group: String,
    rank: u32,
    pub(super) size: u32,
    pub(super) driver: Arc<Driver>,
    /// How many windows were opened.
    pub(super) windows_opened: AtomicU32,
    /// How many calls on windows were issued.
    pub(super) window_calls: AtomicU64,
    /// What is mapped of the others' memory.
    pub(super) mappings: Mappings,
    /// Whether small operations go over a board, as on all ranks of the group.
    has_board: bool,
    /// Whether every rank can read the memory of every other.
    reads_memory: bool,
    /// What stands for the schedule of operations over the board.
    no_steps: Arc<Schedule>,
    issuing: Mutex<IssueState>,
    selector: Selector,
    inspector: Arc<StallInspector>,
    /// Where what copies cost is kept when the group ends, if this rank does that.
    kept_prices: Mutex<Option<KeptPrices>>,
    /// The comparison that was open when the group was left.
    open_comparison: OnceLock<OpenComparison>,
}

/// What must go together: numbers are given in the order in which operations are issued.
struct IssueState {
    collectives: u64,
    messages: u64,
    schedules: Cache,
}

/// What such backends can do: everything.
pub(super) fn capabilities() -> Capabilities {
    Capabilities::complete().with_custom_reductions().with_compression()
}

/// Joins a group, when all its ranks are there.
pub(super) fn connect(bootstrap: Bootstrap<'_>) -> ConnectFuture<'_> {
    Box::pin(async move {
        let backend: Arc<dyn Backend> = Arc::new(ScheduledBackend::connect(bootstrap).await?);
        Ok(backend)
    })
}

/// Whether this build has sockets; in a browser, the same schedules run over WebSockets.
///
/// # Errors
/// [`Error::BackendUnavailable`].
pub(super) fn has_sockets() -> Result<()> {
    if cfg!(any(feature = "tcp", target_family = "wasm")) {
        return Ok(());
    }
    let why = "polyrank was built without the feature `tcp`".to_owned();
    Err(Error::BackendUnavailable { backend: "tcp".into(), why })
}

impl ScheduledBackend {
    /// Joins a group, when all its ranks are there. It keeps the store as a connection of its own.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] naming the ranks that did not come in time.
    async fn connect(bootstrap: Bootstrap<'_>) -> Result<ScheduledBackend> {
        let Bootstrap { backend, store, rank, size, group: name, generation, timeout, .. } =
            bootstrap;
        let overrides = match overrides() {
            Ok(overrides) => overrides,
            Err(error) => {
                return Err(discovery::refuse(
                    store,
                    bootstrap.meeting,
                    (rank, size),
                    error,
                    timeout,
                )
                .await);
            }
        };
        let meeting = bootstrap.meeting;
        let observer = bootstrap.observer;
        let gathering =
            Gathering { store, name: meeting, rank, size, generation, timeout, observer };
        let discovery = discovery::discover(gathering).await?;
        let spin = SpinPolicy::for_host(discovery.ranks_on_host, SPIN_LIMITS);
        let mut transport: Box<dyn Transport> = discovery.transport;
        transport.begin_with(&discovery.known_prices);
        let group = GroupIdentity { name: name.into(), generation };
        let mut executor = Executor::new(transport, group, Instant::now())
            .with_ranks_on_host(discovery.ranks_on_host);
        if let Some(board) = discovery.board {
            executor = executor.with_board(board);
        }
        executor = executor.with_known_prices(&discovery.known_prices);
        let selector = Selector::new(&discovery.topology, &discovery.link_costs, overrides);
        #[cfg(feature = "tcp")]
        super::announcement::tell_choices(name, rank, &selector, &discovery.link_costs);
        let schedules = Cache::new(Arc::new(discovery.topology));
        let issuing = IssueState { collectives: 0, messages: 0, schedules };
        let (has_board, reads_memory) = (executor.has_board(), executor.reads_memory());
        let driver = Driver::new(executor, spin)?;
        let store = store.shared_connection().unwrap_or_else(|| store.clone());
        let inspector = StallInspector::install(&driver, &store, (rank, size), discovery.sessions);
        Ok(ScheduledBackend {
            backend,
            group: name.to_owned(),
            rank,
            size,
            driver,
            windows_opened: AtomicU32::new(0),
            window_calls: AtomicU64::new(0),
            mappings: Mappings::default(),
            has_board,
            reads_memory,
            no_steps: Arc::default(),
            issuing: Mutex::new(issuing),
            selector,
            inspector,
            kept_prices: Mutex::new(discovery.kept_prices),
            open_comparison: OnceLock::new(),
        })
    }
}

impl Backend for ScheduledBackend {
    fn name(&self) -> &str {
        self.backend
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn collective(&self, call: Call, options: IssueOptions) -> Result<IssuedOperation> {
        let mut issuing = self.issuing();
        let (issued, deferred) = self.issue(&mut issuing, call, None, options)?;
        // Callbacks may issue operations.
        drop(issuing);
        drop(deferred);
        Ok(issued)
    }

    fn in_turn(
        &self,
        [first, second]: [Call; 2],
        options: IssueOptions,
    ) -> Result<[IssuedOperation; 2]> {
        let mut issuing = self.issuing();
        let (first, deferred) = self.issue(&mut issuing, first, None, options)?;
        let second = self.issue(&mut issuing, second, Some(first.sequence), options);
        // Callbacks may issue operations.
        drop(issuing);
        drop(deferred);
        let (second, deferred) = second?;
        drop(deferred);
        Ok([first, second])
    }

    fn try_small(
        &self,
        call: &SmallCall,
        memory: &mut LentMemory<'_>,
        meanwhile: &mut dyn FnMut(u64),
    ) -> Attempt<'_> {
        let SmallCall { agreed, waiting } = *call;
        let CallFacts { collective, dtype, reduce_op, root, .. } = agreed;
        if !self.is_small(collective, call.shared_bytes) {
            return Attempt::Declined;
        }
        let known = CallSize { bytes: call.shared_bytes, equal_blocks: false };
        let fingerprint = call.fingerprint(self.algorithm(collective, known, true) as u8);
        let (given, _) = memory.lengths();
        if given > board_bytes(self.size) {
            return Attempt::Declined;
        }
        let small = self.small(collective, dtype, reduce_op, root);
        let Some(mut issuing) = self.try_issuing() else { return Attempt::Declined };
        let schedule = match fingerprint.algorithm {
            BOARD_ALGORITHM => None,
            _ => match self.schedule(&mut issuing, &fingerprint) {
                Some(schedule) => Some(schedule),
                None => return Attempt::Declined,
            },
        };
        let sequence = issuing.collectives + 1;
        let operation = SmallOperation { sequence, fingerprint, small };
        let (attempt, deferred) = self.driver.try_small(&operation, memory, waiting, meanwhile);
        if attempt != SmallAttempt::Declined {
            issuing.collectives = sequence;
        }
        if attempt != SmallAttempt::Shown {
            // Callbacks may issue operations.
            drop(issuing);
            drop(deferred);
            return match attempt {
                SmallAttempt::Done => Attempt::Done(sequence),
                SmallAttempt::Declined | SmallAttempt::Shown => Attempt::Declined,
            };
        }
        Attempt::Started(Box::new(move |buffers| {
            let PersistentBuffers { deadline, input, output, finish } = buffers;
            let completion = Arc::new(Completion::new());
            let operation = Operation {
                sequence,
                fingerprint,
                schedule: schedule.unwrap_or_else(|| self.no_steps.clone()),
                slot_progress: Some(SlotProgress { small, part: OwnPart::Data, shown: true }),
                bindings: Bindings { input, output },
                dtype,
                reduce_op: small.reduce_op,
                after: None,
                deadline,
                finish,
                completion: completion.clone(),
            };
            let later = self.driver.submit(operation, waiting);
            drop(issuing);
            drop((deferred, later));
            IssuedOperation { sequence, completion }
        }))
    }

    fn send(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.message(transfer, options.deadline, |it| self.driver.send(it, options.waiting))
    }

    fn recv(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation> {
        self.message(transfer, options.deadline, |it| self.driver.recv(it, options.waiting))
    }

    fn probe(&self, probe: ProbeRequest, options: IssueOptions) -> Result<IssuedOperation> {
        let IssueOptions { deadline, waiting } = options;
        let look = |completion| Probe { request: probe, deadline, completion };
        Ok(self.numbered(|completion| self.driver.probe(look(completion), waiting)))
    }

    fn send_short(&self, to: Envelope, payload: &[u8]) -> bool {
        let Some(mut issuing) = self.try_issuing() else { return false };
        let (sent, deferred) = self.driver.send_short(to, payload);
        issuing.messages += u64::from(sent);
        // Callbacks may issue operations.
        drop(issuing);
        drop(deferred);
        sent
    }

    fn receive_short(&self, from: Envelope, memory: &mut [u8]) -> Option<u32> {
        let mut issuing = self.try_issuing()?;
        let (sender, deferred) = self.driver.receive_short(from, memory);
        issuing.messages += u64::from(sender.is_some());
        // Callbacks may issue operations.
        drop(issuing);
        drop(deferred);
        sender
    }

    #[cfg(feature = "tcp")]
    fn disconnect(&self, peer: u32) -> bool {
        self.driver.disconnect(peer)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        Some(self)
    }

    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        let glance = until.is_some_and(|until| until <= Instant::now());
        loop {
            let slice = Instant::now() + AGAIN;
            let last = until.is_some_and(|until| until <= slice);
            let until = if last { until } else { Some(slice) };
            if self.driver.wait(completion, until) {
                return true;
            }
            // Also at the end of a short wait: who waits in slices stalls all the same. A look at
            // whether it is done does not wait for the store.
            if !glance {
                self.inspector.inspect();
            }
            if last || !CAN_BLOCK {
                return completion.is_done();
            }
        }
    }

    fn poll_for(&self, completion: &Completion, limit: Duration) -> bool {
        self.driver.poll_for(completion, limit)
    }

    fn poll_while_moving(
        &self,
        completion: &Completion,
        idle_limit: Duration,
        limit: Duration,
    ) -> bool {
        self.driver.poll_while_moving(completion, idle_limit, limit)
    }

    fn takes_loans(&self) -> bool {
        CAN_BLOCK
    }

    fn note_moved(&self, sequence: u64) {
        self.driver.note_moved(sequence);
    }

    fn hasten(&self, completion: &Completion) {
        self.driver.hasten(completion);
    }

    fn await_failure(&self, peers: &[u32]) -> Option<Arc<Completion>> {
        Some(self.driver.await_failure(peers))
    }

    fn set_failure_hook(&self, hook: Arc<dyn Fn() + Send + Sync>) -> bool {
        let failure = Completion::new();
        failure.on_end(move |_| hook());
        self.driver.tell_first_of_failure(Arc::new(failure));
        true
    }

    fn has_left(&self, rank: u32) -> bool {
        self.driver.has_left(rank)
    }

    fn has_died(&self, rank: u32) -> bool {
        self.driver.has_died(rank)
    }

    #[cfg(feature = "tcp")]
    fn waits(&self) -> crate::recorder::Waits {
        self.driver.waits()
    }

    fn failure(&self) -> Option<Error> {
        let abort = self.driver.failure().or_else(|| self.driver.retirement())?;
        Some(error_of(&abort, &self.group, "get_error", 0))
    }

    fn is_broken(&self) -> bool {
        self.driver.is_broken()
    }

    fn abort(&self, why: &str) {
        self.driver.break_with(Abort::User { rank: self.rank, why: why.into() });
    }

    fn abort_from(&self, sequence: Option<u64>, why: &str) {
        self.driver.break_from(sequence, Abort::User { rank: self.rank, why: why.into() });
    }

    fn retire(self: Arc<Self>) -> EndFuture {
        // Those that are in flight fail here and now; without any, the others' that need nothing
        // more of this rank may still end well.
        self.mappings.detach();
        let told = self.driver.retire(Instant::now() + TELLING_LIMIT);
        Box::pin(async move {
            match WaitMode::current() {
                WaitMode::Block => drop(self.driver.wait(&told, None)),
                WaitMode::Await => told.ended().await,
            }
            self.keep_prices();
            // What nobody has asked for went with the members.
            let _ = self.end();
            Ok(())
        })
    }

    fn shutdown(&self, leaving: Leaving) -> Result<()> {
        // Ranks that disagree on what is in flight hear that, not that one of them has left.
        self.wait(&self.driver.idle(Instant::now() + leaving.limit), None);
        self.end_late(leaving);
        let compare = async {
            self.compare(leaving).await;
            Ok(())
        };
        // A store that cannot block does not answer here.
        let _ = block_on(compare);
        self.mappings.detach();
        self.driver.wait(&self.driver.leave(Instant::now() + TELLING_LIMIT), None);
        self.end()
    }

    fn shutdown_async(self: Arc<Self>, leaving: Leaving) -> EndFuture {
        Box::pin(async move {
            self.driver.idle(Instant::now() + leaving.limit).ended().await;
            self.end_late(leaving);
            self.compare(leaving).await;
            self.mappings.detach();
            self.driver.leave(Instant::now() + TELLING_LIMIT).ended().await;
            self.end()
        })
    }

    fn open_comparison(&self) -> Option<OpenComparison> {
        self.open_comparison.get().cloned()
    }
}

impl ScheduledBackend {
    /// Issues a collective, which begins when operation `after` has ended, if there is one.
    /// What is returned beside it is dropped without the lock.
    fn issue<'a>(
        &'a self,
        issuing: &mut IssueState,
        call: Call,
        after: Option<u64>,
        options: IssueOptions,
    ) -> Result<(IssuedOperation, impl Sized + use<'a>)> {
        let CallFacts { collective, reduce_op, root, compressed, .. } = call.agreed;
        // Compressed blocks are cut anywhere.
        let dtype = if compressed.is_some() { DType::U8 } else { call.agreed.dtype };
        let executed_as = executed_collective(collective, call.operator());
        let may_be_small = self.is_small(collective, call.shared_bytes) || self.is_direct(&call);
        let on_board = executed_as == collective && compressed.is_none() && may_be_small;
        let known = CallSize { bytes: call.shared_bytes, equal_blocks: equal_blocks(&call) };
        let part = own_part(&call, self.size);
        let fits = on_board && part == OwnPart::Data;
        let fingerprint = call.fingerprint(self.algorithm(executed_as, known, fits) as u8);
        let completion = Arc::new(Completion::new());
        let schedule = self.schedule(issuing, &fingerprint).ok_or_else(|| Error::Unsupported {
            who: format!("the {} backend", self.backend),
            operation: call.name.into(),
        })?;
        let small = self.small(collective, dtype, reduce_op, root);
        let slot_progress = on_board.then_some(SlotProgress { small, part, shown: false });
        issuing.collectives += 1;
        let sequence = issuing.collectives;
        let operation = Operation {
            sequence,
            fingerprint,
            schedule,
            slot_progress,
            bindings: Bindings { input: call.input, output: call.output },
            dtype,
            reduce_op: executed(reduce_op),
            after,
            deadline: options.deadline,
            finish: call.finish,
            completion: completion.clone(),
        };
        let deferred = self.driver.submit(operation, options.waiting);
        Ok((IssuedOperation { sequence, completion }, deferred))
    }

    /// Ends the collectives that had time to end and have not: this rank has to hear that what it
    /// issued was not done, and why.
    fn end_late(&self, leaving: Leaving) {
        if !leaving.limit.is_zero() {
            self.driver.end_late();
        }
    }

    /// Compares with the other ranks what was run, before this one leaves.
    async fn compare(&self, leaving: Leaving) {
        if self.driver.is_inherited() {
            return;
        }
        let departure = Departure {
            driver: &*self.driver,
            store: self.inspector.store(),
            backend: self.backend,
            group: &self.group,
            rank: self.rank,
            size: self.size,
        };
        if let Some(open) = departure.compare(leaving).await {
            let _ = self.open_comparison.set(open);
        }
        // A group that is left is as one that is broken.
        self.keep_prices();
    }

    /// Ends the group when all has been said, and closes everything, whatever still refers to it.
    fn end(&self) -> Result<()> {
        let untold = self.driver.untold();
        self.driver.end();
        self.inspector.close(&self.group);
        untold.map_or(Ok(()), Err)
    }

    /// Whether an operation goes over the board. All ranks decide alike.
    fn is_small(&self, collective: Collective, shared_bytes: Option<u64>) -> bool {
        self.has_board
            && SmallCollective::suits(collective, shared_bytes, board_bytes(self.size))
            && !self.selector.is_told(collective)
    }

    /// Whether an operation that does not fit the board is on it all the same, since ranks may show
    /// where their data lies. All ranks decide alike.
    fn is_direct(&self, call: &Call) -> bool {
        let CallFacts { collective, dtype, reduce_op, .. } = call.agreed;
        self.reads_memory
            && suits_direct(collective, (dtype, reduce_op), self.size)
            && call.shared_bytes.is_some()
            && !self.selector.is_told(collective)
    }

    /// The algorithm that is in the fingerprint of a call, whether it goes over the board or
    /// not; `fits` says whether this rank's data is on the board. Of an alltoall it is what is run
    /// if some rank's blocks do not fit there.
    fn algorithm(&self, collective: Collective, known: CallSize, fits: bool) -> usize {
        match fits && collective != Collective::Alltoall {
            true => usize::from(BOARD_ALGORITHM),
            false => self.selector.choose(collective, known),
        }
    }

    /// The schedule of a call; without a step where it goes over the board whatever comes.
    fn schedule(&self, issuing: &mut IssueState, call: &Fingerprint) -> Option<Arc<Schedule>> {
        if call.algorithm == BOARD_ALGORITHM {
            return Some(self.no_steps.clone());
        }
        let called = Collective::from_code(call.collective)?;
        let collective = executed_collective(called, call.reduce_op);
        let place = Place { rank: self.rank, size: self.size, root: call.root };
        issuing.schedules.get(Key { collective, algorithm: call.algorithm.into(), place })
    }

    fn small(
        &self,
        collective: Collective,
        dtype: DType,
        reduce_op: ReduceOp,
        root: u32,
    ) -> SmallCollective {
        let reduce_op = executed(reduce_op);
        SmallCollective { collective, dtype, reduce_op, root, rank: self.rank, size: self.size }
    }

    fn issuing(&self) -> MutexGuard<'_, IssueState> {
        self.issuing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`ScheduledBackend::issuing`], unless another thread has it, perhaps for longer than what
    /// is done immediately takes.
    fn try_issuing(&self) -> Option<MutexGuard<'_, IssueState>> {
        match self.issuing.try_lock() {
            Ok(issuing) => Some(issuing),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn overrides() -> Result<Overrides> {
    const VARIABLE: Variable = variable::POLYRANK_ALGORITHM;
    Overrides::parse(&VARIABLE.text().unwrap_or_default())
        .map_err(|error| Error::InvalidArgument { message: format!("{VARIABLE}: {error}") })
}
