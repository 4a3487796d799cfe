//! Calls of the core that may block: without the GIL, and open to signals.

use std::cell::RefCell;

use polyrank::Error;
use polyrank::store::install_interrupt_check;
use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;

use super::exception::CoreResult;
use super::lease::releasing;

/// Calls the core without the GIL, so that it may block; Ctrl-C ends the waits of stores.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> polyrank::Result<T> + Send,
) -> PyResult<T> {
    releasing(py, || {
        let running = RunningCall::begin()?;
        let value = py.detach(|| {
            let _guard = install_interrupt_check(has_signal);
            call()
        });
        let Raised { ending, timeout } = running.end();
        // A signal's exception is what ended the call, whatever error the core made of it.
        // So is that of a signal which ended a peer, and has come here too.
        if let Some(ending) = ending {
            return Err(ending);
        }
        if value.is_err() {
            py.check_signals()?;
        }
        let timeout = match (&value, timeout) {
            (Err(Error::StoreTimeout { waited_ms, .. }), Some((known, cause))) => {
                (*waited_ms == known).then_some(cause)
            }
            _ => None,
        };
        value.or_raise(py).inspect_err(|error| {
            if timeout.is_some() {
                error.set_cause(py, timeout);
            }
        })
    })
}

/// What was raised below a call, while it ran.
#[derive(Default)]
struct Raised {
    /// By the handler of a signal, or a method that the core called and that ends its caller.
    ending: Option<PyErr>,
    /// By a method of a store that gave up, the last time: after how many milliseconds, and what.
    timeout: Option<(u64, PyErr)>,
}

/// How many calls may be in each other: the stack of a thread holds more than so many, and Python's
/// own limit counts nothing of what lies between.
const MAX_NESTED: usize = 64;

thread_local! {
    /// The calls of this thread that run, each but the first in a method that the one before calls.
    static RUNNING: RefCell<Vec<Raised>> = const { RefCell::new(Vec::new()) };
}

/// A call that runs on this thread, the last that began.
struct RunningCall;

impl RunningCall {
    fn begin() -> PyResult<RunningCall> {
        RUNNING.with_borrow_mut(|running| {
            if running.len() >= MAX_NESTED {
                let message = "a method that polyrank calls calls polyrank again without end";
                return Err(PyRecursionError::new_err(message));
            }
            running.push(Raised::default());
            Ok(RunningCall)
        })
    }

    /// What was raised below it.
    fn end(self) -> Raised {
        RUNNING
            .with_borrow_mut(|running| running.last_mut().map(std::mem::take))
            .unwrap_or_default()
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // Exceptions run any code when they go.
        let raised = RUNNING.with_borrow_mut(Vec::pop);
        drop(raised);
    }
}

/// Changes what was raised below the last call of this thread that began; none if none runs.
fn raised<T>(change: impl FnOnce(&mut Raised) -> T) -> Option<T> {
    RUNNING.with_borrow_mut(|running| running.last_mut().map(change))
}

/// Has the call of this thread below which `error` was raised end with it. Gives it back if this
/// thread runs none.
pub(crate) fn end_call_with(error: PyErr) -> Option<PyErr> {
    let mut error = Some(error);
    let earlier = raised(|raised| std::mem::replace(&mut raised.ending, error.take()));
    drop(earlier);
    error
}

/// Keeps what a method of a store raised when it gave up after `waited_ms`, as the cause of what
/// the call of this thread will raise if that is its end.
pub(crate) fn keep_timeout(waited_ms: u64, error: PyErr) {
    let earlier = raised(|raised| raised.timeout.replace((waited_ms, error)));
    drop(earlier);
}

/// Whether a signal's handler raised, or something else ends the call. Called now and then by waits
/// of the core, detached.
fn has_signal() -> bool {
    if raised(|raised| raised.ending.is_some()) == Some(true) {
        return true;
    }
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            end_call_with(error);
            true
        }
    })
    .unwrap_or(false)
}
