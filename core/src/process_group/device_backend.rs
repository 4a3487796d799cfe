//! What serves one kind of device in a group, as users see it. Knows no particular backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::ProcessGroup;
use crate::backend::registry::BackendName;
use crate::backend::{Backend, BackendType, Capabilities};
use crate::generated::error::{Error, Result};
use crate::tensor::{Device, Tensor};

/// What runs a group's operations on one kind of device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceBackend {
    name: BackendName,
    backend: Arc<dyn Backend>,
    group: ProcessGroup,
}

impl ProcessGroup {
    /// The backend that serves the tensors of a device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if none does; [`Error::InvalidGroup`] if the group was destroyed.
    pub fn get_backend(&self, device: Device) -> Result<DeviceBackend> {
        self.unless_left()?;
        let kind = if matches!(device, Device::Cpu) { "cpu" } else { "cuda" };
        let backend = match (device, &self.inner.cuda) {
            (Device::Cpu, _) => Some(self.inner.cpu.clone()),
            // By way of the host.
            (Device::Cuda(_), None) if self.inner.spec.stages_cuda() => {
                Some(self.inner.cpu.clone())
            }
            (Device::Cuda(_), cuda) => cuda.clone(),
        };
        let named = self.inner.spec.backend_for(kind);
        // Tensors of the host are served in every group.
        let name = named.unwrap_or_else(BackendName::tcp);
        let backend = backend.ok_or_else(|| Error::InvalidArgument {
            message: format!(
                "get_backend: no backend of group '{}' serves {device}; its backends are {}",
                self.group_name(),
                self.inner.spec
            ),
        })?;
        let group = self.clone();
        Ok(DeviceBackend { name, backend, group })
    }

    /// Whether the other ranks do not exist.
    pub(crate) fn is_alone(&self) -> bool {
        self.inner.cpu.is_alone()
    }
}

impl DeviceBackend {
    /// The backend's name, lower case, as it was asked for: `tcp`, `gloo`.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.group.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// The kind of it, in c10d's terms.
    pub fn backend_type(&self) -> BackendType {
        BackendType::of(self.name.as_str())
    }

    /// What it can do in this group.
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// Limit of the group's operations.
    pub fn timeout(&self) -> Duration {
        self.group.timeout()
    }

    /// The group that it serves.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }
}

/// A short description for debugging, the same in every language.
impl fmt::Debug for DeviceBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, group) = (self.name, self.group.group_name());
        write!(f, "DeviceBackend({name} of {group}, rank {} of {})", self.rank(), self.size())
    }
}

/// The device on which `first` and all others are.
pub(super) fn one_device<'a>(
    name: &str,
    first: &Tensor,
    mut others: impl Iterator<Item = &'a Tensor>,
) -> Result<Device> {
    let device = first.device();
    match others.find(|other| other.device() != device) {
        None => Ok(device),
        Some(other) => {
            let other = other.device();
            let message = format!(
                "{name}: all tensors of a call must be on one device, got {device} and {other}"
            );
            Err(Error::InvalidArgument { message })
        }
    }
}
