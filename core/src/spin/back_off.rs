//! How long a waiting thread polls before it sleeps, or whether it polls at all, learned from how
//! well that has worked lately. Reads no clock.

use std::cmp;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Pause, SpinPolicy, runnable};

/// After spinning has kept others from running, a thread lets them have the core between two polls.
/// Keeping it is tried again after this many short sleeps, and each time after twice as many,
const MIN_HELD_BACK: u32 = 4;
/// up to so many.
const MAX_HELD_BACK: u32 = 64;
/// Where nobody else needs the core, spinning may last so many times longer than its limit, if
/// that is how long the waits are.
const MAX_LIMITS: u32 = 8;

/// How long to spin before a sleep, learned by threads that wait for the same.
///
/// A short sleep shows that spinning for longer would have saved it: one that was over within the
/// limit, and the time that waking takes, which is taken to be that of the shortest sleep lately.
/// It was the only sleep that could be too long in vain, though: if the thread had spun for as long
/// as it may, spinning itself may have delayed what it waited for, because another process has a
/// core, and the rank that it waits for needs this one. Ranks in several containers or namespaces
/// of a machine are told so by nothing else: each believes that it has all cores. Where that is so,
/// a thread yields the core between two polls, as it does from the beginning where ranks are known
/// to share cores.
pub(crate) struct AdaptiveSpin {
    /// Nanoseconds, as the others.
    limit: u32,
    /// What is done between two polls where nobody else needs the core.
    pause: Pause,
    spin: AtomicU32,
    /// How long it takes to be woken.
    wake: AtomicU32,
    /// Sleeps for which spinning is not tried again.
    held_back: AtomicU32,
    /// As many the next time.
    next_held_back: AtomicU32,
}

impl AdaptiveSpin {
    /// Nothing learned yet: it spins for as long as `policy` allows.
    pub(crate) fn new(policy: SpinPolicy) -> AdaptiveSpin {
        let limit = nanos(policy.limit());
        AdaptiveSpin {
            limit,
            pause: policy.pause(),
            spin: AtomicU32::new(limit),
            wake: AtomicU32::new(0),
            held_back: AtomicU32::new(0),
            next_held_back: AtomicU32::new(MIN_HELD_BACK),
        }
    }

    /// How long to spin.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.spin.load(Ordering::Relaxed).into())
    }

    /// What to do between two polls.
    pub(crate) fn pause(&self) -> Pause {
        match self.held_back.load(Ordering::Relaxed) {
            0 => self.pause,
            _ => Pause::Yield,
        }
    }

    /// Notes a sleep after spinning in vain for [`AdaptiveSpin::duration`].
    pub(crate) fn note_sleep(&self, slept: Duration) {
        self.note(nanos(slept), runnable::compared_with_cores);
    }

    /// As [`AdaptiveSpin::note_sleep`]; `runnable` says whether more threads want to run than there
    /// are cores, or fewer, if that is known.
    fn note(&self, slept: u32, runnable: impl FnOnce() -> Option<cmp::Ordering>) {
        let (spin, shortest) = (self.spin.load(Ordering::Relaxed), self.limit / 64);
        let held_back = self.held_back.load(Ordering::Relaxed);
        let next = if slept > self.limit.saturating_add(self.note_wake(slept)) {
            (spin / 2).max(shortest)
        } else if held_back > 0 {
            self.held_back.store(held_back - 1, Ordering::Relaxed);
            spin.saturating_mul(2).max(shortest).min(self.limit / 2)
        } else if spin < self.limit {
            spin.saturating_mul(2).max(self.limit / 16).min(self.limit)
        } else if self.pause != Pause::Spin {
            self.limit
        } else {
            match runnable() {
                None | Some(cmp::Ordering::Greater) => {
                    let hold = self.next_held_back.load(Ordering::Relaxed);
                    self.held_back.store(hold, Ordering::Relaxed);
                    self.next_held_back.store((2 * hold).min(MAX_HELD_BACK), Ordering::Relaxed);
                    self.limit / 2
                }
                // The rank that this one waits for may sleep, so that it would be one too many.
                Some(cmp::Ordering::Equal) => self.limit,
                Some(cmp::Ordering::Less) => {
                    self.next_held_back.store(MIN_HELD_BACK, Ordering::Relaxed);
                    spin.saturating_mul(2).min(self.limit.saturating_mul(MAX_LIMITS))
                }
            }
        };
        self.spin.store(next, Ordering::Relaxed);
    }

    /// How long waking takes, with this sleep. What was learned rises slowly, since sleeps may have
    /// become longer, and no higher than some limits: then they are long.
    fn note_wake(&self, slept: u32) -> u32 {
        let known = self.wake.load(Ordering::Relaxed);
        let risen = known.saturating_add(known / 64).max(1);
        let most = self.limit.saturating_mul(MAX_LIMITS);
        let wake = if known == 0 { slept } else { slept.min(risen) }.min(most);
        self.wake.store(wake, Ordering::Relaxed);
        wake
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

    /// How long it spins after a sleep, where threads have cores enough, or not, or nobody knows.
    fn after(
        spinning: &AdaptiveSpin,
        slept: Duration,
        runnable: Option<cmp::Ordering>,
    ) -> Duration {
        spinning.note(nanos(slept), || runnable);
        spinning.duration()
    }

    /// One that has learned that waking takes a microsecond.
    fn spinning(policy: SpinPolicy) -> AdaptiveSpin {
        let spinning = AdaptiveSpin::new(policy);
        spinning.wake.store(1000, Ordering::Relaxed);
        spinning
    }

    #[test]
    fn long_waits_shorten_it_and_a_wait_that_was_soon_over_lengthens_it() {
        let spinning = spinning(SpinPolicy::Spin(LIMIT));
        let shortened: Vec<_> = (0..8).map(|_| after(&spinning, LATE, None)).collect();
        assert_eq!(shortened[..3], [LIMIT / 2, LIMIT / 4, LIMIT / 8]);
        assert_eq!(shortened[5..], [LIMIT / 64; 3]);
        let lengthened: Vec<_> = (0..5).map(|_| after(&spinning, SOON, None)).collect();
        assert_eq!(lengthened, [LIMIT / 16, LIMIT / 8, LIMIT / 4, LIMIT / 2, LIMIT]);
    }

    #[test]
    fn waking_that_takes_long_does_not_look_like_a_long_wait() {
        let (spinning, wake) = (AdaptiveSpin::new(SpinPolicy::Spin(LIMIT)), 3 * LIMIT);
        for _ in 0..8 {
            after(&spinning, LATE, None);
        }
        assert_eq!(spinning.duration(), LIMIT / 64);
        // All wait for one another, and what each waits for comes right after it fell asleep.
        let lengthened: Vec<_> =
            (0..5).map(|_| after(&spinning, wake, Some(cmp::Ordering::Less))).collect();
        assert_eq!(lengthened.last(), Some(&LIMIT));
        // Waits of always the same length are long for all that.
        for _ in 0..2000 {
            after(&spinning, LATE, Some(cmp::Ordering::Less));
        }
        assert_eq!(spinning.duration(), LIMIT / 64);
    }

    #[test]
    fn spinning_that_is_in_the_way_is_held_back_and_tried_again() {
        for runnable in [None, Some(cmp::Ordering::Greater)] {
            let spinning = spinning(SpinPolicy::Spin(LIMIT));
            for held_back in [4, 8, 16, 32, 64, 64] {
                assert_eq!(spinning.duration(), LIMIT);
                assert_eq!(spinning.pause(), Pause::Spin);
                for _ in 0..held_back {
                    assert_eq!(after(&spinning, SOON, runnable), LIMIT / 2);
                    assert_eq!(spinning.pause(), Pause::Yield);
                }
                for _ in 0..2 {
                    after(&spinning, SOON, runnable);
                }
            }
        }
    }

    #[test]
    fn spinning_on_a_core_that_nobody_needs_lasts_as_long_as_the_waits() {
        let spinning = spinning(SpinPolicy::Spin(LIMIT));
        let lengthened: Vec<_> =
            (0..4).map(|_| after(&spinning, SOON, Some(cmp::Ordering::Less))).collect();
        assert_eq!(lengthened, [2 * LIMIT, 4 * LIMIT, 8 * LIMIT, 8 * LIMIT]);
        assert_eq!(after(&spinning, LATE, Some(cmp::Ordering::Less)), 4 * LIMIT);
        assert_eq!(after(&spinning, SOON, Some(cmp::Ordering::Equal)), LIMIT, "it might be needed");
        let needed = Some(cmp::Ordering::Greater);
        assert_eq!(after(&spinning, SOON, needed), LIMIT / 2, "somebody needs it now");
        assert_eq!(spinning.pause(), Pause::Yield);
    }

    #[test]
    fn yielding_is_in_nobodys_way() {
        let yielding = spinning(SpinPolicy::Yield(LIMIT));
        assert_eq!(after(&yielding, SOON, Some(cmp::Ordering::Greater)), LIMIT);
        let sleeping = spinning(SpinPolicy::Sleep);
        assert_eq!(after(&sleeping, SOON, None), Duration::ZERO);
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
