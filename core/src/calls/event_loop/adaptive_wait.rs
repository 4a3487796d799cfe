//! How long the thread of an event loop waits for an operation that it just issued, in the hope
//! that it is done before another thread could be woken and wake this one in turn. Knows no
//! operation.
//!
//! It is not one of the waits of `core/src/spin`: what it bounds is how long an event loop stands
//! still, so it learns how long operations take, not how long a sleep does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An event loop never stands still longer than this.
const MAX_WAIT: Duration = Duration::from_micros(150);
/// It always waits as long as this: waking another thread, and this one again, takes longer.
const MIN_WAIT: Duration = Duration::from_micros(40);
/// One of so many operations is waited for although those before it took long: most of that time
/// may have been the waking of threads, which costs nothing where the ranks wait.
const PROBE_INTERVAL: u32 = 8;

/// How long operations took lately.
#[derive(Clone, Debug, Default)]
pub struct AdaptiveWait(Arc<History>);

#[derive(Debug, Default)]
struct History {
    /// On average, nanoseconds.
    average: AtomicU32,
    /// Operations since one was waited for.
    unprobed: AtomicU32,
}

impl AdaptiveWait {
    /// How long to wait now: as long as twice an average operation, if that is short enough.
    pub fn limit(&self) -> Duration {
        let average = Duration::from_nanos(self.0.average.load(Ordering::Relaxed).into());
        if average <= MAX_WAIT {
            return (2 * average).clamp(MIN_WAIT, MAX_WAIT);
        }
        let unprobed = self.0.unprobed.load(Ordering::Relaxed) + 1;
        self.0.unprobed.store(unprobed % PROBE_INTERVAL, Ordering::Relaxed);
        if unprobed < PROBE_INTERVAL { MIN_WAIT } else { MAX_WAIT }
    }

    /// Learns that an operation which was issued at `start` is done now, and that no other thread
    /// had to be woken for it.
    pub fn learn_immediate(&self, start: Instant) {
        self.0.average.fetch_min(MAX_WAIT.as_nanos() as u32, Ordering::Relaxed);
        self.learn(start);
    }

    /// Learns that an operation which was issued at `start` is done now. On any thread.
    pub fn learn(&self, start: Instant) {
        // One that takes very long says no more than one that takes too long.
        let took = start.elapsed().min(4 * MAX_WAIT).as_nanos() as u32;
        let average = self.0.average.load(Ordering::Relaxed);
        self.0.average.store(average - average / 4 + took / 4, Ordering::Relaxed);
    }
}
