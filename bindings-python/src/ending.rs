//! The end of the interpreter, seen from threads that Python did not start. Knows nothing of
//! operations.
//!
//! A thread that wants the GIL back after the interpreter began to end is ended on the spot by it,
//! through frames of Rust that cannot be unwound: the process aborts. So a hook that runs before
//! the end shuts a gate: from then on no other thread enters Python, and those inside are waited
//! for.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::convert::{attach_thread, know_interpreter};

/// How long the end waits for a callback that another thread runs.
const PATIENCE: Duration = Duration::from_secs(5);

static SHUT: AtomicBool = AtomicBool::new(false);
/// Threads inside the gate.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The process that the count is of: a forked child has none of its parent's threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Registers the hook.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    know_interpreter(py);
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
