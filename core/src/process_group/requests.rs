//! Requests are made, checked and issued for the members of one moment: where others took their
//! place meanwhile, that is what is said. Knows no operation.

use std::sync::Arc;

use super::check::{self, CheckedRequest};
use super::device_backend::one_device;
use super::{Inner, ProcessGroup};
use crate::backend::Backend;
use crate::generated::error::{Error, Result};
use crate::request::{Request, TypedCall};
use crate::tensor::{Device, Tensor};

impl ProcessGroup {
    /// The request of `call` by this rank.
    ///
    /// # Errors
    /// What is wrong with the call; [`Error::Reconfigured`] if the members were replaced meanwhile.
    pub(crate) fn request(&self, call: TypedCall) -> Result<Request> {
        self.request_among(call.name(), |rank, size| call.request(rank, size))
    }

    /// What `make` makes of this rank and the number of ranks, for the operation `name`.
    ///
    /// # Errors
    /// Those of `make`; [`Error::Reconfigured`] if the members were replaced meanwhile.
    pub(crate) fn request_among(
        &self,
        name: &str,
        make: impl FnOnce(u32, u32) -> Result<Request>,
    ) -> Result<Request> {
        let members = &**self.inner;
        #[cfg(not(target_family = "wasm"))]
        if self.is_managers(name) {
            // Whoever they are when it is run: the tensors are the same for all.
            return make(members.rank, members.size().max(1));
        }
        let epoch = members.epoch;
        #[cfg(not(target_family = "wasm"))]
        if members.size() == 0 && self.swallows() {
            // It is not run, and gives back the tensors that it has.
            return Ok(Request { epoch: Some(epoch), ..make(0, 1)? });
        }
        let made = make(members.rank, members.size());
        // What it asked the group itself, others may have answered.
        let checked = self.check_epoch(epoch, name);
        #[cfg(not(target_family = "wasm"))]
        let checked = checked.or_else(|error| self.unless_swallowed(error));
        checked?;
        Ok(Request { epoch: Some(epoch), ..made? })
    }

    /// An error that is found again where the operation is issued, unless this handle keeps it
    /// there for itself.
    #[cfg(not(target_family = "wasm"))]
    fn unless_swallowed(&self, error: Error) -> Result<()> {
        if self.swallows() { Ok(()) } else { Err(error) }
    }

    /// Checks whether `request` makes sense on this rank.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn check(&self, request: Request) -> Result<CheckedRequest> {
        let members = self.present_members(request.name)?;
        let epoch = request.epoch.unwrap_or(members.epoch);
        #[cfg(not(target_family = "wasm"))]
        if self.is_managers(request.name) || members.size() == 0 {
            return Ok(CheckedRequest { request, operations: Vec::new(), epoch });
        }
        let checked = members.check_epoch(epoch, request.name, &self.inner);
        #[cfg(not(target_family = "wasm"))]
        if checked.is_err() && self.swallows() {
            // It fails where it is issued.
            return Ok(CheckedRequest { request, operations: Vec::new(), epoch });
        }
        checked?;
        let request = self.hinted(request);
        let operations = check::check(&request, members.rank, members.size())?;
        Ok(CheckedRequest { request, operations, epoch })
    }

    /// The members, if they are those of `epoch`, for whom the operation `name` was checked.
    ///
    /// # Errors
    /// [`Error::Reconfigured`] if they are others.
    pub(super) fn members_of(&self, epoch: u64, name: &str) -> Result<&Inner> {
        let members = &**self.inner;
        members.check_epoch(epoch, name, &self.inner).map(|()| members)
    }
}

impl Inner {
    /// The backend for the tensors' device. Without tensors, it is that of the device to which the
    /// group is bound, unless a backend for the CPU was requested.
    pub(super) fn backend_for<'a>(
        &self,
        name: &str,
        mut tensors: impl Iterator<Item = &'a Tensor>,
    ) -> Result<Arc<dyn Backend>> {
        let Some(first) = tensors.next() else {
            let bound = matches!(self.bound_device, Some(Device::Cuda(_)));
            let cuda = self.cuda.as_ref();
            let cuda = cuda.filter(|_| bound && !self.spec.serves("cpu"));
            return Ok(cuda.unwrap_or(&self.cpu).clone());
        };
        let device = one_device(name, first, tensors)?;
        match (device, &self.cuda) {
            (Device::Cpu, _) => Ok(self.cpu.clone()),
            (Device::Cuda(_), Some(cuda)) => Ok(cuda.clone()),
            (Device::Cuda(_), None) => Err(Error::InvalidArgument {
                message: format!(
                    "{name}: a tensor is on {device}, and the group's backends are {}: none serves \
                     CUDA tensors. Make the group with 'cpu:tcp,cuda:nccl'",
                    self.spec
                ),
            }),
        }
    }
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::generated::collective::Collective;
    use crate::process_group::{GroupOptions, ReconfigureOptions};

    #[test]
    fn what_was_made_before_members_came_is_not_said_to_be_wrong() {
        let group = ProcessGroup::without_members(None, "g", GroupOptions::default()).unwrap();
        let nothing = |_, _| Ok(Request::new(Collective::Allreduce));
        let early = group.request_among("allreduce", nothing).unwrap();
        assert!(matches!(group.check(early.clone()), Err(Error::NoMembers { .. })));
        let handle = group.get_reconfigure_handle().unwrap();
        group.reconfigure(ReconfigureOptions::new(1, [handle])).unwrap().wait(None).unwrap();
        let error = group.check(early).unwrap_err();
        assert!(matches!(error, Error::Reconfigured { .. }), "{error:?}");
        // Also where it is the making that others came into.
        let error = group.request_among("broadcast", |_, _| {
            let handle = group.get_reconfigure_handle()?;
            group.reconfigure(ReconfigureOptions::new(2, [handle]))?.wait(None)?;
            Ok(Request::new(Collective::Broadcast))
        });
        assert!(matches!(error, Err(Error::Reconfigured { .. })), "{error:?}");
    }
}
