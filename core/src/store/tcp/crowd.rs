//! Whether others compute on this host's cores, so that to look on for what comes next would cost
//! more than to sleep until it comes. Knows nothing of sockets.
//!
//! A thread that looks on gives up its core between two looks. Where nobody wants the core, or only
//! threads that soon wait themselves, that costs a microsecond. Where somebody computes, the system
//! lets that one use up its time: 3 to 4 ms were measured, for an answer that takes 20 µs. A thread
//! that sleeps is given the core when its message comes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A core that comes back later than this was with somebody who computes. Sixteen clients that ask
/// in turn on two cores had it back within half of this.
const LATE: Duration = Duration::from_millis(1);
/// Nobody looks on for so long after that: one look in this time costs little.
const PAUSE: Duration = Duration::from_millis(250);

/// What this process has noticed.
static NOTICED: Crowd = Crowd { until_ns: AtomicU64::new(0) };

/// Until when the cores count as wanted.
#[derive(Debug, Default)]
struct Crowd {
    until_ns: AtomicU64,
}

impl Crowd {
    fn is_there(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.until_ns.load(Ordering::Relaxed)
    }

    /// The core was given up from `before` to `after`; whether it came back soon.
    fn notice(&self, before: Duration, after: Duration) -> bool {
        let came_soon = after - before <= LATE;
        if !came_soon {
            self.until_ns.store((after + PAUSE).as_nanos() as u64, Ordering::Relaxed);
        }
        came_soon
    }
}

/// Whether others want the cores, so that there is no use in looking on.
pub(super) fn is_there() -> bool {
    NOTICED.is_there(now())
}

/// Gives the core to others; whether there is still use in looking on.
pub(super) fn yield_core() -> bool {
    let before = now();
    std::thread::yield_now();
    NOTICED.notice(before, now())
}

/// Time since this was first asked.
fn now() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_comes_late_ends_looking_on_for_a_while() {
        let (crowd, ms) = (Crowd::default(), Duration::from_millis);
        assert!(!crowd.is_there(ms(0)));
        assert!(crowd.notice(ms(1), ms(1) + Duration::from_micros(500)));
        assert!(!crowd.is_there(ms(2)));
        assert!(!crowd.notice(ms(2), ms(6)));
        assert!(crowd.is_there(ms(6)) && crowd.is_there(ms(255)));
        assert!(!crowd.is_there(ms(256)));
    }
}
