//! Whose turn it is: threads that share something wait for one another, each no longer than it may.
//! Knows nothing of what is shared.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::Deadline;
use crate::store::deadline::Expired;

/// Taken by one thread at a time. A lock of the standard library knows no deadline, and whoever has
/// the turn may wait for a key for as long as it likes.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_taken: Mutex<bool>,
    freed: Condvar,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// That the deadline passed first, or the thread was interrupted.
    pub(super) fn take(&self, deadline: &Deadline) -> Result<Taken<'_>, Expired> {
        let mut is_taken = self.lock();
        while *is_taken {
            let slice = deadline.slice(Duration::MAX)?;
            let waited = self.freed.wait_timeout(is_taken, slice);
            is_taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Ok(Taken(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_waits_for_the_turn_waits_no_longer_than_it_may() {
        let turn = Turn::default();
        let taken = turn.take(&Deadline::after(Duration::ZERO)).unwrap();
        let late = turn.take(&Deadline::after(Duration::from_millis(1))).err();
        assert_eq!(late, Some(Expired::TimedOut));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turn.take(&Deadline::after(Duration::ZERO)).is_ok());
            drop(taken);
            assert!(waits.join().unwrap());
        });
        assert!(turn.take(&Deadline::after(Duration::from_millis(1))).is_ok(), "it was given back");
    }
}
