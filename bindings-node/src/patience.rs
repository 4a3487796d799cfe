//! How long a JavaScript thread waits for an operation that it just issued, in the hope that it is
//! done before a thread could be woken. Knows no operation.

use std::cell::Cell;
use std::time::Duration;

/// Longer than this a JavaScript thread never waits.
const LONGEST: Duration = Duration::from_micros(60);
/// It always waits as long as this, to learn whether waiting has become worth it.
const SHORTEST: Duration = Duration::from_micros(2);

/// The time that waiting was worth lately.
pub(crate) struct Patience(Cell<Duration>);

impl Default for Patience {
    fn default() -> Patience {
        Patience(Cell::new(LONGEST))
    }
}

impl Patience {
    /// How long to wait now.
    pub(crate) fn limit(&self) -> Duration {
        self.0.get()
    }

    /// Learns whether the operation was done by then.
    pub(crate) fn learn(&self, was_done: bool) {
        let limit = self.0.get();
        let next = if was_done { (limit * 2).min(LONGEST) } else { (limit * 3 / 4).max(SHORTEST) };
        self.0.set(next);
    }
}
