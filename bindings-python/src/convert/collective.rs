//! Calls that become collectives: of a group's methods, and of the free functions.

use std::time::Duration;

use polyrank::backend::WaitIntent;
use polyrank::calls::Method;
use polyrank::{ProcessGroup, Request};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::answer::nothing;
use super::call::resolve;
use super::exception::CoreResult;
use super::fast_call::FastCall;
use super::lease::releasing;
use crate::classes::{ProcessGroup as PyProcessGroup, Work};
use crate::coalescing;
use crate::hooks::{note_timeout, with_objects};
use crate::waiting::wait;

/// A method of `group` that is a collective: issues it, without the GIL.
pub(crate) fn collective<'py>(
    group: &Bound<'py, PyProcessGroup>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = group.py();
    let group = &group.get().inner;
    // Looked at where it lies: a move of it costs as much as a step of the operation.
    if keywords.is_none()
        && let Some(fast) = &mut FastCall::of(method, positional)
        && let Some(issued) = fast.run(py, Some(group), WaitIntent::Later)
    {
        let (work, timeout) = issued.or_raise(py)?;
        return Work::new(work, fast.objects(), timeout).into_object(py);
    }
    releasing(py, || {
        let call = resolve(py, method, positional, keywords)?;
        let for_hooks = call.objects_for_hooks(group);
        let (resolved, objects) = call.into_operation();
        let issued = with_objects(for_hooks, || {
            py.detach(|| issue(group, resolved.request_of(group, true)?, WaitIntent::Later))
        });
        let (work, timeout) = issued.or_raise(py)?;
        Work::new(work, objects, timeout).into_object(py)
    })
}

/// A free function that is a collective: a handle if `async_op`, else it waits, unless it is part
/// of a batch.
pub(crate) fn collective_of_default<'py>(
    py: Python<'py>,
    method: &'static Method,
    positional: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    if keywords.is_none()
        && !coalescing::is_open()
        && let Some(fast) = &mut FastCall::of(method, positional)
    {
        let waiting = if fast.async_op { WaitIntent::Later } else { WaitIntent::Soon };
        if let Some(issued) = fast.run(py, None, waiting) {
            let (work, timeout) = issued.or_raise(py)?;
            if fast.async_op {
                return Work::new(work, fast.objects(), timeout).into_object(py);
            }
            if !work.is_success() {
                releasing(py, || wait(py, &work, None))?;
            }
            return nothing(py);
        }
    }
    releasing(py, || {
        let call = resolve(py, method, positional, keywords)?;
        if call.is_operation_left_out()? {
            return nothing(py);
        }
        let group = call.group()?;
        let for_hooks = call.objects_for_hooks(&group);
        let (resolved, objects) = call.into_operation();
        let async_op = resolved.async_op();
        let is_in_batch = coalescing::is_open_for(&group);
        let waiting = if async_op || is_in_batch { WaitIntent::Later } else { WaitIntent::Soon };
        let issued = with_objects(for_hooks, || {
            py.detach(|| {
                let request = resolved.request_of(&group, false)?;
                issue(&group, request, waiting)
            })
        });
        let (work, timeout) = issued.or_raise(py)?;
        if async_op || is_in_batch {
            let work = Bound::new(py, Work::new(work, objects, timeout))?;
            coalescing::add(&group, &work);
            return Ok(if async_op { work.into_any() } else { py.None().into_bound(py) });
        }
        wait(py, &work, None)?;
        nothing(py)
    })
}

/// Issues `request`; its handle and its limit.
fn issue(
    group: &ProcessGroup,
    request: Request,
    waiting: WaitIntent,
) -> polyrank::Result<(polyrank::Work, Duration)> {
    // No limit, or zero, is the group's, as in c10d.
    let own = request.timeout.filter(|timeout| !timeout.is_zero());
    let timeout = own.unwrap_or_else(|| group.timeout());
    if group.is_observed() {
        note_timeout(timeout);
    }
    Ok((group.issue_as(request, waiting)?, timeout))
}
