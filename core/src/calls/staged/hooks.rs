//! What hooks of a language learn of an operation that is prepared. Calls none of them.

use super::{CallerMemory, Cursor, Operation, StagedOperation, State, Tensors};
use crate::completion::WaitIntent;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::check_input;
use crate::tensor::TensorRef;

/// What a prepared operation is.
#[derive(Clone, Copy, Debug)]
pub struct OperationFacts {
    /// c10d's name of it: `ALLREDUCE`.
    pub name: &'static str,
    /// This process's rank in the group.
    pub rank: u32,
    /// The root, or the peer of a message; -1 if there is none.
    pub root: i32,
    /// How elements are reduced, if they are.
    pub reduce_op: Option<ReduceOp>,
}

impl OperationFacts {
    /// The factor of the operator, if it has one.
    pub fn factor(&self) -> Option<f64> {
        match self.reduce_op {
            Some(ReduceOp::PremulSum(factor)) => Some(factor),
            _ => None,
        }
    }
}

impl StagedOperation {
    /// What it is; none if it is issued, or nothing is to be done.
    pub fn facts(&self) -> Option<OperationFacts> {
        let (State::Prepared(operation), Some(group)) = (&self.state, &self.group) else {
            return None;
        };
        let rank = group.rank();
        let facts = |name, root: i32, reduce_op| OperationFacts { name, rank, root, reduce_op };
        Some(match operation {
            Operation::Collective(checked) => {
                let known = group.hook_arguments(checked.request(), WaitIntent::Later);
                facts(known.name, known.root, known.reduce_op)
            }
            Operation::Plain(plain, _) => {
                let known = plain.collective.facts();
                let root = if known.rooted { plain.root as i32 } else { -1 };
                facts(known.capitals, root, known.reduces.then_some(plain.reduce_op))
            }
            Operation::Send { peer, .. } => facts("SEND", *peer as i32, None),
            Operation::Recv { peer: Some(peer), .. } => facts("RECV", *peer as i32, None),
            Operation::Recv { peer: None, .. } => facts("RECVANYSOURCE", -1, None),
            Operation::Permutation { .. } | Operation::Neighbors(..) => facts("ALLTOALL", -1, None),
            Operation::Exchange(exchange) => facts("SENDRECV", exchange.to.0 as i32, None),
            // The group that gets it calls its hooks.
            #[cfg(not(target_family = "wasm"))]
            Operation::Managed(..) => return None,
            // What one rank does alone has no hooks.
            Operation::Window(..) => return None,
            #[cfg(feature = "nccl")]
            Operation::Messages(_) => facts("COALESCED", -1, None),
        })
    }

    /// Positions of the tensors that are read, in the order of the call.
    pub fn inputs(&self) -> &[usize] {
        let read = self.inputs.len().saturating_sub(self.kept_outputs);
        &self.inputs[..read]
    }

    /// Looks for the first element of an input that is not finite. Nothing counts as copied in
    /// afterwards: what is issued is what the memories hold then.
    ///
    /// # Errors
    /// [`Error::NonFiniteInput`](crate::Error::NonFiniteInput) if there is one; those of
    /// [`StagedOperation::copy_in`].
    pub fn check_finite<M: CallerMemory>(
        &mut self,
        memories: &[M],
        allow_infinity: bool,
    ) -> Result<()> {
        let Some(OperationFacts { name, rank, .. }) = self.facts() else { return Ok(()) };
        let copied = self.copy_in(memories, usize::MAX);
        self.copied_in = Cursor::default();
        self.bytes_copied_in = 0;
        copied?;
        let inputs = self.inputs().iter().filter_map(|&position| self.tensors.all.get(position));
        inputs.enumerate().try_for_each(|(position, staging)| {
            let input = TensorRef::of(&staging.tensor);
            check_input(name, rank, position, input, allow_infinity)
        })
    }

    /// As [`StagedOperation::give_up`], for a reason that every rank is told as it is.
    pub fn refuse(&mut self, why: &str) {
        if matches!(self.state, State::Issued(_)) {
            return;
        }
        self.state = State::Over;
        self.tensors = Tensors::default();
        if let Some(group) = &self.group {
            group.abort_next(why);
        }
    }
}
