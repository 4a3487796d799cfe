//! The cheapest clock that there is, for what is noted of each operation. Knows nothing of what.
//!
//! Asking the system for the time takes longer than may be spent on an operation of 200 ns. The
//! processor counts at a constant rate where the system itself relies on that; elsewhere, ticks are
//! the system's nanoseconds.

use std::sync::OnceLock;

use crate::clock::Instant;

/// A time, in units that are only known afterwards: see [`instant_of`].
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    return crate::kernels::ticks();
    #[cfg(not(target_arch = "x86_64"))]
    return u64::try_from(start().1.elapsed().as_nanos()).unwrap_or(u64::MAX);
}

/// When it was `ticks`, which came from [`ticks`]: to some microseconds, if it was within the last
/// hours.
pub(super) fn instant_of(ticks_then: u64) -> Instant {
    let (first_ticks, first) = start();
    let (last_ticks, last) = (ticks(), Instant::now());
    let counted = last_ticks.wrapping_sub(first_ticks).max(1);
    let rate = last.saturating_duration_since(first).as_secs_f64() / counted as f64;
    let ago = last_ticks.wrapping_sub(ticks_then);
    // A tick of the future is that of another core, a little ahead.
    if ago > counted {
        return if ago > u64::MAX / 2 { last } else { first };
    }
    let ago = std::time::Duration::try_from_secs_f64(ago as f64 * rate).unwrap_or_default();
    last.checked_sub(ago).unwrap_or(first)
}

/// Ticks and time when this was first asked.
pub(super) fn start() -> (u64, Instant) {
    static START: OnceLock<(u64, Instant)> = OnceLock::new();
    *START.get_or_init(|| {
        let now = Instant::now();
        #[cfg(target_arch = "x86_64")]
        return (ticks(), now);
        #[cfg(not(target_arch = "x86_64"))]
        return (0, now);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_again_in_the_time_of_the_system_in_their_order() {
        let (_, first) = start();
        let ticks: Vec<u64> = (0..100).map(|_| ticks()).collect();
        let found: Vec<Instant> = ticks.iter().map(|&tick| instant_of(tick)).collect();
        assert!(found.iter().all(|at| *at >= first && *at <= Instant::now()));
        let (earliest, latest) = (instant_of(ticks[0]), instant_of(ticks[99]));
        assert!(earliest <= latest, "{earliest:?} {latest:?}");
        // What was never counted is clamped.
        assert!(instant_of(ticks[99] + (1 << 40)) <= Instant::now());
    }
}
