//! `PreparedOperation`.

use std::time::Duration;

use pyo3::prelude::*;

use crate::classes::{PreparedOperation, Work};
use crate::convert::{Call, give, raise, releasing};
use crate::waiting;

/// Starts the operation.
pub(crate) fn start<'py>(
    prepared: &Bound<'py, PreparedOperation>,
    _call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (prepared.py(), prepared.get());
    // The start waits for it as well, but not in slices in which Python handles its signals.
    if let Some(last) = this.inner.last_started().filter(|last| !last.is_done()) {
        releasing(py, || waiting::wait(py, &last, None))?;
    }
    let work = releasing(py, || this.inner.start()).map_err(|error| raise(py, &error))?;
    let timeout = this.timeout.unwrap_or_else(|| this.inner.group().timeout());
    Work::new(work, vec![this.tensor.clone_ref(py)], timeout).into_object(py)
}

/// Waits for what was started last; true.
pub(crate) fn wait<'py>(
    prepared: &Bound<'py, PreparedOperation>,
    mut call: Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let timeout: Option<Duration> = call.take(0)?;
    let py = prepared.py();
    if let Some(work) = prepared.get().inner.last_started() {
        releasing(py, || waiting::wait(py, &work, timeout))?;
    }
    give(py, true)
}
