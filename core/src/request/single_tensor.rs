//! A collective call on one contiguous tensor, which needs no lists.

use std::time::Duration;

use crate::completion::WaitIntent;
use crate::generated::collective::{Blocks, Collective};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;

/// A collective of one contiguous tensor, or of one that is read and one that is written.
#[derive(Clone, Copy, Debug)]
pub struct SingleTensorRequest {
    /// The collective.
    pub collective: Collective,
    /// The method as it was called, for messages.
    pub name: &'static str,
    /// The element type; any if there are no tensors.
    pub dtype: DType,
    /// How elements are reduced.
    pub reduce_op: ReduceOp,
    /// The root, 0 where there is none.
    pub root: u32,
    /// Limit of this call; `None` is the group's, zero is none.
    pub timeout: Option<Duration>,
    /// Whether and when the caller waits for it.
    pub waiting: WaitIntent,
    /// By how often the members had been replaced when it was checked, for those; none if it is
    /// for whoever they are.
    pub epoch: Option<u64>,
}

impl SingleTensorRequest {
    /// By what `rank` of `size` divides the sum that it gets, if an average is to be made of it.
    pub(crate) fn divisor(&self, rank: u32, size: u32) -> Option<u32> {
        let facts = self.collective.facts();
        let has_sum = facts.output != Blocks::OneAtRoot || rank == self.root;
        let is_average = self.reduce_op == ReduceOp::Avg && facts.reduces && has_sum;
        let reduced = self.collective.reduced_ranks(rank, size);
        (is_average && reduced > 0).then_some(reduced)
    }
}
