//! Threads that Python may not know, and how they get the GIL. Knows nothing of the interpreter's
//! end.

#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use polyrank::process_mutex::ProcessMutex;
use pyo3::ffi;
use pyo3::prelude::*;

/// The interpreter; null until the package is imported.
static INTERPRETER: ProcessMutex<AtomicPtr<ffi::PyInterpreterState>> =
    ProcessMutex::new(AtomicPtr::new(null_mut()));

/// Notes the interpreter that imports this package.
pub(crate) fn know_interpreter(_: Python<'_>) {
    // SAFETY: this thread is attached, as the argument says.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    INTERPRETER.lock().store(interpreter, Ordering::Relaxed);
}

/// Calls `f` with the GIL, on a thread that Python may not know.
pub(crate) fn attach_thread<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let is_introduced = introduce_thread();
    Python::try_attach(|py| {
        if is_introduced {
            // SAFETY: the thread is attached, and counted twice: by its introduction, which is
            // taken back here, and by what ends with `f`, which so deletes the thread's state.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED) };
        }
        f(py)
    })
}

/// Makes Python's state of this thread, if there is none; whether there was none. The interpreter
/// keeps a list of them under a lock, which a thread takes without the GIL when it attaches for the
/// first time. A child that another thread forks meanwhile finds the lock taken by a thread that it
/// does not have, and up to Python 3.11 waits for it, for ever: nobody forks meanwhile.
fn introduce_thread() -> bool {
    // SAFETY: it may be called by any thread, attached or not.
    if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        return false;
    }
    let interpreter = INTERPRETER.lock();
    let interpreter = interpreter.load(Ordering::Relaxed);
    // SAFETY: it is the interpreter that has imported this package, which lives as long as its
    // caller sees to, and no thread has to be attached to be made known to it.
    !interpreter.is_null() && !unsafe { ffi::PyThreadState_New(interpreter) }.is_null()
}
