//! What methods of a store that is written in Python raise, as errors of the core, and as the
//! causes of the exceptions that these become. Knows nothing of what the methods do.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use polyrank::Error;
use pyo3::exceptions::{PyException, PyNotImplementedError, PyTimeoutError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::convert::{end_call_with, error_kind, keep_timeout};

/// How many exceptions are kept for the errors that they became.
const MAX_CAUSES: usize = 16;

/// Exceptions of users' methods by the message of the core's error, the last ones.
static CAUSES: Mutex<VecDeque<(String, PyErr)>> = Mutex::new(VecDeque::new());

/// What a method of a user's class raised that became an error with this message.
pub(crate) fn cause(py: Python<'_>, message: &str) -> Option<PyErr> {
    let causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.iter().rev().find(|(known, _)| known == message).map(|(_, cause)| cause.clone_ref(py))
}

/// The name of the class of a store.
pub(super) fn class_name(store: &Bound<'_, PyAny>) -> String {
    store.get_type().name().map_or_else(|_| "Store".to_owned(), |it| it.to_string())
}

/// The core's error for what a method raised.
pub(super) fn core_error(
    store: &Bound<'_, PyAny>,
    method: &str,
    keys: &[&str],
    began: Instant,
    error: PyErr,
) -> Error {
    let py = store.py();
    // Ctrl-C, the end of the program, of a task: not the store's failure, but the caller's end.
    let error = if error.is_instance_of::<PyException>(py) {
        error
    } else {
        match end_call_with(error) {
            None => {
                let keys = keys.join(", ");
                return Error::Store { message: format!("{method} was interrupted, keys: {keys}") };
            }
            Some(error) => error,
        }
    };
    let kind = error_kind(error.value(py));
    match kind.as_deref() {
        Some("NotACounter") => return Error::NotACounter { key: keys.join(", ") },
        Some("QueueEmpty") => return Error::QueueEmpty,
        Some("Unsupported") => {
            // A part of what was asked may be what the class lacks.
            let part = error.value(py).getattr(intern!(py, "operation"));
            let part = part.and_then(|part| part.extract::<String>()).unwrap_or_default();
            let operation = match part.as_str() {
                "" => method.to_owned(),
                part if part == method => method.to_owned(),
                part => format!("{method}, which needs {part}"),
            };
            return Error::Unsupported { who: class_name(store), operation };
        }
        _ => {}
    }
    if error.is_instance_of::<PyTimeoutError>(py) {
        let waited_ms = began.elapsed().as_millis() as u64;
        keep_timeout(waited_ms, error);
        return Error::StoreTimeout { operation: method.into(), keys: keys.join(", "), waited_ms };
    }
    if error.is_instance_of::<PyNotImplementedError>(py) {
        let who = class_name(store);
        return Error::Unsupported { who, operation: method.to_owned() };
    }
    let message = format!("{method}: the store's class raised {error}");
    let mut causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.push_back((message.clone(), error));
    let oldest = if causes.len() > MAX_CAUSES { causes.pop_front() } else { None };
    drop(causes);
    drop(oldest);
    Error::Store { message }
}
