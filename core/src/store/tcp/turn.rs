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
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// Threads that wait: telling nobody would be a system call for each request.
    waiting: u32,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// That the deadline passed first, or the thread was interrupted.
    pub(super) fn take(&self, deadline: &Deadline) -> Result<Taken<'_>, Expired> {
        let mut slice = Duration::ZERO;
        loop {
            if let Some(taken) = self.take_within(slice) {
                return Ok(taken);
            }
            // Not under the lock: it may run the user's code, which may use the same store.
            slice = deadline.slice(Duration::MAX)?;
        }
    }

    fn take_within(&self, slice: Duration) -> Option<Taken<'_>> {
        let mut state = self.lock();
        if state.is_taken && !slice.is_zero() {
            state.waiting += 1;
            let waited = self.freed.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        if state.is_taken {
            return None;
        }
        state.is_taken = true;
        Some(Taken(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_taken = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::LazyLock;

    use super::*;
    use crate::store::install_interrupt_check;

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

    static SHARED: LazyLock<Turn> = LazyLock::new(Turn::default);

    #[test]
    fn what_interrupts_a_waiting_thread_may_ask_for_the_same_turn() {
        fn asks_too() -> bool {
            let deadline = Deadline::uninterrupted(Duration::from_millis(1));
            SHARED.take(&deadline).err() == Some(Expired::TimedOut)
        }
        let _taken = SHARED.take(&Deadline::after(Duration::ZERO)).unwrap();
        let guard = install_interrupt_check(asks_too);
        let waited = SHARED.take(&Deadline::after(Duration::from_secs(60))).err();
        assert_eq!(waited, Some(Expired::Interrupted));
        drop(guard);
    }
}
