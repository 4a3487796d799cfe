//! Futures: values that are there when an operation is complete. Knows nothing of calls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use polyrank::WorkResult;
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit};

use crate::awaiting::awaitable;
use crate::classes::Work;
use crate::convert::raise;
use crate::ending::attach;
use crate::waiting::{SLICE, wait};

/// A value that is there when an operation is complete.
#[pyclass(frozen, subclass, weakref, module = "polyrank")]
pub(crate) struct Future {
    pub(crate) source: Source,
}

/// Hands a source to the class that [`object`] makes, once.
#[pyclass(frozen, module = "polyrank")]
struct SourceOfFuture(Mutex<Option<Source>>);

/// A future of `source`, of the class that is one of `concurrent.futures` too.
pub(crate) fn object(py: Python<'_>, source: Source) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.import(py, "polyrank._future", "Future")?;
    class.call1((SourceOfFuture(Mutex::new(Some(source))),))
}

#[pymethods]
impl Future {
    #[new]
    fn new(source: &Bound<'_, SourceOfFuture>) -> PyResult<Future> {
        let source = source.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let source = source.ok_or_else(|| PyTypeError::new_err("a Future is what works return"))?;
        Ok(Future { source })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.source.work())?;
        match &self.source {
            Source::Callback(_, promise) => promise.visit(&visit),
            _ => Ok(()),
        }
    }

    /// A callback may have returned its own future.
    fn __clear__(&self) {
        if let Source::Callback(_, promise) = &self.source {
            promise.clear();
        }
    }

    fn __repr__(&self) -> String {
        format!("Future({})", self.source.work().get().inner)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let future = slf.clone().unbind();
        let work = slf.get().source.work().get();
        awaitable(slf.py(), &work.inner, move |py| future.get().source.wait(py))
    }
}

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

type Callback = Box<dyn FnOnce(Python<'_>) + Send>;

#[derive(Default)]
struct State {
    /// What it raised is an object: Python's collector looks for those.
    outcome: Option<Result<Py<PyAny>, Py<PyBaseException>>>,
    callbacks: Vec<Callback>,
}

impl Source {
    /// The operation at the bottom.
    pub(crate) fn work(&self) -> &Py<Work> {
        match self {
            Source::Outputs(work) | Source::Status(work) | Source::Callback(work, _) => work,
        }
    }

    /// Waits for the value, and returns it or raises what the operation failed with.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let work = &self.work().get().inner;
        let ended = wait(py, work, None);
        // A signal's exception ends the wait; the operation's own error is part of the value.
        match (ended, work.error()) {
            (Err(error), None) => return Err(error),
            // A signal that ended a peer may have come here too: what its handler raises wins.
            (_, Some(_)) => py.check_signals()?,
            _ => {}
        }
        if let Source::Callback(_, promise) = self {
            promise.wait(py)?;
        }
        self.value(py)
    }

    /// Whether the value, or the failure, is there. Does not wait.
    pub(crate) fn is_done(&self, py: Python<'_>) -> bool {
        match self {
            Source::Callback(_, promise) => promise.is_settled(),
            _ => py.detach(|| self.work().get().inner.is_completed()),
        }
    }

    /// The value; raises if it is not there.
    pub(crate) fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let work = self.work().get();
        if !self.is_done(py) {
            return Err(PyRuntimeError::new_err(
                "the future's value is not there yet; wait for it",
            ));
        }
        match self {
            Source::Callback(_, promise) => promise.outcome(py),
            Source::Status(_) => {
                let failure = work.inner.error();
                let result = failure.as_ref().map_or(WorkResult::Success, WorkResult::of);
                Ok(work_result(py, result)?.unbind())
            }
            Source::Outputs(_) => match work.inner.error() {
                Some(error) => Err(raise(py, &error)),
                None => Ok(work.outputs(py)?.into_any().unbind()),
            },
        }
    }
}

/// A future of what `callback` returns when `future` is done and it is called with it.
pub(crate) fn then(future: &Bound<'_, Future>, callback: Py<PyAny>) -> Source {
    let promise = Arc::new(Promise::default());
    let kept = promise.clone();
    when_done(future, move |py, future| {
        kept.settle(py, callback.call1(py, (future,)));
    });
    let work = future.get().source.work().clone_ref(future.py());
    Source::Callback(work, promise)
}

/// Calls `f` when `future` is done, immediately if it is. On any thread, with the GIL.
pub(crate) fn when_done(
    future: &Bound<'_, Future>,
    f: impl FnOnce(Python<'_>, Py<Future>) + Send + 'static,
) {
    let this = future.clone().unbind();
    match &future.get().source {
        Source::Callback(_, promise) => promise.on_settled(future.py(), |py| f(py, this)),
        Source::Outputs(work) | Source::Status(work) => {
            let work = &work.get().inner;
            let f = move || {
                attach(|py| f(py, this));
            };
            // It may look for the end for a moment, and run other callbacks.
            future.py().detach(|| work.on_end(f));
        }
    }
}

impl Promise {
    fn visit(self: &Arc<Self>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What cannot be looked at now, or is not this future's alone, is somebody else's.
        let state = if Arc::strong_count(self) == 1 { self.state.try_lock().ok() } else { None };
        match state.as_ref().and_then(|state| state.outcome.as_ref()) {
            Some(Ok(value)) => visit.call(value),
            Some(Err(error)) => visit.call(error),
            None => Ok(()),
        }
    }

    fn clear(&self) {
        let outcome = self.lock().outcome.take();
        // Without the lock: that may run any code.
        drop(outcome);
    }

    fn settle(&self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) {
        let callbacks = {
            let outcome = outcome.map_err(|error| error.into_value(py));
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
            Some(Err(error)) => Err(PyErr::from_value(error.bind(py).clone().into_any())),
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

/// A `WorkResult` as Python's class of it.
pub(crate) fn work_result(py: Python<'_>, result: WorkResult) -> PyResult<Bound<'_, PyAny>> {
    static WORK_RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = WORK_RESULT.import(py, "polyrank._enums", "WorkResult")?;
    class.call1((result as u8,))
}
