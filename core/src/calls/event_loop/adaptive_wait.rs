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

/// After so many loans, one after the other, that ended before their operations did, memory is not
/// lent for a while: the copies were made in vain, and all at once.
const MISSED_LOANS: u32 = 2;
/// For so many operations.
const SKIPPED_LOANS: u32 = 4;

/// How long operations took lately.
#[derive(Clone, Debug, Default)]
pub struct AdaptiveWait(Arc<History>);

#[derive(Debug, Default)]
struct History {
    /// On average, nanoseconds.
    average: AtomicU32,
    /// Operations since one was waited for.
    unprobed: AtomicU32,
    /// Loans that ended too early, since the last one that did not.
    missed_loans: AtomicU32,
    /// Operations for which memory is not lent from now on.
    skipped_loans: AtomicU32,
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

    /// Whether to lend memory to a large operation.
    pub fn is_loan_due(&self) -> bool {
        let skipped = self.0.skipped_loans.load(Ordering::Relaxed);
        self.0.skipped_loans.store(skipped.saturating_sub(1), Ordering::Relaxed);
        skipped == 0
    }

    /// Learns whether a large operation that memory was lent to was over in time.
    pub fn note_loan(&self, is_over: bool) {
        let missed = if is_over { 0 } else { self.0.missed_loans.load(Ordering::Relaxed) + 1 };
        if missed < MISSED_LOANS {
            self.0.missed_loans.store(missed, Ordering::Relaxed);
        } else {
            // The next one that misses shows that nothing has changed.
            self.0.missed_loans.store(MISSED_LOANS - 1, Ordering::Relaxed);
            self.0.skipped_loans.store(SKIPPED_LOANS, Ordering::Relaxed);
        }
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
