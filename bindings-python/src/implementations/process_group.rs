//! `ProcessGroup`: prepared operations, and messages.

use std::time::Duration;

use polyrank::ReduceOp;
use polyrank::backend::WaitIntent;
use polyrank::calls::parameters::process_group::*;
use pyo3::prelude::*;

use super::point_to_point;
use crate::classes::{PreparedOperation, ProcessGroup};
use crate::convert::{Call, raise};

/// Prepares an allreduce of one tensor.
pub(crate) fn prepare_allreduce<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, inner) = (group.py(), &group.get().inner);
    let (tensor, object) = (
        call.tensor(prepare_allreduce::TENSOR)?,
        call.tensor_object(prepare_allreduce::TENSOR)?.unbind(),
    );
    let reduce_op: ReduceOp = call.take(prepare_allreduce::OP)?;
    let timeout: Option<Duration> = call.take(prepare_allreduce::TIMEOUT)?;
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
    let (peer, tag): (u32, u32) = (call.take(send::DST_RANK)?, call.take(send::TAG)?);
    let work = point_to_point::send(
        group.py(),
        &group.get().inner,
        &call,
        (peer, tag),
        WaitIntent::Later,
    )?;
    work.into_object(group.py())
}

/// Receives into a list's one tensor.
pub(crate) fn recv<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (peer, tag): (u32, u32) = (call.take(recv::SRC_RANK)?, call.take(recv::TAG)?);
    let work = point_to_point::recv(
        group.py(),
        &group.get().inner,
        &call,
        (Some(peer), tag),
        WaitIntent::Later,
    )?;
    work.into_object(group.py())
}

/// Receives into a list's one tensor from whoever sends first.
pub(crate) fn recv_anysource<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let tag: u32 = call.take(recv_anysource::TAG)?;
    let work = point_to_point::recv(
        group.py(),
        &group.get().inner,
        &call,
        (None, tag),
        WaitIntent::Later,
    )?;
    work.into_object(group.py())
}
