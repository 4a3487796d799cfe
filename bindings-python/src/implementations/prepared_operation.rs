//! `PreparedOperation`.

use std::time::Duration;

use polyrank::calls::parameters::prepared_operation::*;
use pyo3::prelude::*;

use super::Answer;
use crate::classes::{PreparedOperation, Work};
use crate::convert::{Call, CoreResult, give, nothing, releasing};
use crate::hooks::{CallObjects, with_objects};
use crate::waiting;

/// Starts the operation and waits for it.
pub(crate) fn run<'py>(prepared: &Bound<'py, PreparedOperation>, _call: Call<'py>) -> Answer<'py> {
    let (py, this) = (prepared.py(), prepared.get());
    let started = with_objects(for_hooks(py, this), || releasing(py, || this.inner.start_soon()));
    let started = started.or_raise(py)?;
    if let Some(work) = started {
        releasing(py, || waiting::wait(py, &work, None))?;
    }
    nothing(py)
}

/// Starts the operation.
pub(crate) fn start<'py>(
    prepared: &Bound<'py, PreparedOperation>,
    _call: Call<'py>,
) -> Answer<'py> {
    let (py, this) = (prepared.py(), prepared.get());
    let work = with_objects(for_hooks(py, this), || releasing(py, || this.inner.start()));
    let work = work.or_raise(py)?;
    Work::new(work, this.objects.clone_ref(py), this.inner.timeout()).into_object(py)
}

/// Waits for what was started last; true.
pub(crate) fn wait<'py>(
    prepared: &Bound<'py, PreparedOperation>,
    mut call: Call<'py>,
) -> Answer<'py> {
    let timeout: Option<Duration> = call.take(wait::TIMEOUT)?;
    let py = prepared.py();
    if let Some(work) = prepared.get().inner.last_started() {
        releasing(py, || waiting::wait(py, &work, timeout))?;
    }
    give(py, true)
}

/// The objects of the tensors, for the hooks of the group, if that has any.
fn for_hooks(py: Python<'_>, prepared: &PreparedOperation) -> Option<CallObjects> {
    let PreparedOperation { inner, tensors, objects, .. } = prepared;
    let tensors = tensors.iter().map(|(tensor, object)| (tensor.clone(), object.clone_ref(py)));
    inner.group().is_observed().then(|| CallObjects {
        tensors: tensors.collect(),
        outputs: objects.clone_ref(py),
        timeout: inner.timeout(),
    })
}
