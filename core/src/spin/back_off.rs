//! How long a waiting thread polls before it sleeps, or whether it polls at all, learned from how
//! well that has worked lately. Reads no clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::SpinPolicy;

/// After spinning has kept others from running, it is tried again after this many short sleeps.
const HELD_BACK_SLEEPS: u32 = 64;

/// How long to spin before a sleep, learned by threads that wait for the same.
///
/// A short sleep shows that spinning for longer would have saved it, unless the thread had spun for
/// as long as it may. In that case, spinning itself delayed what the thread waited for: another
/// process has a core, and the rank that it waits for needs this one.
pub(crate) struct AdaptiveSpin {
    /// Nanoseconds, as the others.
    limit: u32,
    /// Whether spinning keeps others from running.
    takes_core: bool,
    spin: AtomicU32,
    /// Sleeps for which spinning is not tried again.
    held_back: AtomicU32,
}

impl AdaptiveSpin {
    /// Nothing learned yet: it spins for as long as `policy` allows.
    pub(crate) fn new(policy: SpinPolicy) -> AdaptiveSpin {
        let limit = nanos(policy.limit());
        AdaptiveSpin {
            limit,
            takes_core: matches!(policy, SpinPolicy::Spin(_)),
            spin: AtomicU32::new(limit),
            held_back: AtomicU32::new(0),
        }
    }

    /// How long to spin.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed).into())
    }

    /// Notes a sleep after spinning in vain for [`AdaptiveSpin::duration`].
    pub(crate) fn note_sleep(&self, slept: Duration) {
        let (spin, shortest) = (self.spin.load(Ordering::Relaxed), self.limit / 64);
        let held_back = self.held_back.load(Ordering::Relaxed);
        let next = if nanos(slept) > self.limit {
            (spin / 2).max(shortest)
        } else if held_back > 0 {
            self.held_back.store(held_back - 1, Ordering::Relaxed);
            shortest
        } else if spin >= self.limit && self.takes_core {
            self.held_back.store(HELD_BACK_SLEEPS, Ordering::Relaxed);
            shortest
        } else {
            spin.saturating_mul(2).max(self.limit / 16).min(self.limit)
        };
        self.spin.store(next, Ordering::Relaxed);
    }
}

/// Whether it pays to poll before a sleep, learned by one thread at a time.
///
/// After some misses, one after the other, it is not tried for a while, each time twice as long,
/// until a hit.
#[derive(Debug)]
pub(crate) struct BackOff {
    /// The number of misses that shows that it does not pay.
    misses: u32,
    /// Most attempts that are skipped at a time.
    max_skips: u32,
    /// Misses since the last hit, or since attempts were skipped.
    missed: u32,
    /// How many of the next attempts are skipped.
    skips: u32,
    /// How many were skipped last; 0 after a hit.
    last_skips: u32,
}

impl BackOff {
    /// Nothing learned yet.
    pub(crate) fn new(misses: u32, max_skips: u32) -> BackOff {
        BackOff { misses, max_skips, missed: 0, skips: 0, last_skips: 0 }
    }

    /// Whether to try this time.
    pub(crate) fn is_due(&mut self) -> bool {
        let pays = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        pays
    }

    /// Notes the result of an attempt.
    pub(crate) fn note(&mut self, is_hit: bool) {
        if is_hit {
            *self = BackOff::new(self.misses, self.max_skips);
            return;
        }
        self.missed += 1;
        if self.missed == self.misses {
            self.missed = 0;
            self.last_skips = (2 * self.last_skips).clamp(1, self.max_skips);
            self.skips = self.last_skips;
        }
    }
}

fn nanos(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(64);
    const SOON: Duration = Duration::from_micros(10);
    const LATE: Duration = Duration::from_millis(10);

    fn after(spinning: &AdaptiveSpin, slept: Duration) -> Duration {
        spinning.note_sleep(slept);
        spinning.duration()
    }

    #[test]
    fn long_waits_shorten_it_and_a_wait_that_was_soon_over_lengthens_it() {
        let spinning = AdaptiveSpin::new(SpinPolicy::Spin(LIMIT));
        let shortened: Vec<_> = (0..8).map(|_| after(&spinning, LATE)).collect();
        assert_eq!(shortened[..3], [LIMIT / 2, LIMIT / 4, LIMIT / 8]);
        assert_eq!(shortened[5..], [LIMIT / 64; 3]);
        let lengthened: Vec<_> = (0..5).map(|_| after(&spinning, SOON)).collect();
        assert_eq!(lengthened, [LIMIT / 16, LIMIT / 8, LIMIT / 4, LIMIT / 2, LIMIT]);
    }

    #[test]
    fn spinning_that_is_in_the_way_is_held_back_and_tried_again() {
        let spinning = AdaptiveSpin::new(SpinPolicy::Spin(LIMIT));
        for _ in 0..3 {
            assert_eq!(spinning.duration(), LIMIT);
            for _ in 0..=HELD_BACK_SLEEPS {
                assert_eq!(after(&spinning, SOON), LIMIT / 64);
            }
            for _ in 0..5 {
                spinning.note_sleep(SOON);
            }
        }
    }

    #[test]
    fn yielding_is_in_nobodys_way() {
        let spinning = AdaptiveSpin::new(SpinPolicy::Yield(LIMIT));
        assert_eq!(after(&spinning, SOON), LIMIT);
        let sleeping = AdaptiveSpin::new(SpinPolicy::Sleep);
        assert_eq!(after(&sleeping, SOON), Duration::ZERO);
    }

    #[test]
    fn misses_make_attempts_rarer_until_one_hits() {
        const MISSES: u32 = 4;
        let mut back_off = BackOff::new(MISSES, 64);
        let until_next = |back_off: &mut BackOff| (0..).find(|_| back_off.is_due());
        for skipped in [1, 2, 4, 8, 16, 32, 64, 64] {
            for _ in 0..MISSES {
                assert_eq!(until_next(&mut back_off), Some(0));
                back_off.note(false);
            }
            assert_eq!(until_next(&mut back_off), Some(skipped));
        }
        back_off.note(true);
        for _ in 0..MISSES {
            assert_eq!(until_next(&mut back_off), Some(0));
            back_off.note(false);
        }
        assert_eq!(until_next(&mut back_off), Some(1));
    }
}
