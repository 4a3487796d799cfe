//! Options of operations: `Default`, and a builder method for each field.

use std::time::Duration;

use super::reduce_op::ReduceOp;

/// Options of an allreduce.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AllreduceOptions {
    /// How elements are reduced.
    pub reduce_op: ReduceOp,
    /// Limit of this operation; `None` is the group's.
    pub timeout: Option<Duration>,
}

impl AllreduceOptions {
    /// Sets [`AllreduceOptions::reduce_op`].
    pub fn reduce_op(mut self, reduce_op: ReduceOp) -> Self {
        self.reduce_op = reduce_op;
        self
    }
    /// Sets [`AllreduceOptions::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}
