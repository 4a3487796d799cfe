//! Small collectives over a board: what each rank shows, and how it computes its result from what
//! the others show. Pure: knows bytes and kernels; no board, no frames.
//!
//! Buffers are flat here: their blocks follow one another.

use std::ops::Range;

use crate::generated::collective::{Blocks, Collective};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Order, Stores};
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

/// The result of trying to run a small collective from beginning to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallAttempt {
    /// Nothing was done: the operation has to be submitted.
    Declined,
    /// This rank has shown its part, but not all others have: the operation has to be submitted as
    /// one that has been shown.
    Shown,
    /// It is complete.
    Done,
}

impl SmallCollective {
    /// Whether operations of this kind go over a board on which each rank shows up to `capacity`
    /// bytes. `shared_bytes` is the size, if all ranks know it. In an alltoall, a rank knows only
    /// its own blocks: all ranks use the board, and one whose blocks do not fit says so there.
    pub fn suits(collective: Collective, shared_bytes: Option<u64>, capacity: usize) -> bool {
        let known = match collective {
            Collective::Barrier | Collective::Alltoall => Some(0),
            Collective::Allreduce
            | Collective::Reduce
            | Collective::Broadcast
            | Collective::Allgather
            | Collective::ReduceScatter
            | Collective::Scan
            | Collective::Exscan => shared_bytes,
            // Not all ranks know the size that a gather or scatter would show; and only these
            // collectives are implemented for the board.
            _ => None,
        };
        known.is_some_and(|bytes| bytes <= capacity as u64)
    }

    /// Whether this rank shows its input (or its output, if that is the input, too).
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
            Collective::Scan | Collective::Exscan => {
                0..self.collective.reduced_ranks(self.rank, self.size)
            }
            _ => 0..self.size,
        }
    }

    /// Which of the bytes that a source shows are looked at by [`SmallCollective::take`], where
    /// `part` is as there.
    pub(super) fn wanted(&self, part: Range<usize>) -> Range<usize> {
        let facts = self.collective.facts();
        match (facts.input, facts.output) {
            (Blocks::All, Blocks::All) => {
                let own = self.rank as usize * part.len();
                own..own + part.len()
            }
            (Blocks::All, _) => part,
            _ => 0..usize::MAX,
        }
    }

    /// Takes what `source` showed, of which what is [`SmallCollective::wanted`] is there, into
    /// `output`; false if it cannot belong to the operation. `part` is the source's part of the
    /// output of an allgather or an alltoall, or this rank's part of the input of a reduce-scatter;
    /// other collectives have no parts. Sources come in the order of
    /// [`SmallCollective::sources`], so that all ranks end with the same bits.
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
            kernels::copy(into, shown, Stores::Cached);
            true
        }
        _ => false,
    }
}
