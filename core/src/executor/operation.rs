//! What the executor is asked to do.

use std::sync::Arc;

use super::small_collective::SmallCollective;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::Stores;
use crate::schedule::{Rank, Schedule};
use crate::tensor::Region;
use crate::wire::frame::Fingerprint;

/// The memory behind the blocks of a schedule's buffers.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Blocks of the input buffer.
    pub input: Vec<Region>,
    /// Blocks of the output buffer.
    pub output: Vec<Region>,
}

impl Bindings {
    /// How a result is stored that nobody reads before it is complete, where `ranks` ranks do the
    /// same in one cache.
    pub(super) fn result_stores(&self, ranks: usize) -> Stores {
        let bytes: usize = self.input.iter().chain(&self.output).map(Region::len).sum();
        Stores::of_traffic(bytes.saturating_mul(ranks))
    }
}

/// One collective, ready to run.
pub struct Operation {
    /// Its number in the group.
    pub sequence: u64,
    /// What all ranks must agree on.
    pub fingerprint: Fingerprint,
    /// This rank's part; without a step if it goes over the board, unless some rank may not fit.
    pub schedule: Arc<Schedule>,
    /// Set if it goes over the board.
    pub slot_progress: Option<SlotProgress>,
    /// The memory.
    pub bindings: Bindings,
    /// The element type; blocks are cut between elements.
    pub dtype: DType,
    /// How elements are reduced, where they are (never `Avg` or `PremulSum`: the backend scales).
    pub reduce_op: ReduceOp,
    /// When it must be done.
    pub deadline: Instant,
    /// What is left to do on this rank when all steps are done.
    pub finish: Option<Outcome>,
    /// Who is told.
    pub completion: Arc<Completion>,
}

/// How far an operation over the board is.
#[derive(Clone, Copy, Debug)]
pub struct SlotProgress {
    /// What it is.
    pub small: SmallCollective,
    /// Whether what this rank gives fits. Else it shows that it runs the schedule, and the others
    /// run it, too.
    pub fits: bool,
    /// Whether this rank has shown what it gives.
    pub shown: bool,
}

/// A small collective as it is issued: under its number, with what the ranks compare of it.
#[derive(Clone, Copy, Debug)]
pub struct SmallOperation {
    /// The sequence number.
    pub sequence: u64,
    /// What all ranks must agree on.
    pub fingerprint: Fingerprint,
    /// What is to be done.
    pub small: SmallCollective,
}

/// One point-to-point message, ready to go or awaited.
pub struct Message {
    /// The other rank; `None` receives from any.
    pub peer: Option<Rank>,
    /// Messages meet by tag.
    pub tag: u32,
    /// The element type, which both ranks must agree on.
    pub dtype: DType,
    /// What is sent, or where it goes.
    pub memory: Region,
    /// When it must be done.
    pub deadline: Instant,
    /// What is left to do on this rank when the message is here.
    pub finish: Option<Outcome>,
    /// Who is told. Its source rank is set for a receive.
    pub completion: Arc<Completion>,
}

/// With whom a short message is exchanged, and what tells it from others.
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
