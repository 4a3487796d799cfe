//! Who runs operations: the trait that every backend implements, and the registry of them.
//! Knows no particular backend.

use std::any::Any;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use self::backend_type::BackendType;
pub use self::capabilities::{Capabilities, CudaTensors, Mismatches};
pub use self::cuda_memory::CudaMemory;
pub use self::custom::{BackendContext, BackendFactory, FactoryFuture, register_backend};
pub use self::departure::OpenComparison;
pub(crate) use self::departure::deadline;
pub use self::options::{BackendOptions, SpecificOptions};
pub use self::windows::{WindowOperation, Windows};
use crate::blocking::unblock;
use crate::clock::Instant;
pub use crate::completion::WaitIntent;
pub use crate::completion::{Completion, Outcome};
pub use crate::executor::{
    AccessAction, AccessTarget, Envelope, ExposedMemory, Fence, Flush, FoundMessage, GoneRanks,
    GoneReason, MessageInfo, ProbeRequest, WindowAccess, closed_by,
};
pub use crate::generated::backend_options::*;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Compression};
#[cfg(feature = "tcp")]
use crate::recorder::Waits;
pub use crate::tensor::LentMemory;
use crate::tensor::{OnDevice, Region, Tensor};
use crate::transport::board::BOARD_BYTES;
use crate::wire::frame::Fingerprint;

#[cfg(feature = "tcp")]
mod announcement;
mod backend_type;
mod call_parts;
mod capabilities;
mod cuda_memory;
pub(crate) mod custom;
mod departure;
mod discovery;
#[cfg(not(target_family = "wasm"))]
pub mod fake;
#[cfg(all(unix, any(feature = "mpi", feature = "nccl")))]
#[cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "a roll call is for devices"))]
mod group_status;
mod inspect;
#[cfg(all(feature = "tcp", not(feature = "internals")))]
mod kept_prices;
#[cfg(all(feature = "tcp", feature = "internals"))]
#[doc(hidden)]
pub mod kept_prices;
#[cfg(not(feature = "tcp"))]
#[path = "kept_nowhere.rs"]
mod kept_prices;
mod link_costs;
pub(crate) mod memberless;
#[cfg(all(unix, feature = "mpi"))]
pub mod mpi;
#[cfg(all(unix, feature = "nccl"))]
pub mod nccl;
pub(crate) mod options;
pub(crate) mod registration;
pub mod registry;
pub mod scheduled;
mod stall;
pub(crate) mod windows;

/// Most bytes that a rank contributes to what [`Backend::try_small`] runs.
pub const FAST_PATH_BYTES: usize = BOARD_BYTES;

/// What all ranks know of a collective, and must agree on.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts {
    /// The collective.
    pub collective: Collective,
    /// The element type.
    pub dtype: DType,
    /// How elements are reduced. The factor of `PremulSum` is applied already, and the division of
    /// `Avg` happens at the end: a backend sums for both, unless it has them natively.
    pub reduce_op: ReduceOp,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Elements on which all ranks must agree.
    pub elements: u64,
    /// Bytes that all ranks know, on which the choice of an algorithm may depend.
    pub shared_bytes: Option<u64>,
    /// Hash of what else all ranks must agree on.
    pub detail: u64,
    /// Which part it is of an operation whose elements travel compressed, if it is one. Its blocks
    /// are bytes.
    pub compressed: Option<CompressedPart>,
}

/// A part of a collective whose elements travel compressed: one that only moves blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressedPart {
    /// The form in which elements travel.
    pub compression: Compression,
    /// Whether it spreads what ranks have reduced, instead of bringing to each what it reduces.
    pub spreads: bool,
}

impl CallFacts {
    /// Reduces elements into those of `into`, as this operation asks: `into ⊕ from`.
    pub fn reduce(&self, into: &mut [u8], from: &[u8]) {
        kernels::reduce(self.reduce_op, self.dtype, into, from, kernels::Order::IntoFirst);
    }

    /// The number of the operator, as ranks compare it: with how elements travel.
    pub(crate) fn operator(&self) -> u8 {
        let operator = self.reduce_op.code();
        self.compressed.map_or(operator, |it| it.compression.beside(operator, it.spreads))
    }

    /// What the ranks compare of it, which run it by `algorithm`.
    pub(crate) fn fingerprint(&self, algorithm: u8) -> Fingerprint {
        Fingerprint {
            collective: self.collective as u8,
            dtype: self.dtype as u8,
            reduce_op: self.operator(),
            algorithm,
            root: self.root,
            elements: self.elements,
            detail: self.detail,
        }
    }
}

/// One collective, checked, with contiguous memory. What is agreed on reads as its own.
pub struct Call {
    /// What all ranks know of it.
    pub agreed: CallFacts,
    /// The method as it was called, for messages.
    pub name: &'static str,
    /// Blocks of the input buffer.
    pub input: Vec<Region>,
    /// Blocks of the output buffer.
    pub output: Vec<Region>,
    /// What is left to do on this rank at the end.
    pub finish: Option<Outcome>,
    /// The tensors that hold the result.
    pub outputs: Vec<Tensor>,
}

impl Deref for Call {
    type Target = CallFacts;

    fn deref(&self) -> &CallFacts {
        &self.agreed
    }
}

/// A collective of few bytes in the caller's memory. What is agreed on reads as its own.
#[derive(Clone, Copy, Debug)]
pub struct SmallCall {
    /// What all ranks know of it.
    pub agreed: CallFacts,
    /// Whether and when the caller waits for it.
    pub waiting: WaitIntent,
}

impl Deref for SmallCall {
    type Target = CallFacts;

    fn deref(&self) -> &CallFacts {
        &self.agreed
    }
}

/// What a [`SmallCall`] needs to continue after [`Backend::try_small`].
pub struct PersistentBuffers {
    /// Its deadline.
    pub deadline: Instant,
    /// Blocks of the input buffer.
    pub input: Vec<Region>,
    /// Blocks of the output buffer.
    pub output: Vec<Region>,
    /// What is left to do on this rank at the end.
    pub finish: Option<Outcome>,
}

/// The result of trying to run a small collective immediately.
pub enum Attempt<'a> {
    /// Nothing was done: it has to be issued as any other.
    Declined,
    /// It is done, under this sequence number; what is left to do on this rank at the end is the
    /// caller's.
    Done(u64),
    /// This rank has contributed, and others have not: it continues when this is called. Nothing
    /// else can be issued before that; a caller that drops it gets no outcome.
    Started(Box<dyn FnOnce(PersistentBuffers) -> IssuedOperation + 'a>),
}

/// A message to or from another rank.
pub struct Transfer {
    /// The other rank; `None` receives from any.
    pub peer: Option<u32>,
    /// Messages meet by tag.
    pub tag: u32,
    /// The element type, which both ranks must agree on.
    pub dtype: DType,
    /// Contiguous memory.
    pub memory: Region,
    /// What is left to do on this rank at the end.
    pub finish: Option<Outcome>,
}

/// The leaving of a group, which takes a while.
pub type EndFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the other rank.
    Send,
    /// From the other rank.
    Receive,
}

/// How a group is left.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// How long operations in flight may take to finish.
    pub limit: Duration,
    /// Deadline of the wait for ranks that have not published what they ran. `None` if this rank
    /// does not wait for them, as it leaves other groups later.
    pub compare_until: Option<Instant>,
}

impl Leaving {
    /// The leaving of a group after which none is left.
    pub fn last(limit: Duration) -> Leaving {
        Leaving { limit, compare_until: Some(departure::deadline()) }
    }
}

/// What a new group shares with the one it was split off; its backend knows what it is.
pub type Share = Box<dyn Any + Send>;

/// Something issued: its number, and its completion.
#[derive(Clone, Debug)]
pub struct IssuedOperation {
    /// Sequence number in the group.
    pub sequence: u64,
    /// How it is told that it is done.
    pub completion: Arc<Completion>,
}

impl IssuedOperation {
    /// One that is over, with this result.
    pub fn ended(result: Result<()>) -> IssuedOperation {
        let issued = IssuedOperation::open();
        issued.completion.complete(result);
        issued
    }

    /// One that continues until its [`Completion::complete`] is called. Its number is what the
    /// group gives it.
    pub fn open() -> IssuedOperation {
        IssuedOperation { sequence: 0, completion: Arc::new(Completion::new()) }
    }
}

/// How an operation is issued.
#[derive(Clone, Copy, Debug)]
pub struct IssueOptions {
    /// Its deadline.
    pub deadline: Instant,
    /// Whether and when the caller waits for it.
    pub waiting: WaitIntent,
}

/// What a rank says when groups are split off the one that it is in.
#[derive(Clone, Copy, Debug)]
pub struct SplitRequest<'a> {
    /// Ranks of one color come into one group; `None` for a rank that comes into none.
    pub color: Option<u32>,
    /// The rank in the new group.
    pub key: u32,
    /// What was chosen for the new group.
    pub options: Option<&'a BackendOptions>,
}

/// Runs operations of one group on one kind of device.
///
/// One from outside the crate is made for each group by a factory that [`register_backend`] is
/// given. What it lacks is an [`Error::Unsupported`]. It need not count, nor look at deadlines, nor
/// wait: it is given memory of its own, of which the outputs are copied to the caller's when an
/// operation has ended well, and an operation ends when its [`Completion`] is completed, on any
/// thread. The site has one from beginning to end.
pub trait Backend: Send + Sync + 'static {
    /// Lower-case name: `tcp`.
    fn name(&self) -> &str;
    /// What it can do in this group.
    fn capabilities(&self) -> Capabilities;
    /// Issues a collective.
    ///
    /// # Errors
    /// Those of a broken group, immediately.
    fn collective(&self, call: Call, options: IssueOptions) -> Result<IssuedOperation>;
    /// Tries to run a small collective immediately, in the memory of the caller. While this rank's
    /// part is on its way to the others, it may call `meanwhile` once, with the operation's number,
    /// for work that takes least time then.
    fn try_small(
        &self,
        call: &SmallCall,
        memory: &mut LentMemory<'_>,
        meanwhile: &mut dyn FnMut(u64),
    ) -> Attempt<'_> {
        let _ = (call, memory, meanwhile);
        Attempt::Declined
    }
    /// Issues a message to `transfer.peer`.
    ///
    /// # Errors
    /// Those of a broken group, immediately.
    fn send(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation>;
    /// Issues the receiving of a message.
    ///
    /// # Errors
    /// Those of a broken group, immediately.
    fn recv(&self, transfer: Transfer, options: IssueOptions) -> Result<IssuedOperation>;
    /// Looks for the message that a receive from `peer`, or from any, with this tag would take:
    /// `found` has it in the end. Waits for one, if it `waits`.
    ///
    /// # Errors
    /// [`Error::Unsupported`], or those of a broken group, immediately.
    fn probe(&self, probe: ProbeRequest, options: IssueOptions) -> Result<IssuedOperation> {
        let _ = (probe, options);
        let who = format!("the {} backend", self.name());
        Err(Error::Unsupported { who, operation: "probe".into() })
    }
    /// Sends a short message from beginning to end, or does nothing: whether it has gone.
    fn send_short(&self, to: Envelope, payload: &[u8]) -> bool {
        let _ = (to, payload);
        false
    }
    /// Receives a message of exactly this length, if it comes soon; its sender. None if nothing was
    /// received, and nothing waits for it.
    fn receive_short(&self, from: Envelope, memory: &mut [u8]) -> Option<u32> {
        let _ = (from, memory);
        None
    }
    /// Issues collectives that go together.
    ///
    /// # Errors
    /// As [`Backend::collective`].
    fn together(&self, calls: Vec<Call>, options: IssueOptions) -> Result<Vec<IssuedOperation>> {
        let mut issued = Vec::with_capacity(calls.len());
        for call in calls {
            issued.push(self.collective(call, options)?);
        }
        Ok(issued)
    }
    /// Issues two collectives, of which the second begins when the first has ended, and what was
    /// left to do at its end is done. Only for those that support [`Capabilities::compression`].
    ///
    /// # Errors
    /// As [`Backend::collective`].
    fn in_turn(&self, calls: [Call; 2], options: IssueOptions) -> Result<[IssuedOperation; 2]> {
        let [Call { name, .. }, _] = calls;
        let _ = options;
        let who = format!("the {} backend", self.name());
        Err(Error::Unsupported { who, operation: format!("{name} with compression") })
    }
    /// Issues messages that go together, each to or from another rank.
    ///
    /// # Errors
    /// As [`Backend::send`].
    fn messages(
        &self,
        messages: Vec<(Direction, Transfer)>,
        options: IssueOptions,
    ) -> Result<Vec<IssuedOperation>> {
        let mut issued = Vec::with_capacity(messages.len());
        for (direction, transfer) in messages {
            issued.push(match direction {
                Direction::Send => self.send(transfer, options)?,
                Direction::Receive => self.recv(transfer, options)?,
            });
        }
        Ok(issued)
    }
    /// Has what is issued from now on, on the streams of the waiter, come after the operation of
    /// `completion`; on those of the tensors' owners, where `waiter` names none of the device.
    /// `None` if there is no such order: a caller that needs the outcome has to wait.
    fn order(&self, completion: &Completion, waiter: &[OnDevice]) -> Option<Result<()>> {
        let _ = (completion, waiter);
        None
    }
    /// Begins to make what a group of some of this one's ranks shares with it: all ranks call this,
    /// those of the new group with a color. `None` if such groups begin anew.
    ///
    /// # Errors
    /// Those of the library.
    fn split_off(&self, request: SplitRequest<'_>, until: Instant) -> Result<Option<Share>> {
        let _ = (request, until);
        Ok(None)
    }
    /// Has the connection to `peer` end as it does where something on the way closes it, for tests
    /// of programs; whether there was one that could.
    #[cfg(feature = "tcp")]
    #[doc(hidden)]
    fn disconnect(&self, peer: u32) -> bool {
        let _ = peer;
        false
    }
    /// The windows of the group; none where it has no such thing.
    fn windows(&self) -> Option<&dyn Windows> {
        None
    }
    /// Waits until `completion` is done or `until` has come; whether it is done. Makes progress,
    /// where operations do not by themselves, as is assumed here.
    fn wait(&self, completion: &Completion, until: Option<Instant>) -> bool {
        completion.park(until)
    }
    /// As [`Backend::wait`], for up to `limit`, by a thread that should not fall asleep. If it is
    /// not done then, the caller has a thread wait for it.
    fn poll_for(&self, completion: &Completion, limit: Duration) -> bool {
        self.wait(completion, Instant::now().checked_add(limit))
    }
    /// As [`Backend::poll_for`], and no longer than about `idle_limit` after anything moved, where
    /// the backend can tell.
    fn poll_while_moving(
        &self,
        completion: &Completion,
        idle_limit: Duration,
        limit: Duration,
    ) -> bool {
        self.poll_for(completion, idle_limit.min(limit))
    }
    /// Whether memory of an operation may move while it is in flight: all accesses to it go through
    /// [`Region::read`](crate::Region::read) and its like, and no address is kept beyond those.
    fn takes_loans(&self) -> bool {
        false
    }
    /// The memory of the operation of this sequence number has moved, and nobody has changed yet
    /// what lies where it was, which other ranks may read.
    fn note_moved(&self, sequence: u64) {
        let _ = sequence;
    }
    /// For a caller that is to be told of the end of `completion`, and does not wait for it: moves
    /// it for a moment, and has it moved without delay until it is done.
    fn hasten(&self, completion: &Completion) {
        self.wait(completion, Some(Instant::now()));
    }
    /// What ends, badly, when the group fails. As long as somebody has it, the backend looks out
    /// for ranks that are gone, `peers` among them. `None` if it cannot.
    fn await_failure(&self, peers: &[u32]) -> Option<Arc<Completion>> {
        let _ = peers;
        None
    }
    /// Sets what is called once, outside every lock, when the group fails for a reason other than
    /// this rank's own will, before what was in flight says so. The first one stays. False where
    /// the backend cannot do that: then its operations tell.
    fn set_failure_hook(&self, hook: Arc<dyn Fn() + Send + Sync>) -> bool {
        let _ = hook;
        false
    }
    /// Whether it is known that `rank` has left the group cleanly. False where the backend cannot
    /// tell.
    fn has_left(&self, rank: u32) -> bool {
        let _ = rank;
        false
    }
    /// Whether it is known that `rank` has ended without leaving: its process, or its connection to
    /// this rank. A rank that cannot be reached may live. False where the backend cannot tell.
    fn has_died(&self, rank: u32) -> bool {
        let _ = rank;
        false
    }
    /// For whom operations of this rank wait, and have waited, where the backend knows.
    #[cfg(feature = "tcp")]
    #[doc(hidden)]
    fn waits(&self) -> Waits {
        Waits::default()
    }
    /// Whether the other ranks do not exist, so that nobody waits for them: not when groups are
    /// made of this one, and not in monitored barriers.
    fn is_alone(&self) -> bool {
        false
    }
    /// What the operation of this name fails with where the group has no members; none: it has.
    fn refusal(&self, operation: &str) -> Option<Error> {
        let _ = operation;
        None
    }
    /// What the group failed with, if it did and that is known.
    fn failure(&self) -> Option<Error> {
        None
    }
    /// Whether the group failed or was left, so that nothing can be issued any more.
    fn is_broken(&self) -> bool;
    /// Fails everything in flight and everything later, here and on the other ranks.
    fn abort(&self, why: &str);
    /// As [`Backend::abort`], as this rank cannot run operation `sequence`, or the next one if none
    /// is named. Where a backend can, those before it end well.
    fn abort_from(&self, sequence: Option<u64>, why: &str) {
        let _ = sequence;
        self.abort(why);
    }
    /// Leaves the group, whose members change: what is in flight fails before this returns, here
    /// with [`Error::Reconfigured`]; the future closes what is open. Waits for no
    /// other rank, and compares nothing.
    fn retire(self: Arc<Self>) -> EndFuture {
        self.abort("it reconfigures the group");
        let leaving = Leaving { limit: Duration::ZERO, compare_until: None };
        Box::pin(async move {
            // How the former members ended is nobody's concern any more.
            let _ = self.shutdown_async(leaving).await;
            Ok(())
        })
    }
    /// Leaves the group cleanly: what is in flight continues until the limit, then fails.
    ///
    /// # Errors
    /// The group is left in any case. [`Error::CollectiveMismatch`](crate::Error) and its like, if
    /// ranks disagree on what they ran and no operation of this rank has said so; what collectives
    /// of this rank failed with, if nobody has asked.
    fn shutdown(&self, leaving: Leaving) -> Result<()>;
    /// As [`Backend::shutdown`], without blocking: on another thread, where a backend has no other
    /// way.
    ///
    /// # Errors
    /// As [`Backend::shutdown`].
    fn shutdown_async(self: Arc<Self>, leaving: Leaving) -> EndFuture {
        Box::pin(unblock(move || self.shutdown(leaving)))
    }
    /// The open comparison of this rank, which has left: whether the others ran the same.
    fn open_comparison(&self) -> Option<OpenComparison> {
        None
    }
}
