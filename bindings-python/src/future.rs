//! `Future`: a value that is there when an operation is complete.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polyrank::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::convert::{raise, releasing};
use crate::work::{Work, awaitable, wait};

/// How long a wait goes on without looking whether Python has a signal to handle.
const SLICE: Duration = Duration::from_millis(50);

/// Where a future's value comes from.
pub(crate) enum Source {
    /// The output tensors of an operation.
    Outputs(Py<Work>),
    /// How an operation ended, as a number.
    Status(Py<Work>),
    /// What a callback of `then` returns, which runs when the operation is complete.
    Callback(Py<Work>, Arc<Promise>),
}

/// What a callback returned or raised, once it ran.
#[derive(Default)]
pub(crate) struct Promise {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<PyResult<Py<PyAny>>>,
    callbacks: Vec<Box<dyn FnOnce(Python<'_>) + Send>>,
}

/// A value that is there when an operation is complete.
#[pyclass(frozen, module = "polyrank._core")]
pub(crate) struct Future {
    source: Source,
}

impl Future {
    /// A future of what `source` gives.
    pub(crate) fn new(source: Source) -> Future {
        Future { source }
    }

    /// The operation at the bottom.
    fn work(&self) -> &Py<Work> {
        match &self.source {
            Source::Outputs(work) | Source::Status(work) | Source::Callback(work, _) => work,
        }
    }
}

#[pymethods]
impl Future {
    /// Waits for the value, and returns it or raises what the operation failed with.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        releasing(py, || {
            let ended = wait(py, self.work().get().inner(), None);
            // A signal's exception ends the wait; the operation's own error is part of the value.
            if let (Err(error), false) = (ended, self.work().get().inner().is_completed()) {
                return Err(error);
            }
            if let Source::Callback(_, promise) = &self.source {
                promise.wait(py)?;
            }
            self.value(py)
        })
    }

    /// Whether the value, or the failure, is there. Does not wait.
    fn done(&self, py: Python<'_>) -> bool {
        match &self.source {
            Source::Callback(_, promise) => promise.is_settled(),
            _ => py.detach(|| self.work().get().inner().is_completed()),
        }
    }

    /// The value; raises if it is not there.
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let work = self.work().get();
        if !self.done(py) {
            return Err(PyRuntimeError::new_err(
                "the future's value is not there yet; wait for it",
            ));
        }
        match &self.source {
            Source::Callback(_, promise) => promise.outcome(py),
            Source::Status(_) => {
                Ok(status(work.inner().error().as_ref()).into_pyobject(py)?.into_any().unbind())
            }
            Source::Outputs(_) => match work.inner().error() {
                Some(error) => Err(raise(py, &error)),
                None => Ok(work.outputs(py)?.into_any().unbind()),
            },
        }
    }

    /// Calls `callback` with this future when it is done; a future of what the callback returns.
    fn then(slf: &Bound<'_, Self>, callback: Py<PyAny>) -> Future {
        let promise = Arc::new(Promise::default());
        let kept = promise.clone();
        when_done(slf, move |py, future| {
            kept.settle(py, callback.call1(py, (future,)));
        });
        let work = slf.get().work().clone_ref(slf.py());
        Future::new(Source::Callback(work, promise))
    }

    /// Calls `callback` with this future when it is done.
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>) {
        when_done(slf, move |py, future| {
            if let Err(error) = callback.call1(py, (future,)) {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        });
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let future = slf.clone().unbind();
        let py = slf.py();
        awaitable(py, slf.get().work().get().inner(), move |py| future.get().wait(py))
    }
}

/// Calls `f` when `future` is done, at once if it is. On any thread, with the GIL.
fn when_done(future: &Bound<'_, Future>, f: impl FnOnce(Python<'_>, Py<Future>) + Send + 'static) {
    let this = future.clone().unbind();
    match &future.get().source {
        Source::Callback(_, promise) => promise.on_settled(future.py(), |py| f(py, this)),
        Source::Outputs(work) | Source::Status(work) => work.get().inner().on_done(move |_| {
            // A failure to attach means that the interpreter is ending.
            let _ = Python::try_attach(|py| f(py, this));
        }),
    }
}

impl Promise {
    fn settle(&self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) {
        let callbacks = {
            let mut state = self.lock();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.callbacks)
        };
        self.settled.notify_all();
        for callback in callbacks {
            callback(py);
        }
    }

    fn on_settled(&self, py: Python<'_>, f: impl FnOnce(Python<'_>) + Send + 'static) {
        {
            let mut state = self.lock();
            if state.outcome.is_none() {
                state.callbacks.push(Box::new(f));
                return;
            }
        }
        f(py);
    }

    fn is_settled(&self) -> bool {
        self.lock().outcome.is_some()
    }

    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.lock().outcome {
            Some(Ok(value)) => Ok(value.clone_ref(py)),
            Some(Err(error)) => Err(error.clone_ref(py)),
            None => Err(PyRuntimeError::new_err("the future's value is not there yet")),
        }
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        while !self.is_settled() {
            py.detach(|| {
                let state = self.lock();
                if state.outcome.is_none() {
                    drop(self.settled.wait_timeout(state, SLICE));
                }
            });
            py.check_signals()?;
        }
        Ok(())
    }

    /// The state. Nobody runs Python code or waits for the GIL while holding it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// c10d's `WorkResult`: success 0, timeout 1, communication error 2, anything else 100.
fn status(error: Option<&Error>) -> u8 {
    match error {
        None => 0,
        Some(Error::CollectiveTimeout { .. }) => 1,
        Some(Error::RankFailed { .. } | Error::Network { .. } | Error::Aborted { .. }) => 2,
        Some(_) => 100,
    }
}
