//! The cheapest clock that there is, for what is noted of each operation. Knows nothing of what.
//!
//! Asking the system for the time takes longer than may be spent on an operation of 200 ns. The
//! processor counts at a constant rate where the system itself relies on that; elsewhere, ticks are
//! the system's nanoseconds.

use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicU64, Ordering};

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

/// So many ticks, in nanoseconds.
pub(super) fn nanoseconds(ticks: u64) -> u64 {
    #[cfg(not(target_arch = "x86_64"))]
    return ticks;
    #[cfg(target_arch = "x86_64")]
    return scaled(ticks, nanoseconds_per_tick());
}

/// Bits of a rate behind its point.
#[cfg(target_arch = "x86_64")]
const RATE_BITS: u32 = 24;

#[cfg(target_arch = "x86_64")]
fn scaled(ticks: u64, rate: u64) -> u64 {
    let nanoseconds = (u128::from(ticks) * u128::from(rate)) >> RATE_BITS;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// With [`RATE_BITS`] behind the point. It is measured until enough time has passed for some digits
/// of it.
#[cfg(target_arch = "x86_64")]
fn nanoseconds_per_tick() -> u64 {
    static RATE: AtomicU64 = AtomicU64::new(0);
    const ENOUGH: std::time::Duration = std::time::Duration::from_millis(10);
    match RATE.load(Ordering::Relaxed) {
        0 => {}
        rate => return rate,
    }
    let (first_ticks, first) = start();
    let (last_ticks, last) = both();
    let counted = last_ticks.wrapping_sub(first_ticks).max(1);
    let passed = last.saturating_duration_since(first);
    let rate = (passed.as_nanos() << RATE_BITS) / u128::from(counted);
    let rate = u64::try_from(rate).unwrap_or(u64::MAX);
    if passed >= ENOUGH {
        RATE.store(rate, Ordering::Relaxed);
    }
    rate
}

/// Ticks and time when this was first asked.
pub(super) fn start() -> (u64, Instant) {
    static START: OnceLock<(u64, Instant)> = OnceLock::new();
    *START.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        return both();
        #[cfg(not(target_arch = "x86_64"))]
        return (0, Instant::now());
    })
}

/// Ticks and time of the same moment: of some tries, that with the least in between, since another
/// thread may have the core meanwhile.
#[cfg(target_arch = "x86_64")]
fn both() -> (u64, Instant) {
    const TRIES: usize = 5;
    let tries = (0..TRIES).map(|_| {
        let before = ticks();
        let now = Instant::now();
        let between = ticks().saturating_sub(before);
        (between, before + between / 2, now)
    });
    let best = tries.min_by_key(|(between, ..)| *between);
    best.map_or_else(|| (ticks(), Instant::now()), |(_, middle, now)| (middle, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_between_those_of_the_system_around_it() {
        start();
        for _ in 0..1000 {
            let outer = Instant::now();
            let first = ticks();
            let inner = Instant::now();
            while inner.elapsed().as_micros() < 30 {}
            let least = inner.elapsed().as_nanos() as f64;
            let measured = nanoseconds(ticks() - first) as f64;
            let most = outer.elapsed().as_nanos() as f64;
            let is_within = (least * 0.99..=most * 1.01).contains(&measured);
            assert!(is_within, "{measured} is not from {least} to {most}");
        }
    }

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
