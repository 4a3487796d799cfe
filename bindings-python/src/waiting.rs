//! Waiting for operations without the GIL. Knows nothing of asyncio.

use std::time::{Duration, Instant};

use polyrank::{Error, OnDevice, Work};
use pyo3::prelude::*;

use crate::convert::{CoreResult, raise};

/// How long a wait goes on without looking whether Python has a signal to handle.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Waits for `work` without the GIL, in slices, so that Ctrl-C and other signals are handled.
/// A timeout of zero is none, and without one, tensors of devices are not waited for, but ordered.
pub(crate) fn wait(py: Python<'_>, work: &Work, timeout: Option<Duration>) -> PyResult<()> {
    wait_on(py, work, timeout, &[])
}

/// As [`wait`], where `streams` are what the tensors of devices are ordered on as well.
pub(crate) fn wait_on(
    py: Python<'_>,
    work: &Work,
    timeout: Option<Duration>,
    streams: &[OnDevice],
) -> PyResult<()> {
    let start = Instant::now();
    let timeout = timeout.filter(|timeout| !timeout.is_zero());
    if timeout.is_none()
        && let Some(ordered) = work.order_on(streams)
    {
        return ordered.or_raise(py);
    }
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        match py.detach(|| work.wait_slice(slice)) {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => {
                // A signal that ended a peer may have come here too: what its handler raises is
                // what the user wants to see.
                py.check_signals()?;
                return Err(raise(py, &error));
            }
            None => py.check_signals()?,
        }
        if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
            return Err(raise(
                py,
                &Error::WaitTimeout {
                    collective: work.title(),
                    sequence: work.sequence(),
                    waited_ms: start.elapsed().as_millis() as u64,
                },
            ));
        }
    }
}
