//! The runs of Python's collector. It looks at each object twice in a run, and takes for garbage
//! what it saw the first time alone: where other threads change what an object shows, that is
//! decided once for each run. Knows no objects.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;

/// The number of the last run that began, from 1 on.
static RUN: AtomicU64 = AtomicU64::new(1);

/// Counts the runs from now on.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let note = wrap_pyfunction!(note_run, py)?;
    let callbacks = py.import("gc")?.getattr("callbacks")?;
    callbacks.call_method1(intern!(py, "append"), (note,))?;
    Ok(())
}

/// A decision that holds for a run of the collector.
#[derive(Default)]
pub(crate) struct DecisionOfRun {
    /// The number of the run, and in the lowest bit what was decided.
    last: AtomicU64,
}

impl DecisionOfRun {
    /// What was decided in this run; if nothing was, what `decide` says.
    pub(crate) fn get(&self, decide: impl FnOnce() -> bool) -> bool {
        let (run, last) = (RUN.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        if last >> 1 == run {
            return last & 1 == 1;
        }
        let decision = decide();
        self.last.store(run << 1 | u64::from(decision), Ordering::Relaxed);
        decision
    }
}

/// Called by the collector.
#[pyfunction]
fn note_run(phase: &str, _info: &Bound<'_, PyAny>) {
    if phase == "start" {
        RUN.fetch_add(1, Ordering::Relaxed);
    }
}
