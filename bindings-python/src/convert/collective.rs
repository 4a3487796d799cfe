//! Calls that become collectives: of a group's methods, and of the free functions.

use polyrank::calls::Method;
use polyrank::{ProcessGroup, distributed};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::call::resolve;
use super::exception::raise;
use super::lease::releasing;
use crate::generated::process_group::ProcessGroup as PyProcessGroup;
use crate::work::{Work, wait};

/// A method of `group` that is a collective: issues it, without the GIL.
pub(crate) fn collective<'py>(
    py: Python<'py>,
    group: &ProcessGroup,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Work> {
    releasing(py, || {
        let call = resolve(py, method, positional, keywords)?;
        let outputs = call.outputs();
        let resolved = call.into_resolved();
        let work = py.detach(|| group.issue(resolved.request(group.size())?));
        Ok(Work::new(work.map_err(|error| raise(py, &error))?, outputs))
    })
}

/// A free function that is a collective: a handle if `async_op`, else it waits.
pub(crate) fn distributed_collective<'py>(
    py: Python<'py>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Work>> {
    releasing(py, || {
        let call = resolve(py, method, positional, keywords)?;
        let group = match call.group() {
            Some(group) => Some(group.cast::<PyProcessGroup>()?.get().inner.clone()),
            None => None,
        };
        let outputs = call.outputs();
        let resolved = call.into_resolved();
        let async_op = resolved.async_op();
        let work = py.detach(|| {
            let group = distributed::group_or_default(group.as_ref())?;
            let request = resolved.request_in(group.size(), |rank| group.group_rank(rank))?;
            group.issue(request)
        });
        let work = work.map_err(|error| raise(py, &error))?;
        if async_op {
            return Ok(Some(Work::new(work, outputs)));
        }
        wait(py, &work, None)?;
        Ok(None)
    })
}
