//! `ProcessGroup`: how groups are made, and messages.

use std::sync::Arc;
use std::time::Duration;

use polyrank::backend::Waiting;
use polyrank::store::Store;
use polyrank::{Error, GroupOptions, ReduceOp, SplitOptions};
use pyo3::prelude::*;

use super::point_to_point;
use super::settings::settings_of;
use crate::classes::{PreparedOperation, ProcessGroup};
use crate::convert::{Call, blocking, detached, give, raise};

/// Joins a group over a store.
pub(crate) fn new(
    py: Python<'_>,
    mut call: Call<'_>,
) -> PyResult<PyClassInitializer<ProcessGroup>> {
    let store = store(py, &call)?;
    let rank: u32 = call.take(1)?;
    let size: u32 = call.take(2)?;
    let backend: Option<String> = call.take(3)?;
    let timeout: Option<Duration> = call.take(4)?;
    let name: Option<String> = call.take(5)?;
    let mut options = GroupOptions::default();
    if let Some(backend) = backend {
        options = options.backend(backend.parse().map_err(|error| raise(py, &error))?);
    }
    if let Some(timeout) = timeout {
        options = options.timeout(timeout);
    }
    let name = name.unwrap_or_else(|| "group".to_owned());
    let inner = detached(py, || polyrank::ProcessGroup::new(store, rank, size, &name, options))?;
    Ok(ProcessGroup { inner }.into())
}

fn store(py: Python<'_>, call: &Call<'_>) -> PyResult<Arc<dyn Store>> {
    call.store(0)?.ok_or_else(|| {
        let message = "'store' must be a Store".to_owned();
        raise(py, &Error::InvalidType { message })
    })
}

/// Makes a group of some of this group's ranks.
pub(crate) fn split_group<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let ranks: Vec<u32> = call.take(0)?;
    let settings = settings_of(group.py(), &call, 2)?;
    let mut options = SplitOptions::default();
    options.timeout = call.take::<Option<Duration>>(1)?.or(settings.timeout);
    let backend = settings.backend.map(|backend| backend.parse()).transpose();
    options.backend = backend.map_err(|error| raise(group.py(), &error))?;
    options.name = call.take::<Option<String>>(3)?.or(settings.group_name);
    options.backend_options = settings.backend_options;
    options.description = call.take(4)?;
    let inner = &group.get().inner;
    blocking(group.py(), || inner.split_group(&ranks, options))
}

/// Joins this group and others into one.
pub(crate) fn merge_remote_group<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let store = store(group.py(), &call)?;
    let size: u32 = call.take(1)?;
    let mut options = SplitOptions::default();
    options.timeout = Some(call.take(2)?);
    options.name = call.take(3)?;
    options.description = call.take(4)?;
    let inner = &group.get().inner;
    blocking(group.py(), || inner.merge_remote_group(store, size, options))
}

/// The device that the group is bound to, if it is.
pub(crate) fn bound_device_id<'py>(
    group: &Bound<'py, ProcessGroup>,
) -> PyResult<Bound<'py, PyAny>> {
    give(group.py(), group.get().inner.bound_device_id())
}

/// Whether the group can change its members; no group of this version can.
pub(crate) fn supports_reconfigure<'py>(
    group: &Bound<'py, ProcessGroup>,
) -> PyResult<Bound<'py, PyAny>> {
    give(group.py(), false)
}

/// Whether the group has windows; no group of this version has.
pub(crate) fn supports_window<'py>(
    group: &Bound<'py, ProcessGroup>,
) -> PyResult<Bound<'py, PyAny>> {
    give(group.py(), false)
}

/// Prepares an allreduce of one tensor.
pub(crate) fn prepare_allreduce<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, inner) = (group.py(), &group.get().inner);
    let (tensor, object) = (call.tensor(0)?, call.tensor_object(0)?.unbind());
    let reduce_op: ReduceOp = call.take(1)?;
    let timeout: Option<Duration> = call.take(2)?;
    let timeout = timeout.filter(|timeout| !timeout.is_zero());
    let prepared = match timeout {
        Some(timeout) => inner.prepare_allreduce(tensor, (reduce_op, timeout)),
        None => inner.prepare_allreduce(tensor, reduce_op),
    };
    let inner = prepared.map_err(|error| raise(py, &error))?;
    Ok(Bound::new(py, PreparedOperation { inner, tensor: object, timeout })?.into_any())
}

/// Sends a list's one tensor.
pub(crate) fn send<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (peer, tag): (u32, u32) = (call.take(1)?, call.take(2)?);
    let work =
        point_to_point::send(group.py(), &group.get().inner, &call, (peer, tag), Waiting::Later)?;
    work.into_object(group.py())
}

/// Receives into a list's one tensor.
pub(crate) fn recv<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (peer, tag): (u32, u32) = (call.take(1)?, call.take(2)?);
    let work = point_to_point::recv(
        group.py(),
        &group.get().inner,
        &call,
        (Some(peer), tag),
        Waiting::Later,
    )?;
    work.into_object(group.py())
}

/// Receives into a list's one tensor from whoever sends first.
pub(crate) fn recv_anysource<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let tag: u32 = call.take(1)?;
    let work =
        point_to_point::recv(group.py(), &group.get().inner, &call, (None, tag), Waiting::Later)?;
    work.into_object(group.py())
}
