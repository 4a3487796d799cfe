//! How long it takes to wake a thread on this host, as measured when threads were woken: who would
//! have to wake another thread may as well poll for as long. Reads no clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time from a call that wakes a thread until that thread runs, on average.
#[derive(Debug, Default)]
pub(crate) struct WakeCost {
    /// Nanoseconds; 0 before the first sample.
    average: AtomicU32,
}

impl WakeCost {
    /// Nothing measured yet.
    pub(crate) const fn new() -> WakeCost {
        WakeCost { average: AtomicU32::new(0) }
    }

    /// The cost, if it was measured, and at most `limit`: where cores are busy, a thread that is
    /// woken has to wait for one.
    pub(crate) fn at_most(&self, limit: Duration) -> Duration {
        match self.average.load(Ordering::Relaxed) {
            0 => limit,
            average => limit.min(Duration::from_nanos(average.into())),
        }
    }

    /// Notes that a thread ran so long after it was woken. Called by one thread at a time.
    pub(crate) fn note(&self, took: Duration) {
        let average = self.average.load(Ordering::Relaxed);
        let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
        let next = match average {
            0 => took,
            // One that waited for a core says little of the others.
            average => average - average / 8 + took.min(average.saturating_mul(4)) / 8,
        };
        self.average.store(next.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    #[test]
    fn it_is_the_average_of_what_was_measured_within_the_limit() {
        let (cost, us) = (WakeCost::new(), Duration::from_micros);
        assert_eq!(cost.at_most(LIMIT), LIMIT);
        cost.note(us(8));
        assert_eq!(cost.at_most(LIMIT), us(8));
        cost.note(us(16));
        assert_eq!(cost.at_most(LIMIT), us(9));
        cost.note(Duration::from_secs(1));
        assert_eq!(cost.at_most(LIMIT), us(9) * 11 / 8);
        (0..100).for_each(|_| cost.note(us(1000)));
        assert_eq!(cost.at_most(LIMIT), LIMIT);
    }
}
