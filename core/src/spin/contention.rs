//! Whether other threads compute on this host's cores, so that busy-polling for the next event
//! would cost more than sleeping until it comes. Knows nothing of sockets.
//!
//! A thread that busy-polls yields its core between two polls. If no thread needs the core, or only
//! threads that soon wait themselves, that costs a microsecond. If another thread computes, the
//! system lets that one use up its time slice: 3 to 4 ms were measured, for an answer that takes
//! 20 µs. A thread that sleeps is given the core when its message arrives.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// If a core comes back later than this, another thread computed on it. Sixteen clients that send
/// requests in turn on two cores got it back within half of this.
const LATE_AFTER: Duration = Duration::from_millis(1);
/// How long no thread busy-polls after that: one attempt in this time costs little.
const POLL_PAUSE: Duration = Duration::from_millis(250);

/// The contention that this process has noticed.
static NOTICED: CpuContention = CpuContention { until_ns: AtomicU64::new(0) };

/// Until when the cores count as contended.
#[derive(Debug, Default)]
struct CpuContention {
    until_ns: AtomicU64,
}

impl CpuContention {
    fn is_contended(&self, now: Duration) -> bool {
        (now.as_nanos() as u64) < self.until_ns.load(Ordering::Relaxed)
    }

    /// Yields the core. Returns whether busy-polling still pays.
    fn yield_core(&self, now: impl Fn() -> Duration, give_up_core: impl FnOnce()) -> bool {
        let before = now();
        if self.is_contended(before) {
            return false;
        }
        give_up_core();
        self.notice(before, now())
    }

    /// Notes that the core was yielded from `before` to `after`. Returns whether it came back soon.
    fn notice(&self, before: Duration, after: Duration) -> bool {
        let came_soon = after - before <= LATE_AFTER;
        if !came_soon {
            self.until_ns.store((after + POLL_PAUSE).as_nanos() as u64, Ordering::Relaxed);
        }
        came_soon
    }
}

/// A period of busy-polling, in which other threads get the core between two polls.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    limit: Duration,
    since: Instant,
}

impl BusyPoll {
    /// Busy-polling for up to `limit`; none if the cores are contended.
    pub(crate) fn start(limit: Duration) -> Option<BusyPoll> {
        (!NOTICED.is_contended(now())).then(|| BusyPoll { limit, since: Instant::now() })
    }

    /// Whether the limit has not passed.
    pub(crate) fn is_in_time(&self) -> bool {
        self.since.elapsed() <= self.limit
    }

    /// Yields the core, within the limit. Returns whether to poll again.
    pub(crate) fn goes_on(&self) -> bool {
        self.is_in_time() && NOTICED.yield_core(now, std::thread::yield_now)
    }

    /// Restarts the limit now.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }
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
    fn a_core_that_comes_late_ends_busy_polling_for_a_while() {
        let (contention, ms) = (CpuContention::default(), Duration::from_millis);
        assert!(!contention.is_contended(ms(0)));
        assert!(contention.notice(ms(1), ms(1) + Duration::from_micros(500)));
        assert!(!contention.is_contended(ms(2)));
        assert!(!contention.notice(ms(2), ms(6)));
        assert!(contention.is_contended(ms(6)) && contention.is_contended(ms(255)));
        assert!(!contention.is_contended(ms(256)));
    }

    #[test]
    fn nobody_polls_on_once_another_thread_has_noticed() {
        let contention = CpuContention::default();
        let [ms, clock] = [Duration::from_millis(1), Duration::from_millis(7)];
        assert!(contention.yield_core(|| clock, || ()));
        assert!(!contention.notice(clock - 5 * ms, clock));
        assert!(!contention.yield_core(|| clock, || panic!("the core is not given up in vain")));
    }

    #[test]
    fn polling_ends_with_its_limit() {
        let mut poll = BusyPoll { limit: Duration::MAX, since: Instant::now() };
        assert!(poll.is_in_time());
        poll.limit = Duration::ZERO;
        poll.since = Instant::now() - Duration::from_millis(1);
        assert!(!poll.is_in_time() && !poll.goes_on());
    }
}
