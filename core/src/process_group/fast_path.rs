//! Collectives on contiguous memory: a fast path that bypasses requests. Small ones run to
//! completion without allocating, if the backend supports that; others are issued as they are.
//! Knows no backend.

use super::stage::is_logical;
use super::{Inner, ProcessGroup};
use crate::backend::{
    Attempt, Call, CallFacts, IssueOptions, IssuedOperation, PersistentBuffers, SmallCall,
};
use crate::clock::Instant;
use crate::completion::Outcome;
use crate::generated::collective::{Blocks, Collective, Sizes};
use crate::generated::dtype::DType;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels;
#[cfg(feature = "tcp")]
pub(super) use crate::recorder::CallTime;
#[cfg(feature = "tcp")]
use crate::recorder::{BegunNote, DoneOperation, NO_RANK, OperationKind};
use crate::request::SingleTensorRequest;
use crate::tensor::{Apart, InPlace, LentMemory, Region, Tensor, lend_bytes, lend_bytes_mut};
use crate::wire::fingerprint::digest;
use crate::work::Work;

/// Nobody records operations.
#[cfg(not(feature = "tcp"))]
#[derive(Clone, Copy)]
pub(super) struct CallTime;

/// As [`CallTime`].
#[cfg(not(feature = "tcp"))]
struct BegunNote;

/// Largest group that takes the fast path.
const MAX_RANKS: usize = 16;

/// Memory that an operation keeps until it completes: what it reads, if that differs from what it
/// writes, and what it writes.
#[derive(Debug)]
pub struct HeldBuffers {
    /// The whole input.
    pub input: Option<Region>,
    /// The whole output.
    pub output: Region,
}

/// A small collective that was tried.
pub enum FastPathResult<'a> {
    /// It is done. Its work has no tensors: [`Work::result`] is empty.
    Done(Work),
    /// It continues once it has memory that it may keep.
    Pending(PendingFastPath<'a>),
}

/// A small collective to which this rank has contributed, but not all others. Nothing else can be
/// issued in its group before [`PendingFastPath::proceed`]; dropping it discards the outcome.
#[must_use = "the operation does not continue by itself"]
pub struct PendingFastPath<'a> {
    group: &'a ProcessGroup,
    /// The members that the others are of.
    members: &'a Inner,
    plain: SingleTensorRequest,
    proceed: Box<dyn FnOnce(PersistentBuffers) -> IssuedOperation + 'a>,
}

impl ProcessGroup {
    /// Runs a small collective immediately in `memory`, without allocating, if the backend supports
    /// that. `None` if nothing was done: then call [`ProcessGroup::issue`], which also reports what
    /// is wrong with a call.
    pub fn try_plain(
        &self,
        plain: &SingleTensorRequest,
        memory: &mut LentMemory<'_>,
    ) -> Option<FastPathResult<'_>> {
        // One look at them: they may be replaced at any time.
        let members = &**self.inner;
        // Without tensors, the device is that of the group.
        if (plain.collective == Collective::Barrier && members.cuda.is_some())
            || !self.is_unwrapped()
        {
            return None;
        }
        let lengths = memory.lengths();
        let call = members.small_call(plain, lengths)?;
        let called = members.called();
        let begin = |sequence| members.begin_note(&call, (plain.name, sequence), lengths);
        let mut note = None;
        let tried = members.cpu.try_small(&call, memory, &mut |it| note = Some(begin(it)));
        if let Attempt::Done(sequence) = tried {
            members.end_note(note.take().unwrap_or_else(|| begin(sequence)), called);
        } else if let Some(note) = note {
            members.take_note_back(note);
        }
        match tried {
            Attempt::Declined => None,
            Attempt::Done(sequence) => {
                if let Some(parts) = plain.divisor(members.rank, members.size()) {
                    memory.write(|sum| kernels::divide(plain.dtype, sum, parts));
                }
                Some(FastPathResult::Done(Work::done(plain.name, self.identity(), sequence)))
            }
            Attempt::Started(proceed) => {
                let pending = PendingFastPath { group: self, members, plain: *plain, proceed };
                Some(FastPathResult::Pending(pending))
            }
        }
    }

    /// Whether [`ProcessGroup::issue_plain`] takes this collective, in this memory.
    pub fn suits_plain(&self, plain: &SingleTensorRequest, kept: &HeldBuffers) -> bool {
        self.is_unwrapped() && self.inner.plain_call(plain, kept).is_some()
    }

    /// Issues a collective in memory that stays valid until the work is complete. `None` if nothing
    /// was done, as with [`ProcessGroup::try_plain`].
    pub fn issue_plain(
        &self,
        plain: &SingleTensorRequest,
        kept: HeldBuffers,
    ) -> Option<Result<Work>> {
        let members = &**self.inner;
        let call = members.plain_call(plain, &kept).filter(|_| self.is_unwrapped())?;
        let lengths = kept.lengths();
        let deadline = self.deadline(plain.timeout);
        let PersistentBuffers { input, output, finish, .. } =
            members.persistent_buffers(plain, kept, deadline);
        let (agreed, name) = (call.agreed, plain.name);
        let call = Call { agreed, name, input, output, finish, outputs: Vec::new() };
        let options = IssueOptions { deadline, waiting: plain.waiting };
        let label = self.plain_label(plain, lengths);
        let issued = members.cpu.collective(call, options);
        let cpu = || members.cpu.clone();
        Some(issued.map(|issued| Work::new(label, vec![(issued, cpu())], Vec::new())))
    }

    /// As [`ProcessGroup::run`] for a call in place; `None` if it has to go through a request.
    pub(crate) fn run_in_place(
        &self,
        plain: Option<SingleTensorRequest>,
        tensor: Option<InPlace<'_>>,
    ) -> Option<Result<()>> {
        let (dtype, memory) = match tensor? {
            InPlace::Borrowed(dtype, memory) => (dtype, memory),
            InPlace::Owned(tensor) => return self.run_owned(plain?, tensor),
        };
        let plain = SingleTensorRequest { dtype, ..plain? };
        let tried = self.try_plain(&plain, &mut LentMemory::InPlace(memory));
        self.run_kept(&plain, tried, || HeldBuffers { input: None, output: lend_bytes_mut(memory) })
    }

    /// As [`ProcessGroup::run_in_place`] for a tensor that has its own memory.
    fn run_owned(&self, plain: SingleTensorRequest, tensor: &Tensor) -> Option<Result<()>> {
        let plain = SingleTensorRequest { dtype: tensor.dtype(), ..plain };
        let region = tensor.region();
        let tried = self.try_plain(&plain, &mut LentMemory::Shared(None, region));
        self.run_kept(&plain, tried, || HeldBuffers { input: None, output: region.clone() })
    }

    /// As [`ProcessGroup::run`] for a call from one tensor to another; `None` if it has to go
    /// through a request.
    pub(crate) fn run_apart(
        &self,
        plain: Option<SingleTensorRequest>,
        tensors: Option<Apart<'_>>,
    ) -> Option<Result<()>> {
        let ((dtype, output), (other, input)) = match tensors? {
            Apart::Borrowed(output, input) => (output, input),
            Apart::Owned(output, input) => return self.run_apart_owned(plain?, output, input),
        };
        let plain = SingleTensorRequest { dtype, ..plain.filter(|_| dtype == other)? };
        let tried = self.try_plain(&plain, &mut LentMemory::Apart(input, output));
        let kept =
            || HeldBuffers { input: Some(lend_bytes(input)), output: lend_bytes_mut(output) };
        self.run_kept(&plain, tried, kept)
    }

    /// As [`ProcessGroup::run_owned`], from one tensor to another.
    fn run_apart_owned(
        &self,
        plain: SingleTensorRequest,
        output: &Tensor,
        input: &Tensor,
    ) -> Option<Result<()>> {
        if output.dtype() != input.dtype() {
            return None;
        }
        let plain = SingleTensorRequest { dtype: output.dtype(), ..plain };
        let (output, input) = (output.region(), input.region());
        let tried = self.try_plain(&plain, &mut LentMemory::Shared(Some(input), output));
        let held = || HeldBuffers { input: Some(input.clone()), output: output.clone() };
        self.run_kept(&plain, tried, held)
    }

    /// As [`ProcessGroup::run`] for a call without tensors, if it can be run immediately.
    pub(crate) fn run_without(&self, plain: Option<SingleTensorRequest>) -> Option<Result<()>> {
        let tried = self.try_plain(&plain?, &mut LentMemory::InPlace(&mut []))?;
        Some(tried.wait(|| HeldBuffers { input: None, output: Region::zeroed(0) }))
    }

    /// Waits for what was tried, or issues what was not and waits for that. The memory of `keep` is
    /// not used any more when this returns.
    fn run_kept(
        &self,
        plain: &SingleTensorRequest,
        tried: Option<FastPathResult<'_>>,
        keep: impl FnOnce() -> HeldBuffers,
    ) -> Option<Result<()>> {
        match tried {
            Some(tried) => Some(tried.wait(keep)),
            None => {
                let issued = self.issue_plain(plain, keep())?;
                Some(issued.and_then(|work| work.wait(None)))
            }
        }
    }
}

impl HeldBuffers {
    /// Bytes that are read, and that are written.
    fn lengths(&self) -> (usize, usize) {
        let taken = self.output.len();
        (self.input.as_ref().map_or(taken, Region::len), taken)
    }
}

impl Inner {
    /// The time, if what is called now is timed.
    #[inline]
    pub(super) fn called(&self) -> CallTime {
        #[cfg(feature = "tcp")]
        return self.recorder.called();
        #[cfg(not(feature = "tcp"))]
        CallTime
    }

    /// Begins to note a collective that may be done soon.
    #[inline]
    fn begin_note(
        &self,
        call: &SmallCall,
        (name, sequence): (&'static str, u64),
        (given, taken): (usize, usize),
    ) -> BegunNote {
        #[cfg(feature = "tcp")]
        {
            let CallFacts { collective, dtype, reduce_op, root, .. } = call.agreed;
            let facts = collective.facts();
            self.recorder.begin_note(&DoneOperation {
                name,
                kind: OperationKind::Collective,
                dtype,
                reduce_op: facts.reduces.then_some(reduce_op),
                peer: if facts.rooted { root } else { NO_RANK },
                tag: 0,
                sequence,
                given,
                taken,
            })
        }
        #[cfg(not(feature = "tcp"))]
        {
            let _ = (call, name, sequence, given, taken);
            BegunNote
        }
    }

    /// Notes that it is done.
    #[inline]
    fn end_note(&self, note: BegunNote, called: CallTime) {
        #[cfg(feature = "tcp")]
        self.recorder.end_note(note, called);
        #[cfg(not(feature = "tcp"))]
        let _ = (note, called);
    }

    /// The operation goes on, and is noted where it is issued.
    fn take_note_back(&self, note: BegunNote) {
        #[cfg(feature = "tcp")]
        self.recorder.take_back(note);
        #[cfg(not(feature = "tcp"))]
        let _ = note;
    }

    pub(super) fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The blocks of `kept`, and what is left to do with them at the end.
    fn persistent_buffers(
        &self,
        plain: &SingleTensorRequest,
        kept: HeldBuffers,
        deadline: Instant,
    ) -> PersistentBuffers {
        let (facts, parts) = (plain.collective.facts(), self.size());
        let HeldBuffers { input, output } = kept;
        let divisor = plain.divisor(self.rank, parts);
        let finish = divisor.map(|parts| divide(plain.dtype, output.clone(), parts));
        PersistentBuffers {
            deadline,
            input: blocks(input, facts.input, parts),
            output: blocks(Some(output), facts.output, parts),
            finish,
        }
    }

    /// As [`ProcessGroup::small_call`], of any length, in memory of the host.
    fn plain_call(&self, plain: &SingleTensorRequest, kept: &HeldBuffers) -> Option<SmallCall> {
        let taken = kept.output.len();
        let given = kept.input.as_ref().map_or(taken, Region::len);
        let has_input = plain.collective.facts().input != Blocks::None;
        let suits = self.cuda.is_none() && kept.input.is_some() == has_input;
        let suits = suits && !self.store.is_closed();
        self.small_call(plain, (given, taken)).filter(|_| suits)
    }

    /// What the backend has to know, if the call is one of the usual ones and all is right with it.
    fn small_call(
        &self,
        plain: &SingleTensorRequest,
        (given, taken): (usize, usize),
    ) -> Option<SmallCall> {
        if self.is_observed() || plain.epoch.is_some_and(|epoch| epoch != self.epoch) {
            return None;
        }
        let SingleTensorRequest { collective, dtype, reduce_op, root, waiting, .. } = *plain;
        let facts = collective.facts();
        let size = self.size();
        if size == 0 {
            return None;
        }
        let is_simple = !matches!(reduce_op, ReduceOp::PremulSum(_) | ReduceOp::Custom(_))
            && !reduce_op.takes_pairs()
            && (!is_logical(reduce_op) || collective.reduced_ranks(self.rank, size) != 1)
            && reduce_op.supports(dtype);
        if (facts.reduces && !is_simple) || (facts.rooted && root >= size) {
            return None;
        }
        let (given, taken) = (given / dtype.size_bytes(), taken / dtype.size_bytes());
        if size as usize > MAX_RANKS {
            return None;
        }
        let (elements, detail) = match facts.sizes {
            Sizes::Equal => (taken, 0),
            Sizes::PerRank => {
                let gathers = facts.output == Blocks::All;
                let (all, one) = if gathers { (taken, given) } else { (given, taken) };
                if all != one * size as usize {
                    return None;
                }
                let words = [one as u64; MAX_RANKS];
                (all, digest(words.get(..size as usize)?))
            }
            Sizes::Pairwise if given == taken && given.is_multiple_of(size as usize) => (0, 0),
            Sizes::PerRankAtRoot | Sizes::Pairwise => return None,
        };
        let is_shared = facts.sizes != Sizes::Pairwise;
        let agreed = CallFacts {
            collective,
            dtype,
            reduce_op,
            root: if facts.rooted { root } else { 0 },
            elements: elements as u64,
            shared_bytes: is_shared.then_some((elements * dtype.size_bytes()) as u64),
            detail,
            compressed: None,
        };
        Some(SmallCall { agreed, waiting })
    }
}

impl FastPathResult<'_> {
    /// The work, which continues in the memory that `keep` returns if it is not done.
    pub fn work(self, keep: impl FnOnce() -> HeldBuffers) -> Work {
        match self {
            FastPathResult::Done(work) => work,
            FastPathResult::Pending(pending) => pending.proceed(keep()),
        }
    }

    fn wait(self, keep: impl FnOnce() -> HeldBuffers) -> Result<()> {
        match self {
            FastPathResult::Done(_) => Ok(()),
            FastPathResult::Pending(pending) => pending.proceed(keep()).wait(None),
        }
    }
}

impl PendingFastPath<'_> {
    /// Continues in memory that stays valid until the work is complete: the same that was tried.
    pub fn proceed(self, kept: HeldBuffers) -> Work {
        let PendingFastPath { group, members, plain, proceed } = self;
        let deadline = group.deadline(plain.timeout);
        let label = group.plain_label(&plain, kept.lengths());
        let issued = proceed(members.persistent_buffers(&plain, kept, deadline));
        Work::new(label, vec![(issued, members.cpu.clone())], Vec::new())
    }
}

/// The blocks of a buffer whose blocks are equal.
fn blocks(whole: Option<Region>, rule: Blocks, size: u32) -> Vec<Region> {
    let Some(whole) = whole else { return Vec::new() };
    match rule {
        Blocks::None => Vec::new(),
        Blocks::All | Blocks::AllAtRoot => {
            let bytes = whole.len() / size as usize;
            (0..size as usize)
                .map(|index| whole.slice(index * bytes..(index + 1) * bytes))
                .collect()
        }
        Blocks::One | Blocks::OneAtRoot => vec![whole],
    }
}

/// Makes an average of a sum.
fn divide(dtype: DType, output: Region, parts: u32) -> Outcome {
    Box::new(move || output.write(|memory| kernels::divide(dtype, memory, parts)))
}
