//! `Window`: calls that return a handle. One that need not be waited for later is over when it
//! returns.

use polyrank::backend::WaitIntent;
use pyo3::prelude::*;

pub(crate) use self::{
    issue as accumulate, issue as compare_and_swap, issue as fence, issue as fetch_and_add,
    issue as flush, issue as get, issue as put, issue as signal, issue as tensor_deregister,
    issue as tensor_register, issue as wait_signal,
};
use super::Answer;
use crate::classes::{Window, Work};
use crate::convert::{Call, detached};

/// Issues the call, and waits for it unless a handle is wanted.
pub(crate) fn issue<'py>(window: &Bound<'py, Window>, call: Call<'py>) -> Answer<'py> {
    let (py, inner) = (window.py(), &window.get().inner);
    let (resolved, objects) = call.into_operation();
    let is_async = resolved.async_op();
    let waiting = if is_async { WaitIntent::Later } else { WaitIntent::Soon };
    let work = detached(py, || resolved.issue_on_window(inner, waiting))?;
    let work = Work::new(work, objects, inner.group().timeout());
    if !is_async {
        work.wait(py, None)?;
    }
    work.into_object(py)
}
