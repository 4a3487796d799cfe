//! What ranks put into their tensors before a checked call, and what must come out. Plain whole
//! numbers, folded one by one: it shares no code with the kernels that it judges. All results fit
//! every element type, so that they are exact. The scripts of the other languages have the same
//! formulas.

use serde::{Deserialize, Serialize};

use super::operation::Operation;
use polyrank::{DType, ReduceOp};

/// The reductions that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reduction {
    Sum,
    Avg,
    Product,
    Min,
    Max,
    Band,
    Bor,
    Bxor,
}

impl Reduction {
    pub(super) const ALL: [Reduction; 8] = [
        Reduction::Sum,
        Reduction::Avg,
        Reduction::Product,
        Reduction::Min,
        Reduction::Max,
        Reduction::Band,
        Reduction::Bor,
        Reduction::Bxor,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Avg => "avg",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::Band => "band",
            Reduction::Bor => "bor",
            Reduction::Bxor => "bxor",
        }
    }

    /// The reduction of a name; nccl-tests' "prod" too.
    pub(super) fn from_name(name: &str) -> Option<Reduction> {
        let name = if name == "prod" { "product" } else { name };
        Reduction::ALL.into_iter().find(|reduction| reduction.name() == name)
    }

    pub(super) fn reduce_op(self) -> ReduceOp {
        match self {
            Reduction::Sum => ReduceOp::Sum,
            Reduction::Avg => ReduceOp::Avg,
            Reduction::Product => ReduceOp::Product,
            Reduction::Min => ReduceOp::Min,
            Reduction::Max => ReduceOp::Max,
            Reduction::Band => ReduceOp::Band,
            Reduction::Bor => ReduceOp::Bor,
            Reduction::Bxor => ReduceOp::Bxor,
        }
    }

    /// Whether it has a meaning for elements of a type.
    pub(super) fn supports(self, dtype: DType) -> bool {
        let is_float = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
        !(is_float && matches!(self, Reduction::Band | Reduction::Bor | Reduction::Bxor))
    }
}

/// The numbers of one case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) operation: Operation,
    pub(super) reduction: Reduction,
    pub(super) ranks: u32,
    /// Elements of one block.
    pub(super) block_elements: u64,
    pub(super) root: u32,
}

impl Pattern {
    /// What `rank` contributes as element `index` of its input.
    pub(super) fn value(&self, rank: u32, index: u64) -> i64 {
        let (ranks, rank) = (u64::from(self.ranks), u64::from(rank));
        let mixed = index * 31 + rank * 17 + index / 97;
        let value = match self.reduction {
            _ if !self.operation.reduces() => mixed % 113,
            // A sum of all ranks stays below 128.
            Reduction::Sum => mixed % (127 / ranks).clamp(2, 113),
            // A power of two with a small exponent.
            Reduction::Product => {
                1 + u64::from((index + rank).is_multiple_of((ranks / 6 + 1).max(7)))
            }
            // A sum that the number of ranks divides.
            Reduction::Avg => {
                let extra = if index % ranks == rank { ranks } else { 0 };
                index % (100 / ranks).max(1) + extra
            }
            _ => mixed % 113,
        };
        value as i64
    }

    /// What all ranks' elements at `index` reduce to.
    fn reduced(&self, index: u64) -> i64 {
        let values = (0..self.ranks).map(|rank| self.value(rank, index));
        let folded = match self.reduction {
            Reduction::Sum => Some(values.sum()),
            Reduction::Avg => Some(values.sum::<i64>() / i64::from(self.ranks)),
            Reduction::Product => Some(values.product()),
            Reduction::Min => values.min(),
            Reduction::Max => values.max(),
            Reduction::Band => values.reduce(|a, b| a & b),
            Reduction::Bor => values.reduce(|a, b| a | b),
            Reduction::Bxor => values.reduce(|a, b| a ^ b),
        };
        folded.unwrap_or_default()
    }

    /// What every element of the output of `rank` must be if all ranks contribute ones; `None`
    /// where it gets no result.
    pub(super) fn expected_of_ones(&self, rank: u32) -> Option<i64> {
        // Nobody knows when another rank's put is there, but by asking that rank.
        if self.operation == Operation::Put {
            return None;
        }
        self.expected(rank, 0)?;
        let ranks = i64::from(self.ranks);
        Some(match self.reduction {
            _ if !self.operation.reduces() => 1,
            Reduction::Sum => ranks,
            Reduction::Bxor => ranks % 2,
            _ => 1,
        })
    }

    /// What `rank` must find as element `index` of its output; `None` where it gets no result.
    pub(super) fn expected(&self, rank: u32, index: u64) -> Option<i64> {
        let block_elements = self.block_elements.max(1);
        let (block, within) = (index / block_elements, index % block_elements);
        let own = u64::from(rank) * self.block_elements + within;
        match self.operation {
            Operation::Allreduce => Some(self.reduced(index)),
            Operation::Reduce => (rank == self.root).then(|| self.reduced(index)),
            Operation::Broadcast => Some(self.value(self.root, index)),
            Operation::Allgather => Some(self.value(block as u32, within)),
            Operation::Gather => (rank == self.root).then(|| self.value(block as u32, within)),
            Operation::Scatter => Some(self.value(self.root, own)),
            Operation::ReduceScatter => Some(self.reduced(own)),
            Operation::Alltoall => Some(self.value(block as u32, own)),
            Operation::Barrier => None,
            Operation::Sendrecv => Some(self.value((rank + self.ranks - 1) % self.ranks, index)),
            Operation::Pingpong => (rank < 2).then(|| self.value(1 - rank, index)),
            Operation::Put => (rank == 1).then(|| self.value(0, index)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::arguments::MAX_RANKS;
    use super::*;

    fn pattern(operation: Operation, reduction: Reduction, ranks: u32) -> Pattern {
        Pattern { operation, reduction, ranks, block_elements: 50, root: ranks - 1 }
    }

    #[test]
    fn results_fit_every_element_type() {
        for reduction in Reduction::ALL {
            for ranks in 1..=MAX_RANKS {
                let pattern = pattern(Operation::Allreduce, reduction, ranks);
                for index in 0..500 {
                    let result = pattern.expected(0, index).unwrap();
                    assert!((0..=127).contains(&result), "{reduction:?} {ranks} {index}: {result}");
                    let sum: i64 = (0..ranks).map(|rank| pattern.value(rank, index)).sum();
                    let is_exact = sum % i64::from(ranks) == 0 && sum < 256;
                    assert!(reduction != Reduction::Avg || is_exact, "{ranks} {index}: {sum}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_lands_elsewhere_is_seen() {
        let pattern = pattern(Operation::Alltoall, Reduction::Sum, 4);
        let expected = |rank, index| pattern.expected(rank, index).unwrap();
        assert_eq!(expected(2, 0), pattern.value(0, 100));
        assert_eq!(expected(2, 151), pattern.value(3, 101));
        let differ = (0..200).filter(|index| expected(2, *index) != expected(1, *index)).count();
        assert!(differ > 190, "{differ}");
        let moved = (0..200).filter(|index| expected(2, *index) != expected(2, index + 1)).count();
        assert!(moved > 190, "{moved}");
    }

    #[test]
    fn roots_alone_are_judged_where_others_get_nothing() {
        let pattern = pattern(Operation::Reduce, Reduction::Max, 3);
        let of_all = (0..3).map(|rank| pattern.value(rank, 7)).max();
        assert_eq!(pattern.expected(2, 7), of_all);
        assert_eq!(pattern.expected(0, 7), None);
    }
}
