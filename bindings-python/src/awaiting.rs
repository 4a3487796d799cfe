//! `await`: tells an asyncio loop of the end of an operation, without a thread. Knows no classes.

use polyrank::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::convert::raise;
use crate::ending::attach;

/// An iterator for `__await__`: ends with `value` when `work` is complete, or raises its error.
/// Needs a running asyncio loop, and nothing else.
pub(crate) fn awaitable<'py>(
    py: Python<'py>,
    work: &polyrank::Work,
    value: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let running_loop = RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?;
    let event_loop = running_loop.call0().map_err(|_| {
        PyRuntimeError::new_err(
            "no asyncio loop runs in this thread. A Work or a Future is awaited in asyncio (uvloop \
             too); elsewhere, as in trio, call its wait() in a thread: \
             await trio.to_thread.run_sync(work.wait)",
        )
    })?;
    let future = event_loop.call_method0("create_future")?;
    if work.is_done() || py.detach(|| work.is_completed_soon()) {
        let outcome = outcome(py, work.error(), value);
        settle_future(&future, outcome)?;
        return future.call_method0("__await__");
    }
    let (event_loop, waiting) = (event_loop.unbind(), future.clone().unbind());
    work.on_done(move |result| {
        let error = result.as_ref().err().cloned();
        attach(|py| tell_loop(py, &event_loop, &waiting, error, value));
    });
    future.call_method0("__await__")
}

/// Tells a future's loop, from any thread, to settle it.
fn tell_loop(
    py: Python<'_>,
    event_loop: &Py<PyAny>,
    future: &Py<PyAny>,
    error: Option<Error>,
    value: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>,
) {
    let told = settle_function(py).and_then(|settle| {
        let (value, error) = match outcome(py, error, value) {
            Ok(value) => (value, py.None()),
            Err(error) => (py.None(), error.into_value(py).into_any()),
        };
        event_loop.call_method1(py, "call_soon_threadsafe", (settle, future, value, error))
    });
    // A loop that was closed meanwhile raises RuntimeError; nobody waits on it any more.
    drop(told);
}

fn outcome(
    py: Python<'_>,
    error: Option<Error>,
    value: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyAny>> {
    match error {
        Some(error) => Err(raise(py, &error)),
        None => value(py),
    }
}

fn settle_function(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    static SETTLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    SETTLE.get_or_try_init(py, || Ok(wrap_pyfunction!(settle, py)?.into_any().unbind()))
}

/// Runs in the loop's thread. The future may be cancelled meanwhile.
#[pyfunction]
fn settle(
    future: &Bound<'_, PyAny>,
    value: Py<PyAny>,
    error: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    settle_future(future, error.map_or(Ok(value), |error| Err(PyErr::from_value(error))))
}

fn settle_future(future: &Bound<'_, PyAny>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    match outcome {
        Ok(value) => future.call_method1("set_result", (value,))?,
        Err(error) => future.call_method1("set_exception", (error.into_value(future.py()),))?,
    };
    Ok(())
}
