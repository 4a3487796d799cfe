//! Exchanges between neighbours, which all take tensors. Knows nothing of copies.

use std::time::Duration;

use crate::calls::Role;
use crate::calls::resolve::{ResolvedCall, unsupported};
use crate::completion::WaitIntent;
use crate::generated::error::Result;
use crate::process_group::topology::{NeighborCall, Topology};
use crate::work::Work;

impl ResolvedCall {
    /// Issues the operation of a topology that it is.
    ///
    /// # Errors
    /// Tensors that do not fit the neighbours; those of a broken group.
    pub fn issue_on_topology(self, topology: &Topology, waiting: WaitIntent) -> Result<Work> {
        let (topology, call) = self.neighbor_call(topology)?;
        topology.issue(call, waiting)
    }

    /// What it asks for, and the topology with the limit that it gives, if it does.
    pub(super) fn neighbor_call(&self, topology: &Topology) -> Result<(Topology, NeighborCall)> {
        let timeout: Option<Option<Duration>> = self.look(Role::Timeout)?;
        let topology = match timeout.flatten() {
            Some(timeout) => topology.with_timeout(timeout),
            None => topology.clone(),
        };
        let tensors = |role| self.value_of(role).map(|it| it.tensors()).unwrap_or_default();
        let (name, outputs, inputs) = (self.method.name, tensors(Role::Out), tensors(Role::In));
        let call = NeighborCall::named(name, outputs, inputs);
        Ok((topology, call.ok_or_else(|| unsupported(format!("Topology.{name}")))?))
    }
}
