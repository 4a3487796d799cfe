//! Calls of the core that may block: without the GIL, and open to signals.

use std::cell::RefCell;

use polyrank::store::install_interrupt_check;
use pyo3::prelude::*;

use super::exception::CoreResult;
use super::lease::releasing;

/// Calls the core without the GIL, so that it may block; Ctrl-C ends the waits of stores.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> polyrank::Result<T> + Send,
) -> PyResult<T> {
    releasing(py, || {
        let value = py.detach(|| {
            let _guard = install_interrupt_check(has_signal);
            call()
        });
        // A signal's exception is what ended the call, whatever error the core made of it.
        // So is that of a signal which ended a peer, and has come here too.
        match SIGNALLED.take() {
            Some(error) => Err(error),
            None if value.is_err() => py.check_signals().and_then(|()| value.or_raise(py)),
            None => value.or_raise(py),
        }
    })
}

thread_local! {
    /// The exception that a signal handler raised while this thread waited in the core.
    static SIGNALLED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether a signal's handler raised. Called now and then by waits of the core, detached.
fn has_signal() -> bool {
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            SIGNALLED.set(Some(error));
            true
        }
    })
    .unwrap_or(false)
}
