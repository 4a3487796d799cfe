//! When the requests that make a group give up, however long their store would wait. Knows no
//! store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Store;
use crate::clock::{self, Instant};

/// What a request has at least, also when time is up: a rank still asks who did not come, and tells
/// the others.
const LEAST: Duration = Duration::from_secs(1);

/// A limit that requests have together, until it is lifted.
#[derive(Debug)]
pub struct Bound {
    /// `None`: there is none.
    until: Option<Instant>,
    is_lifted: AtomicBool,
}

impl Bound {
    /// A limit that begins now; zero is none.
    pub(crate) fn after(limit: Duration) -> Arc<Bound> {
        let until = (!limit.is_zero()).then(|| clock::after(limit));
        Arc::new(Bound { until, is_lifted: AtomicBool::new(false) })
    }

    /// `store`, the same one: its requests keep to this limit, if it is one whose requests can.
    pub(crate) fn of(self: &Arc<Self>, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.bounded(self).unwrap_or_else(|| store.clone())
    }

    /// Requests have no other limit than that of their store from now on.
    pub(crate) fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }

    /// Whether it was lifted.
    pub fn is_lifted(&self) -> bool {
        self.is_lifted.load(Ordering::Relaxed)
    }

    /// The limit of a request that begins now, which would have `limit`; zero is none.
    pub fn within(&self, limit: Duration) -> Duration {
        let Some(until) = self.until.filter(|_| !self.is_lifted()) else { return limit };
        let left = until.saturating_duration_since(Instant::now()).max(LEAST);
        if limit.is_zero() { left } else { limit.min(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_shorter_limit_until_it_is_lifted() {
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(3600));
        let bound = Bound::after(Duration::from_secs(600));
        assert_eq!(bound.within(short), short);
        for limit in [long, Duration::ZERO] {
            assert!(bound.within(limit) <= Duration::from_secs(600));
            assert!(bound.within(limit) >= LEAST);
        }
        assert_eq!(Bound::after(Duration::from_nanos(1)).within(long), LEAST);
        assert_eq!(Bound::after(Duration::ZERO).within(long), long);
        bound.lift();
        assert_eq!(bound.within(long), long);
        assert_eq!(bound.within(Duration::ZERO), Duration::ZERO);
    }
}
