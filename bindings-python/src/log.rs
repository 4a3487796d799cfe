//! What polyrank logs, as records of Python's `logging`, and where the program stands, for what it
//! logs of jobs that hang. Knows nothing of what is logged.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrank::call_site::set_call_site_source;
use polyrank_log::{Level, LevelFilter, Record};
use pyo3::intern;
use pyo3::prelude::*;

use crate::ending::attach;

/// How long the end of the interpreter waits for lines that are not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hands to `logging` what is logged from now on. What is collected without having been asked for
/// is little: nothing of single operations.
pub(crate) fn begin() {
    polyrank_log::set_reader(Some(Arc::new(|record| {
        // Where the interpreter ends, or `logging` fails, only warnings are worth their place on
        // standard error.
        let mut is_taken = record.level > Level::WARN;
        attach(|py| is_taken = take(py, record).unwrap_or(is_taken));
        is_taken
    })));
    // Where the program has another subscriber, that one is told.
    drop(polyrank_log::start(LevelFilter::DEBUG));
}

/// Tells those who ask why a job hangs where the program stands.
pub(crate) fn tell_call_sites() {
    set_call_site_source(Arc::new(|| {
        let mut site = None;
        attach(|py| {
            let module = py.import(intern!(py, "polyrank._call_site"));
            let told = module.and_then(|it| it.call_method0(intern!(py, "call_site")));
            site = told.and_then(|told| told.extract()).unwrap_or(None);
        });
        site
    }));
}

/// Whether the environment says how much is logged.
#[pyfunction(name = "_is_log_set")]
pub(crate) fn is_set() -> bool {
    polyrank_log::is_set()
}

/// Waits until what was logged is read.
#[pyfunction(name = "_flush_log")]
pub(crate) fn flush(py: Python<'_>) {
    py.detach(|| polyrank_log::flush(PATIENCE));
}

/// Whether `logging` takes this record, or does not want it.
fn take(py: Python<'_>, record: &Record) -> PyResult<bool> {
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
    let log = py.import(intern!(py, "polyrank._log"))?;
    log.call_method1(intern!(py, "take"), (what, facts))?.extract()
}
