//! Of a collective in which ranks read one another's memory: which of its own memory a rank shows,
//! whose parts it needs, and where these lie on either side. Pure: knows lengths; reads nothing.
//!
//! An allreduce has two halves. First every rank reduces one part of the tensors of all ranks, in
//! the order of the ranks, into its own result; then it takes the other parts of the result from
//! the ranks that have reduced them. A reduce-scatter is the first half alone.

use std::ops::Range;

use super::operation::Bindings;
use super::small_collective::SmallCollective;
use crate::generated::collective::{Blocks, Collective};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::schedule::Rank;
use crate::tensor::Region;

/// Parts of a tensor that ranks reduce begin at multiples of so many bytes: no two ranks write the
/// same line, and no element is cut.
const PART_STEP_BYTES: usize = 64;

/// A collective of one rank in which ranks read one another's memory.
#[derive(Clone, Copy)]
pub(super) struct DirectCollective<'a> {
    pub(super) small: SmallCollective,
    pub(super) bindings: &'a Bindings,
}

/// Where what a rank needs of another lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LentPart {
    /// Which of the blocks that the other shows it is in.
    pub(super) index: usize,
    /// How many blocks the other shows.
    pub(super) blocks: usize,
    /// How long the block is.
    pub(super) block_bytes: usize,
    /// Where the part begins in it.
    pub(super) start: usize,
}

/// The part of the result that a rank reduces.
pub(super) struct OwnReduction {
    /// This rank's own contribution.
    pub(super) own: Region,
    /// The part of the result; the same memory, if the operation is in place.
    pub(super) into: Region,
    /// Where the contribution of each other rank lies.
    pub(super) theirs: LentPart,
}

/// Whether ranks may read one another's memory for a collective of `size` ranks. The order in which
/// ranks are reduced must not matter to the result: the way that an operation goes is chosen by
/// what it costs, and a program that runs twice is to end with the same bits.
pub fn suits_direct(
    collective: Collective,
    (dtype, reduce_op): (DType, ReduceOp),
    size: u32,
) -> bool {
    match collective {
        Collective::Allgather | Collective::Alltoall | Collective::Broadcast => true,
        Collective::Allreduce | Collective::ReduceScatter => match size {
            0 | 1 => false,
            _ if reduce_op.takes_pairs() => false,
            2 => is_exact(dtype) || is_commutative(reduce_op),
            _ => is_exact(dtype),
        },
        _ => false,
    }
}

impl<'a> DirectCollective<'a> {
    /// The memory that others read, in the order in which it is shown.
    pub(super) fn lent(&self) -> &'a [Region] {
        if self.small.gives() { self.bindings.given() } else { &[] }
    }

    /// Whether this rank reduces a part of the result.
    pub(super) fn reduces(&self) -> bool {
        self.small.collective.facts().reduces
    }

    /// The ranks whose parts of the result this rank needs, its own among them: one bit for each.
    pub(super) fn needed(&self) -> u32 {
        let SmallCollective { rank, root, size, .. } = self.small;
        match self.small.collective {
            Collective::Broadcast if rank == root => 0,
            Collective::Broadcast => 1 << root,
            Collective::ReduceScatter => 1 << rank,
            _ => u32::MAX >> (u32::BITS - size),
        }
    }

    /// The part of the result that this rank reduces; none if it reduces nothing.
    pub(super) fn own_reduction(&self) -> Option<OwnReduction> {
        let (rank, size) = (self.small.rank as usize, self.small.size as usize);
        let result = self.bindings.output.first()?;
        let block_bytes = result.len();
        match self.small.collective {
            Collective::Allreduce => {
                let part = self.part(self.small.rank);
                let theirs = LentPart { index: 0, blocks: 1, block_bytes, start: part.start };
                let own = result.slice(part);
                Some(OwnReduction { own: own.clone(), into: own, theirs })
            }
            Collective::ReduceScatter => {
                let own = self.bindings.input.get(rank)?.clone();
                let theirs = LentPart { index: rank, blocks: size, block_bytes, start: 0 };
                Some(OwnReduction { own, into: result.clone(), theirs })
            }
            _ => None,
        }
    }

    /// Where the part of the result goes that comes from `source`; none if there is no place.
    pub(super) fn place_of(&self, source: Rank) -> Option<Region> {
        let output = &self.bindings.output;
        match self.small.collective {
            Collective::Allreduce => output.first().map(|whole| whole.slice(self.part(source))),
            Collective::Broadcast => output.first().cloned(),
            _ => output.get(source as usize).cloned(),
        }
    }

    /// Where in the memory of `source` its part of the result lies, which goes to `place`.
    pub(super) fn part_of(&self, source: Rank, place: &Region) -> LentPart {
        let block_bytes = place.len();
        match self.small.collective {
            Collective::Allreduce => {
                let block_bytes = self.bindings.output.first().map_or(0, Region::len);
                LentPart { index: 0, blocks: 1, block_bytes, start: self.part(source).start }
            }
            Collective::Alltoall => {
                let blocks = self.small.size as usize;
                LentPart { index: self.small.rank as usize, blocks, block_bytes, start: 0 }
            }
            _ => LentPart { index: 0, blocks: 1, block_bytes, start: 0 },
        }
    }

    /// The block of this rank's own that `place_of` itself takes; none if none is to be copied.
    pub(super) fn own_block(&self) -> Option<&'a Region> {
        match self.small.collective.facts().input {
            Blocks::All => self.bindings.input.get(self.small.rank as usize),
            _ => self.bindings.input.first(),
        }
    }

    /// The part of the tensor of an allreduce that `rank` reduces.
    fn part(&self, rank: Rank) -> Range<usize> {
        let bytes = self.bindings.output.first().map_or(0, Region::len);
        let step = (bytes / self.small.size as usize).next_multiple_of(PART_STEP_BYTES);
        let [start, end] = [rank, rank + 1].map(|rank| bytes.min(step * rank as usize));
        match rank + 1 == self.small.size {
            true => start..bytes,
            false => start..end,
        }
    }
}

/// Whether the order in which elements are reduced does not matter to the last bit.
fn is_exact(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Bool
            | DType::U8
            | DType::I8
            | DType::U16
            | DType::I16
            | DType::U32
            | DType::I32
            | DType::U64
            | DType::I64
    )
}

/// Whether two floating-point numbers give the same bits in either order: of a positive and a
/// negative zero, the order decides which is the lesser.
fn is_commutative(reduce_op: ReduceOp) -> bool {
    !matches!(reduce_op, ReduceOp::Min | ReduceOp::Max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(collective: Collective, (rank, size): (Rank, u32)) -> SmallCollective {
        let (dtype, reduce_op, root) = (DType::F64, ReduceOp::Sum, size - 1);
        SmallCollective { collective, dtype, reduce_op, root, rank, size }
    }

    #[test]
    fn the_parts_of_an_allreduce_follow_one_another_and_cut_no_element() {
        for size in [2, 3, 5, 8, 16] {
            for bytes in [0, 8, 64, 1000, 4096, 100_008] {
                let bindings = Bindings { input: Vec::new(), output: vec![Region::zeroed(bytes)] };
                let mut end = 0;
                for rank in 0..size {
                    let small = small(Collective::Allreduce, (rank, size));
                    let direct = DirectCollective { small, bindings: &bindings };
                    let own = direct.own_reduction().map(|it| (it.into.len(), it.theirs));
                    let (length, theirs) = own.unwrap_or((0, NOWHERE));
                    assert_eq!((theirs.start, theirs.block_bytes), (end, bytes), "{rank} {size}");
                    assert!(theirs.start % 8 == 0 && direct.needed().count_ones() == size);
                    for source in 0..size {
                        let place = direct.place_of(source).unwrap_or(Region::zeroed(1));
                        let part = direct.part_of(source, &place);
                        assert!(part.start + place.len() <= bytes, "{source} {size} {bytes}");
                    }
                    end += length;
                }
                assert_eq!(end, bytes, "{size}");
            }
        }
    }

    const NOWHERE: LentPart = LentPart { index: 9, blocks: 9, block_bytes: 9, start: 9 };

    #[test]
    fn who_gives_nothing_lends_nothing_and_who_has_all_needs_nobody() {
        let bindings = Bindings { input: Vec::new(), output: vec![Region::zeroed(8)] };
        let of = |rank| {
            let small = small(Collective::Broadcast, (rank, 3));
            DirectCollective { small, bindings: &bindings }
        };
        let facts = [0, 1, 2].map(|rank| (of(rank).lent().len(), of(rank).needed()));
        assert_eq!(facts, [(0, 1 << 2), (0, 1 << 2), (1, 0)]);
    }

    #[test]
    fn only_what_ends_with_the_same_bits_in_any_order_may_go_either_way() {
        let [sum, least] = [ReduceOp::Sum, ReduceOp::Min];
        for reduces in [Collective::Allreduce, Collective::ReduceScatter] {
            let suits = |dtype, op, size| suits_direct(reduces, (dtype, op), size);
            assert!(suits(DType::F32, sum, 2) && !suits(DType::F32, sum, 3));
            assert!(suits(DType::I8, least, 2) && suits(DType::I8, least, 3));
            assert!(!suits(DType::F16, least, 2) && !suits(DType::I8, sum, 1));
        }
        assert!(suits_direct(Collective::Allgather, (DType::F32, least), 5));
        assert!(!suits_direct(Collective::Scatter, (DType::I8, sum), 2));
    }
}
