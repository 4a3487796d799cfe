//! What the executor is asked to run.

use std::sync::Arc;

use super::small_collective::SmallCollective;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::schedule::{Rank, Schedule};
use crate::tensor::Region;
use crate::wire::frame::{BOARD_ALGORITHM, Fingerprint};

/// The memory behind the blocks of a schedule's buffers.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Blocks of the input buffer.
    pub input: Vec<Region>,
    /// Blocks of the output buffer.
    pub output: Vec<Region>,
}

impl Bindings {
    /// What this rank gives: its input, or the output if that is the input, too.
    pub(super) fn given(&self) -> &[Region] {
        if self.input.is_empty() { &self.output } else { &self.input }
    }

    /// How many bytes `ranks` ranks go through that do this in one cache.
    pub(super) fn traffic(&self, ranks: usize) -> usize {
        let bytes: usize = self.input.iter().chain(&self.output).map(Region::len).sum();
        bytes.saturating_mul(ranks)
    }
}

/// One collective, ready to run.
pub struct Operation {
    /// Its number in the group.
    pub sequence: u64,
    /// What all ranks must agree on.
    pub fingerprint: Fingerprint,
    /// This rank's schedule. Without steps if the operation goes over the board and all ranks' data
    /// is sure to fit.
    pub schedule: Arc<Schedule>,
    /// Set if the operation goes over the board.
    pub slot_progress: Option<SlotProgress>,
    /// The memory that it works on.
    pub bindings: Bindings,
    /// The element type; blocks are cut between elements.
    pub dtype: DType,
    /// How elements are reduced, if they are (never `Avg` or `PremulSum`: the backend scales).
    pub reduce_op: ReduceOp,
    /// The operation before it, if this one begins when that has ended: what that does at its end
    /// makes this one's input. Until then it only receives.
    pub after: Option<u64>,
    /// When it must be done.
    pub deadline: Instant,
    /// What is left to do on this rank when all steps are done.
    pub finish: Option<Outcome>,
    /// Notified of the end.
    pub completion: Arc<Completion>,
}

/// How far an operation over the board is.
#[derive(Clone, Copy, Debug)]
pub struct SlotProgress {
    /// What it is.
    pub small: SmallCollective,
    /// What this rank has to show.
    pub part: OwnPart,
    /// Whether it has shown that.
    pub shown: bool,
}

/// What a rank shows on the board for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPart {
    /// Its data.
    Data,
    /// Where its data lies, since that does not fit; or, where not all ranks can read one another's
    /// memory or rank 0 says so, that all run the schedule.
    Lent,
}

/// A small collective as it is issued, with its number and the facts that the ranks compare.
#[derive(Clone, Copy, Debug)]
pub struct SmallOperation {
    /// The sequence number.
    pub sequence: u64,
    /// What all ranks must agree on.
    pub fingerprint: Fingerprint,
    /// The collective itself.
    pub small: SmallCollective,
}

impl SmallOperation {
    /// Whether a rank may show, in place of its data, that all run the schedule, or where its data
    /// lies.
    pub(super) fn may_be_elsewhere(&self) -> bool {
        self.fingerprint.algorithm != BOARD_ALGORITHM
    }
}

/// One point-to-point message, to be sent or received.
pub struct Message {
    /// The other rank, or this one; `None` receives from any.
    pub peer: Option<Rank>,
    /// Messages meet by tag.
    pub tag: u32,
    /// The element type, which both ranks must agree on.
    pub dtype: DType,
    /// The memory that is sent, or received into.
    pub memory: Region,
    /// When it must be done.
    pub deadline: Instant,
    /// What is left to do on this rank when the message has arrived.
    pub finish: Option<Outcome>,
    /// Notified of the end. Its source rank is set for a receive.
    pub completion: Arc<Completion>,
}

/// The other rank of a short message, and what distinguishes the message from others.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// The other rank; `None` receives from any.
    pub peer: Option<Rank>,
    /// Messages meet by tag.
    pub tag: u32,
    /// The element type, which both ranks must agree on.
    pub dtype: DType,
}

/// Whether a buffer of elements of `buffer_dtype` takes a message of elements of the type with the
/// number `sent_dtype`. One of bytes takes any message as it is.
pub(super) fn takes(buffer_dtype: DType, sent_dtype: u8) -> bool {
    buffer_dtype == DType::U8 || buffer_dtype as u8 == sent_dtype
}
