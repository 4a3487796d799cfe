//! What polyrank logs, as records of Python's `logging`, and where the program stands, for what it
//! logs of jobs that hang. Knows nothing of what is logged.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrank::call_site::{CallFrame, set_call_frame_source, set_call_site_source};
use polyrank::stall_report::stall_limit;
use polyrank_log::{Level, LevelFilter, Record};
use pyo3::prelude::*;

use crate::ending::attach;

/// How long the end of the interpreter waits for lines that are not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Begins to collect. What is collected without having been asked for is little: nothing of single
/// operations.
pub(crate) fn begin() {
    // Where the program has another subscriber, that one is told.
    drop(polyrank_log::start(LevelFilter::DEBUG));
}

/// Hands each line that is logged from now on to a function of Python: whether it takes the line,
/// or does not want it.
///
/// Threads that polyrank has started call it, and a child may be forked in the middle: nothing here
/// is made by the first call, as the child would wait for ever for the thread that makes it.
#[pyfunction(name = "_set_log_reader")]
pub(crate) fn set_reader(take: Py<PyAny>) {
    polyrank_log::set_reader(Some(Arc::new(move |record| {
        // Where the interpreter ends, or `logging` fails, only warnings are worth their place on
        // standard error.
        let otherwise = record.level > Level::WARN;
        attach(|py| taken(py, &take, record).unwrap_or(otherwise)).unwrap_or(otherwise)
    })));
}

/// Has functions of Python tell those who ask why a job hangs where the program stands, and which
/// lines have called. As for [`set_reader`], nothing is made by the first call.
#[pyfunction(name = "_set_call_site_sources")]
pub(crate) fn set_call_sites(call_site: Py<PyAny>, call_frames: Py<PyAny>) {
    set_call_frame_source(Arc::new(move || {
        attach(|py| frames_of(py, &call_frames).unwrap_or_default()).unwrap_or_default()
    }));
    set_call_site_source(Arc::new(move || {
        let site = attach(|py| call_site.call0(py).and_then(|told| told.extract(py)).ok());
        site.flatten().flatten()
    }));
}

/// Whether the environment says how much is logged.
#[pyfunction(name = "_is_log_set")]
pub(crate) fn is_set() -> bool {
    polyrank_log::is_set()
}

/// After how many seconds it is said who is missing; 0 for never.
#[pyfunction(name = "_stall_report_s")]
pub(crate) fn stall_report_s() -> f64 {
    stall_limit().map_or(0.0, |limit| limit.as_secs_f64())
}

/// Waits until what was logged is read.
#[pyfunction(name = "_flush_log")]
pub(crate) fn flush(py: Python<'_>) {
    py.detach(|| polyrank_log::flush(PATIENCE));
}

fn frames_of(py: Python<'_>, call_frames: &Py<PyAny>) -> PyResult<Vec<CallFrame>> {
    let frames: Vec<(String, String, u32)> = call_frames.call0(py)?.extract(py)?;
    let frame = |(name, filename, line)| CallFrame { name, filename, line };
    Ok(frames.into_iter().map(frame).collect())
}

/// Whether `take` takes this record, or does not want it.
fn taken(py: Python<'_>, take: &Py<PyAny>, record: &Record) -> PyResult<bool> {
    let at = record.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let level = match record.level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    };
    let what = (&record.target, level, &record.message);
    let facts = (at.as_secs_f64(), record.rank, &record.group);
    let operation = (&record.operation, record.sequence, &record.comm_name);
    take.call1(py, (what, facts, operation))?.extract(py)
}
