//! `ProcessGroup`: prepared operations, and messages.

use std::time::Duration;

use polyrank::ReduceOp;
use polyrank::backend::WaitIntent;
use polyrank::calls::parameters::process_group::prepare_allreduce;
use pyo3::prelude::*;

pub(crate) use self::{message as recv, message as recv_anysource, message as send};
use super::Answer;
use super::point_to_point;
use crate::classes::{PreparedOperation, ProcessGroup};
use crate::convert::{Call, CoreResult};

/// Prepares an allreduce of one tensor.
pub(crate) fn prepare_allreduce<'py>(
    group: &Bound<'py, ProcessGroup>,
    mut call: Call<'py>,
) -> Answer<'py> {
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
    let inner = prepared.or_raise(py)?;
    Ok(Bound::new(py, PreparedOperation { inner, tensor: object, timeout })?.into_any())
}

/// Sends a list's one tensor, or receives into it.
pub(crate) fn message<'py>(group: &Bound<'py, ProcessGroup>, call: Call<'py>) -> Answer<'py> {
    let work = point_to_point::issue(group.py(), &group.get().inner, call, WaitIntent::Later)?;
    work.into_object(group.py())
}
