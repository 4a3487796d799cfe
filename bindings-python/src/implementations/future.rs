//! `Future`.

use polyrank::calls::parameters::future::then;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::Answer;
use crate::classes::Future;
use crate::convert::{Call, give, nothing, releasing};
use crate::future;

/// Waits for the value.
pub(crate) fn wait<'py>(future: &Bound<'py, Future>, _call: Call<'py>) -> Answer<'py> {
    let py = future.py();
    releasing(py, || Ok(future.get().source.wait(py)?.into_bound(py)))
}

/// Whether the value, or the failure, is there.
pub(crate) fn done<'py>(future: &Bound<'py, Future>, _call: Call<'py>) -> Answer<'py> {
    give(future.py(), future.get().source.is_done(future.py()))
}

/// The value, if it is there.
pub(crate) fn value<'py>(future: &Bound<'py, Future>, _call: Call<'py>) -> Answer<'py> {
    Ok(future.get().source.value(future.py())?.into_bound(future.py()))
}

/// A future of what the callback returns.
pub(crate) fn then<'py>(future: &Bound<'py, Future>, call: Call<'py>) -> Answer<'py> {
    let source = future::then(future, callback(&call)?);
    future::object(future.py(), source)
}

/// Calls the callback when the future is done.
pub(crate) fn add_done_callback<'py>(future: &Bound<'py, Future>, call: Call<'py>) -> Answer<'py> {
    let callback = callback(&call)?;
    future::when_done(future, move |py, future| {
        if let Err(error) = callback.call1(py, (future,)) {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
    nothing(future.py())
}

fn callback(call: &Call<'_>) -> PyResult<Py<PyAny>> {
    let callback = call.object(then::CALLBACK).map(|callback| callback.clone().unbind());
    callback.ok_or_else(|| PyTypeError::new_err("the callback must be callable"))
}
