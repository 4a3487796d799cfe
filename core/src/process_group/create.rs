//! How groups come to be: over a store, and out of other groups. Knows no transport.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{DEFAULT_TIMEOUT, Inner, ProcessGroup, next_identity};
use crate::backend::Backend;
use crate::backend::registry::{self, BackendName, BackendSpec};
use crate::backend::scheduled::ScheduledBackend;
use crate::blocking::block_on;
use crate::store::{PrefixStore, Store};
use crate::{Device, Error, Result};

/// How a group is made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GroupOptions {
    /// Which backend serves which device; `cpu:tcp` by default.
    pub backend: BackendSpec,
    /// Limit of making the group and of its operations; 30 minutes by default.
    pub timeout: Option<Duration>,
    /// Free text that says what the group is for.
    pub description: String,
    /// The device that the group is bound to.
    pub device: Option<Device>,
}

impl GroupOptions {
    /// Sets [`GroupOptions::backend`].
    pub fn backend(mut self, backend: BackendSpec) -> Self {
        self.backend = backend;
        self
    }
    /// Sets [`GroupOptions::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// Sets [`GroupOptions::description`].
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }
    /// Sets [`GroupOptions::device`].
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }
}

impl ProcessGroup {
    /// Makes a group of `size` ranks that meet in `store` under `name`. Blocks until all are there.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] naming the ranks that did not come within the timeout;
    /// [`Error::BackendUnavailable`]; [`Error::InvalidArgument`] for a rank outside of 0..size.
    pub fn new(
        store: Arc<dyn Store>,
        rank: u32,
        size: u32,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        block_on(Self::new_async(store, rank, size, name, options))
    }

    /// As [`ProcessGroup::new`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::new`].
    pub async fn new_async(
        store: Arc<dyn Store>,
        rank: u32,
        size: u32,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        if rank >= size {
            let message = format!("rank must be in 0..{size}, got {rank}");
            return Err(Error::InvalidArgument { message });
        }
        Self::with_members(store, rank, (0..size).collect(), name, options).await
    }

    /// As [`ProcessGroup::new`], for ranks that have the global ranks `members`.
    pub(super) async fn with_members(
        store: Arc<dyn Store>,
        rank: u32,
        members: Vec<u32>,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let store: Arc<dyn Store> = Arc::new(PrefixStore::new(format!("polyrank/{name}"), store));
        let cpu = cpu_backend(&options, &store, rank, members.len() as u32, name, timeout).await?;
        let inner = Inner {
            identity: next_identity(),
            name: name.into(),
            description: options.description.clone(),
            rank,
            members,
            store,
            spec: options.backend.clone(),
            cpu,
            timeout_ms: AtomicU64::new(timeout.as_millis() as u64),
            splits: Mutex::new(HashMap::new()),
            bound_device: options.device,
            monitored_barriers: AtomicU64::new(0),
            options,
        };
        Ok(ProcessGroup { inner: Arc::new(inner) })
    }
}

async fn cpu_backend(
    options: &GroupOptions,
    store: &Arc<dyn Store>,
    rank: u32,
    size: u32,
    name: &str,
    timeout: Duration,
) -> Result<Arc<dyn Backend>> {
    for (_, backend) in &options.backend.devices {
        registry::available(backend)?;
    }
    let serves = |kind: &str| options.backend.devices.iter().any(|(device, _)| device == kind);
    if matches!(options.device, Some(Device::Cuda(_))) && !serves("cuda") {
        let message = format!(
            "the group cannot be bound to a CUDA device: its backends are {}",
            options.backend
        );
        return Err(Error::InvalidArgument { message });
    }
    let cpu = options.backend.devices.iter().find(|(device, _)| device == "cpu");
    let backend = cpu.map_or_else(BackendName::tcp, |(_, backend)| backend.clone());
    let ranks = (rank, size);
    let backend = ScheduledBackend::connect(backend, store, ranks, name, timeout).await?;
    Ok(Arc::new(backend))
}
