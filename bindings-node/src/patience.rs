//! How long a JavaScript thread waits for an operation that it just issued, in the hope that it is
//! done before another thread could be woken and wake this one in turn. Knows no operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than this a JavaScript thread never waits.
const LONGEST: Duration = Duration::from_micros(150);
/// It always waits as long as this: waking another thread, and this one again, takes longer.
const SHORTEST: Duration = Duration::from_micros(40);
/// One of so many operations is waited for although those before it took long: most of what they
/// took may have been the waking of threads, of which there is none where the ranks wait.
const TRIED: u32 = 8;

/// How long operations took lately.
#[derive(Clone, Default)]
pub(crate) struct Patience(Arc<Experience>);

#[derive(Default)]
struct Experience {
    /// On average, nanoseconds.
    average: AtomicU32,
    /// Operations that were hardly waited for since one was.
    untried: AtomicU32,
}

impl Patience {
    /// How long to wait now: as long as twice an average operation, if that is short enough.
    pub(crate) fn limit(&self) -> Duration {
        let average = Duration::from_nanos(self.0.average.load(Ordering::Relaxed).into());
        if average <= LONGEST {
            return (2 * average).clamp(SHORTEST, LONGEST);
        }
        let untried = self.0.untried.load(Ordering::Relaxed) + 1;
        self.0.untried.store(untried % TRIED, Ordering::Relaxed);
        if untried < TRIED { SHORTEST } else { LONGEST }
    }

    /// Learns that an operation which was issued at `start` is done now, and that no other thread
    /// had to be woken for it.
    pub(crate) fn learn_at_once(&self, start: Instant) {
        self.0.average.fetch_min(LONGEST.as_nanos() as u32, Ordering::Relaxed);
        self.learn(start);
    }

    /// Learns that an operation which was issued at `start` is done now. On any thread.
    pub(crate) fn learn(&self, start: Instant) {
        // One that takes very long says no more than one that takes too long.
        let took = start.elapsed().min(4 * LONGEST).as_nanos() as u32;
        let average = self.0.average.load(Ordering::Relaxed);
        self.0.average.store(average - average / 4 + took / 4, Ordering::Relaxed);
    }
}
