//! The group of a manager as one that never fails: torchft's `ManagedProcessGroup`. Knows no
//! quorum.

use std::fmt;
use std::sync::Arc;

use polyrank::process_group::GroupManager;
use polyrank::{ProcessGroup, ReduceOp, Tensor, Work};

use crate::error::ManagerError;
use crate::manager::Manager;
use crate::shared::Shared;

/// What a handle on the group asks.
struct ManagerOfGroup(Arc<Shared>);

impl Manager {
    /// A handle on [`Manager::group`] for what takes a group and knows no manager: its allreduces
    /// are the manager's, [`ProcessGroup::participants`] is [`Manager::num_participants`], and in a
    /// step no operation raises what becomes of the group. That is known at the vote, which waits
    /// for the allreduces only: wait for other operations before it, and for the quorum before
    /// these. Between two steps, and when the manager has left, what fails raises as always.
    #[must_use]
    pub fn managed_group(&self) -> ProcessGroup {
        self.shared.group.managed_by(Arc::new(ManagerOfGroup(self.shared.clone())))
    }
}

impl GroupManager for ManagerOfGroup {
    fn allreduce(
        &self,
        tensors: Vec<Tensor>,
        op: ReduceOp,
        is_coalesced: bool,
    ) -> polyrank::Result<Work> {
        Ok(self.0.allreduce_work(tensors, op, is_coalesced)?)
    }

    fn step(&self) -> Option<u64> {
        self.0.step()
    }

    fn note_error(&self, step: u64, error: String) -> bool {
        self.0.report(Some(step), ManagerError::Reported(error));
        self.0.step() == Some(step)
    }

    fn report_error(&self, error: String) {
        self.0.report(None, ManagerError::Reported(error));
    }

    fn errored(&self) -> Option<String> {
        self.0.errored().map(|error| error.to_string())
    }

    fn num_participants(&self) -> u32 {
        self.0.num_participants()
    }
}

impl fmt::Debug for ManagerOfGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ManagerOfGroup")
    }
}
