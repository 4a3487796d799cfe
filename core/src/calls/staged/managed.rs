//! Operations of a manager, which reduce tensors in place. Knows nothing of copies.

use crate::calls::Role;
use crate::calls::replicas::ReplicaManagerObject;
use crate::calls::resolve::ResolvedCall;
use crate::generated::error::Result;
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::Tensor;
use crate::work::Work;

/// What a resolved call on a manager does.
#[derive(Debug)]
pub(super) struct ManagedReduction {
    tensors: Vec<Tensor>,
    op: ReduceOp,
    /// Whether each tensor is a reduction of its own.
    is_coalesced: bool,
}

impl ManagedReduction {
    /// What a call asks for.
    pub(super) fn of(mut call: ResolvedCall) -> Result<ManagedReduction> {
        let tensors = call.value_of(Role::InOut).map(|it| it.tensors()).unwrap_or_default();
        let is_coalesced = call.method.name == "allreduce_coalesced";
        let op = call.take_role(Role::Op)?.unwrap_or(ReduceOp::Avg);
        Ok(ManagedReduction { tensors, op, is_coalesced })
    }

    /// Issues it, once there is a quorum.
    pub(super) fn issue(self, manager: &ReplicaManagerObject) -> Result<Work> {
        manager.get()?.allreduce(self.tensors, self.op, self.is_coalesced)
    }
}

impl ResolvedCall {
    /// Issues the operation of a manager that it is.
    ///
    /// # Errors
    /// What is wrong with the call.
    pub fn issue_on_manager(self, manager: &ReplicaManagerObject) -> Result<Work> {
        ManagedReduction::of(self)?.issue(manager)
    }
}
