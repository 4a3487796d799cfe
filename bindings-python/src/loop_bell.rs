//! What has an asyncio loop call something, told by any thread: a pipe that the loop watches. The
//! thread that tells needs no GIL, for which it could wait, and runs no Python before the loop is
//! woken. Knows nothing of operations.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

type Call = Box<dyn FnOnce(Python<'_>) + Send>;

/// The bell of one loop, for any thread.
#[derive(Clone)]
pub(crate) struct LoopBell(Arc<State>);

struct State {
    reader: PipeReader,
    writer: PipeWriter,
    /// What the loop is to call. There is a byte in the pipe while there is anything.
    calls: Mutex<Vec<Call>>,
}

/// The bell, as what the loop calls when it is rung.
#[pyclass(frozen, module = "polyrank")]
struct Ringing(LoopBell);

impl LoopBell {
    /// The bell of `event_loop`, which watches it until it is closed. None if it is a loop that
    /// watches no descriptors, or there are none left.
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> Option<LoopBell> {
        let bells = bells(event_loop.py()).ok()?;
        let known = bells.call_method1("get", (event_loop,)).ok()?;
        if known.is_none() {
            let made = Self::watched_by(event_loop).ok();
            let kept = made.clone().map(Ringing);
            bells.set_item(event_loop, (kept,)).ok()?;
            return made;
        }
        let (kept,): (Option<PyRef<'_, Ringing>>,) = known.extract().ok()?;
        kept.map(|it| it.0.clone())
    }

    /// Has the loop call `call`; never, if it does not run any more.
    pub(crate) fn call(&self, call: impl FnOnce(Python<'_>) + Send + 'static) {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(Box::new(call));
        if calls.len() == 1 {
            // There is room: the pipe is empty.
            let _ = (&self.0.writer).write(&[0]);
        }
    }

    fn watched_by(event_loop: &Bound<'_, PyAny>) -> PyResult<LoopBell> {
        let py = event_loop.py();
        let (reader, writer) = pipe()?;
        let fd = reader.as_raw_fd();
        let bell = LoopBell(Arc::new(State { reader, writer, calls: Mutex::default() }));
        // The loop keeps the context for as long as it watches: an empty one, not the caller's.
        let context = py.import("contextvars")?.call_method0("Context")?;
        let watch = event_loop.getattr("add_reader")?;
        context.call_method1("run", (watch, fd, Ringing(bell.clone())))?;
        Ok(bell)
    }
}

#[pymethods]
impl Ringing {
    /// It was rung.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let calls = {
            let mut calls = self.0.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if !calls.is_empty() {
                (&self.0.0.reader).read_exact(&mut [0])?;
            }
            std::mem::take(&mut *calls)
        };
        calls.into_iter().for_each(|call| call(py));
        Ok(())
    }
}

/// The bells of loops, each in a tuple, for as long as its loop is there.
fn bells(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static BELLS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = BELLS.get_or_try_init(py, || {
        let bells = py.import("weakref")?.call_method0("WeakKeyDictionary")?;
        PyResult::Ok(bells.unbind())
    })?;
    Ok(made.bind(py))
}
