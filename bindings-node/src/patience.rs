//! How long a JavaScript thread waits for an operation that it just issued, in the hope that it is
//! done before another thread could be woken and wake this one in turn. Knows no operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than this a JavaScript thread never waits.
const LONGEST: Duration = Duration::from_micros(150);
/// It always waits as long as this: many operations are done at once.
const SHORTEST: Duration = Duration::from_micros(2);

/// How long operations took lately, on average, in nanoseconds.
#[derive(Clone, Default)]
pub(crate) struct Patience(Arc<AtomicU32>);

impl Patience {
    /// How long to wait now: as long as twice an average operation, if that is short enough.
    pub(crate) fn limit(&self) -> Duration {
        let average = Duration::from_nanos(self.0.load(Ordering::Relaxed).into());
        if average > LONGEST { SHORTEST } else { (2 * average).clamp(LONGEST / 4, LONGEST) }
    }

    /// Learns that an operation which was issued at `start` is done now. On any thread.
    pub(crate) fn learn(&self, start: Instant) {
        // One that takes very long says no more than one that takes too long.
        let took = start.elapsed().min(4 * LONGEST).as_nanos() as u32;
        let average = self.0.load(Ordering::Relaxed);
        self.0.store(average - average / 4 + took / 4, Ordering::Relaxed);
    }
}
