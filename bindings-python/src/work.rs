//! `Work`: the handle on an operation, for threads, tasks and polling.

use std::time::{Duration, Instant};

use polyrank::Error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::convert::{exception, raise, releasing};
use crate::future::{Future, Source};

/// How long a wait goes on without looking whether Python has a signal to handle.
const SLICE: Duration = Duration::from_millis(100);

/// A handle on an operation that was issued.
///
/// Wait for it on a thread (`wait`), in a task (`await`), or look at it now and then
/// (`is_completed`). The tensors of the operation must not be touched before it is complete.
#[pyclass(frozen, module = "polyrank._core")]
pub(crate) struct Work {
    inner: polyrank::Work,
    /// The objects that hold the result, in one flat list.
    outputs: Vec<Py<PyAny>>,
}

impl Work {
    /// A handle on `inner`, whose results are in the memory of `outputs`.
    pub(crate) fn new(inner: polyrank::Work, outputs: Vec<Py<PyAny>>) -> Work {
        Work { inner, outputs }
    }

    /// The core's handle.
    pub(crate) fn inner(&self) -> &polyrank::Work {
        &self.inner
    }

    /// The objects that hold the result.
    pub(crate) fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.outputs)
    }
}

#[pymethods]
impl Work {
    /// Waits until the operation is complete; true. Raises what the operation failed with.
    ///
    /// With a `timeout` it waits no longer than that and raises `WaitTimeoutError`; the operation
    /// goes on, and a later `wait` may succeed. None, or zero, is no limit of its own.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Bound<'_, PyAny>>) -> PyResult<bool> {
        let timeout = timeout.map(|timeout| duration(&timeout)).transpose()?;
        releasing(py, || wait(py, &self.inner, timeout))?;
        Ok(true)
    }

    /// Whether the operation ended, well or not. Does not wait.
    fn is_completed(&self, py: Python<'_>) -> bool {
        releasing(py, || py.detach(|| self.inner.is_completed()))
    }

    /// Whether the operation ended well. Does not wait.
    fn is_success(&self, py: Python<'_>) -> bool {
        releasing(py, || py.detach(|| self.inner.is_completed() && self.inner.is_success()))
    }

    /// What the operation failed with, if it did. Does not wait.
    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.inner.error().map(|error| exception(py, &error)).transpose()
    }

    /// A future of the output tensors.
    fn get_future(slf: &Bound<'_, Self>) -> Future {
        Future::new(Source::Outputs(slf.clone().unbind()))
    }

    /// A future of how the operation ended, a number of `WorkResult`. It never raises.
    fn get_future_result(slf: &Bound<'_, Self>) -> Future {
        Future::new(Source::Status(slf.clone().unbind()))
    }

    /// The output tensors, in one flat list.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.outputs(py)
    }

    /// The rank, in the group, that sent what was received.
    fn source_rank(&self, py: Python<'_>) -> PyResult<u32> {
        self.inner.source_rank().ok_or_else(|| {
            let message = "sourceRank() may only be called on work objects that correspond to a \
                           recv or recv-from-any call that is complete."
                .to_owned();
            raise(py, &Error::InvalidArgument { message })
        })
    }

    /// The rank, in the group, that sent what was received: c10d's private name.
    fn _source_rank(&self, py: Python<'_>) -> PyResult<u32> {
        self.source_rank(py)
    }

    /// Orders the device's current stream after the operation. Without a device: `wait`.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        releasing(py, || wait(py, &self.inner, None))
    }

    /// This handle; there for c10d's callers.
    fn boxed(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The handle that `boxed` gave.
    #[staticmethod]
    fn unbox(boxed: Py<Self>) -> Py<Self> {
        boxed
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let value = true.into_pyobject(slf.py())?.to_owned().into_any().unbind();
        awaitable(slf.py(), &slf.get().inner, move |_| Ok(value))
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.inner)
    }
}

/// Waits for `work` without the GIL, in slices, so that Ctrl-C and other signals are handled.
pub(crate) fn wait(
    py: Python<'_>,
    work: &polyrank::Work,
    timeout: Option<Duration>,
) -> PyResult<()> {
    let start = Instant::now();
    let timeout = timeout.filter(|timeout| !timeout.is_zero());
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        match py.detach(|| work.wait_slice(slice)) {
            Some(result) => return result.map_err(|error| raise(py, &error)),
            None => py.check_signals()?,
        }
        if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
            return Err(raise(
                py,
                &Error::WaitTimeout {
                    collective: work.name().to_owned(),
                    sequence: work.sequence(),
                    waited_ms: start.elapsed().as_millis() as u64,
                },
            ));
        }
    }
}

/// An iterator for `__await__`: ends with `value` when `work` is complete, or raises its error.
/// Needs a running asyncio loop, and nothing else.
pub(crate) fn awaitable<'py>(
    py: Python<'py>,
    work: &polyrank::Work,
    value: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let event_loop = RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0()?;
    let future = event_loop.call_method0("create_future")?;
    if py.detach(|| work.is_completed()) {
        let outcome = outcome(py, work.error(), value);
        settle_future(&future, outcome)?;
        return future.call_method0("__await__");
    }
    let (event_loop, waiting) = (event_loop.unbind(), future.clone().unbind());
    work.on_done(move |result| {
        let error = result.as_ref().err().cloned();
        // A failure to attach means that the interpreter is ending, and the loop with it.
        let _ = Python::try_attach(|py| tell_loop(py, &event_loop, &waiting, error, value));
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

/// A timedelta, or a number of seconds.
fn duration(timeout: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = match timeout.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => timeout
            .call_method0("total_seconds")
            .and_then(|seconds| seconds.extract::<f64>())
            .map_err(|_| {
                PyTypeError::new_err("timeout must be a timedelta, a number of seconds, or None")
            })?,
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("timeout must not be negative, but is {seconds} s"))
    })
}
