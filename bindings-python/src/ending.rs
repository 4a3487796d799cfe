//! The end of the interpreter, seen from threads that Python did not start. Knows nothing of
//! operations.
//!
//! A thread that wants the GIL back after the interpreter began to end is ended on the spot by it,
//! through frames of Rust that cannot be unwound: the process aborts. So a hook that runs before
//! the end shuts a gate: from then on no other thread enters Python, and those inside are waited
//! for.

#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polyrank::process_mutex::ProcessMutex;
use pyo3::ffi;
use pyo3::prelude::*;

/// How long the end waits for a callback that another thread runs.
const PATIENCE: Duration = Duration::from_secs(5);

static SHUT: AtomicBool = AtomicBool::new(false);
/// Threads inside the gate.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The process that the count is of: a forked child has none of its parent's threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The interpreter; null until the package is imported.
static INTERPRETER: ProcessMutex<AtomicPtr<ffi::PyInterpreterState>> =
    ProcessMutex::new(AtomicPtr::new(null_mut()));

/// Registers the hook.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached, as `py` says.
    INTERPRETER.lock().store(unsafe { ffi::PyInterpreterState_Get() }, Ordering::Relaxed);
    let shut = wrap_pyfunction!(shut, py)?;
    py.import("atexit")?.call_method1("register", (shut,))?;
    Ok(())
}

/// Calls `f` with the GIL, on any thread; not if the interpreter is ending.
pub(crate) fn attach<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let process = std::process::id();
    if PROCESS.swap(process, Ordering::SeqCst) != process {
        INSIDE.store(0, Ordering::SeqCst);
    }
    // In this order, so that the hook sees this thread or this thread sees the gate shut.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let result = if SHUT.load(Ordering::SeqCst) { None } else { attach_thread(f) };
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Calls `f` with the GIL, on a thread that Python may not know.
fn attach_thread<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
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
    // SAFETY: it is the interpreter that has imported this package, which lives as long as the gate
    // is open, and no thread has to be attached to be made known to it.
    !interpreter.is_null() && !unsafe { ffi::PyThreadState_New(interpreter) }.is_null()
}

/// Shuts the gate, and waits for those inside.
#[pyfunction]
fn shut(py: Python<'_>) {
    crate::log::flush(py);
    SHUT.store(true, Ordering::SeqCst);
    if PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    py.detach(|| {
        let start = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
