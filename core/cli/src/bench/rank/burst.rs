//! Bursts of calls whose inputs are written before: every rank writes the inputs of all calls of a
//! burst, each in buffers of its own, then all start together and make the calls one after another.
//! A burst of large tensors is one call. Knows nothing of what a call is.

use super::buffers::PreparedCase;
use super::common_start::{CommonStart, Moment, monotonic_ns};
use crate::bench::messages::BurstTimes;

/// Runs so many bursts, of one call for each of `copies`.
///
/// # Errors
/// A call that fails, or a rank that is not ready in time.
pub(super) fn run(
    copies: &mut [Box<dyn PreparedCase>],
    iterations: u64,
    lead_ns: u64,
    start: &mut CommonStart,
) -> Result<BurstTimes, String> {
    let mut times = BurstTimes::default();
    let text = |error: polyrank::Error| error.to_string();
    for burst in 0..iterations {
        let first = burst * copies.len() as u64;
        let begin_ns = monotonic_ns();
        // Zeros and ones in turn, so that a result of the burst before is seen; ones at last.
        let value = ((iterations - burst) % 2) as i64;
        for (call, copy) in (first..).zip(copies.iter_mut()) {
            copy.write(call, value);
        }
        times.write_ns += monotonic_ns() - begin_ns;
        let moment = start.wait(lead_ns)?;
        for (call, copy) in (first..).zip(copies.iter_mut()) {
            copy.make(call).map_err(text)?;
        }
        note(&mut times, moment);
    }
    let first = iterations.saturating_sub(1) * copies.len() as u64;
    times.wrong = (first..).zip(&*copies).map(|(call, copy)| copy.wrong_after_ones(call)).sum();
    if let Some(copy) = copies.first() {
        copy.part().map_err(text)?;
    }
    Ok(times)
}

/// Starts without calls.
///
/// # Errors
/// A rank that is not ready in time.
pub(super) fn empty(
    iterations: u64,
    lead_ns: u64,
    start: &mut CommonStart,
) -> Result<BurstTimes, String> {
    let mut times = BurstTimes::default();
    for _ in 0..iterations {
        let moment = start.wait(lead_ns)?;
        note(&mut times, moment);
    }
    Ok(times)
}

fn note(times: &mut BurstTimes, moment: Moment) {
    times.burst_ns.push(monotonic_ns() - moment.agreed_ns);
    times.late_ns.push(moment.begun_ns - moment.agreed_ns);
}
