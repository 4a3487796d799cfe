//! What each rank shows for a small operation, and what it makes of what the others show. Pure:
//! knows bytes and kernels; no board, no frames.
//!
//! Memory is flat here: the blocks of a buffer one after the other.

use std::ops::Range;

use crate::generated::collective::{Blocks, Collective};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Order};
use crate::schedule::Rank;

/// A small operation of one rank.
#[derive(Clone, Copy, Debug)]
pub struct SmallCollective {
    /// The collective, one that [`SmallCollective::suits`].
    pub collective: Collective,
    /// The element type.
    pub dtype: DType,
    /// How elements are reduced.
    pub reduce_op: ReduceOp,
    /// The root, 0 where there is none.
    pub root: Rank,
    /// This rank.
    pub rank: Rank,
    /// The number of ranks.
    pub size: u32,
}

/// What came of trying to run a small collective from beginning to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallAttempt {
    /// Nothing was done: it has to be submitted.
    Declined,
    /// This rank has shown its part, but not all others have: it has to be submitted as one whose
    /// part is shown.
    Shown,
    /// It is complete.
    Done,
}

impl SmallCollective {
    /// Whether operations of this kind, with `shared_bytes` bytes that all ranks know of, go over a
    /// board on which each rank shows up to `capacity` bytes. In an alltoall a rank knows its own
    /// blocks only: all ranks look at the board, where one whose blocks do not fit says so.
    pub fn suits(collective: Collective, shared_bytes: Option<u64>, capacity: usize) -> bool {
        let known = match collective {
            Collective::Barrier | Collective::Alltoall => Some(0),
            Collective::Allreduce
            | Collective::Reduce
            | Collective::Broadcast
            | Collective::Allgather
            | Collective::ReduceScatter => shared_bytes,
            // What one rank shows of a gather or scatter is no fact that all ranks share; and the
            // board knows what to make of these collectives only.
            _ => None,
        };
        known.is_some_and(|bytes| bytes <= capacity as u64)
    }

    /// Whether some rank may show that it runs the schedule in place of what it gives.
    pub(super) fn may_be_scheduled(&self) -> bool {
        self.collective == Collective::Alltoall
    }

    /// Whether this rank shows its input, or its output where that is the input, too.
    pub(super) fn gives(&self) -> bool {
        match self.collective {
            Collective::Broadcast => self.rank == self.root,
            Collective::Barrier => false,
            _ => true,
        }
    }

    /// The ranks whose bytes this rank needs, in the order in which it takes them.
    pub(super) fn sources(&self) -> Range<Rank> {
        match self.collective {
            Collective::Broadcast if self.rank != self.root => self.root..self.root + 1,
            Collective::Broadcast => 0..0,
            Collective::Reduce if self.rank != self.root => 0..0,
            _ => 0..self.size,
        }
    }

    /// Takes what `source` showed into `output`; false if it cannot be what the operation needs.
    /// `part` is what the source gives to the output of an allgather or an alltoall, or what this
    /// rank has of the input of a reduce-scatter; the others have no parts. Sources come in the
    /// order of [`SmallCollective::sources`], so that all ranks end with the same bits.
    pub(super) fn take(
        &self,
        source: Rank,
        shown: &[u8],
        part: Range<usize>,
        output: &mut [u8],
    ) -> bool {
        let facts = self.collective.facts();
        if self.collective == Collective::Barrier {
            return shown.is_empty();
        }
        if facts.output == Blocks::All {
            let own = self.rank as usize * part.len();
            let shown = match facts.input {
                Blocks::All => shown.get(own..own + part.len()).unwrap_or(&[]),
                _ => shown,
            };
            return put(output.get_mut(part), shown);
        }
        let shown = if facts.input == Blocks::All { shown.get(part) } else { Some(shown) };
        let Some(shown) = shown.filter(|shown| shown.len() == output.len()) else { return false };
        if !facts.reduces || source == 0 {
            return put(Some(output), shown);
        }
        kernels::reduce(self.reduce_op, self.dtype, output, shown, Order::IntoFirst);
        true
    }
}

fn put(into: Option<&mut [u8]>, shown: &[u8]) -> bool {
    match into {
        Some(into) if into.len() == shown.len() => {
            into.copy_from_slice(shown);
            true
        }
        _ => false,
    }
}
