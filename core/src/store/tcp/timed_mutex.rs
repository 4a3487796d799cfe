//! A mutex whose callers wait no longer than their deadlines say.
//! Knows nothing of what is shared.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::store::Deadline;
use crate::store::deadline::WaitError;

/// What one thread at a time may use. A lock of the standard library knows no deadline, and the
/// thread that has it may wait for a key for as long as it likes.
#[derive(Debug)]
pub(super) struct TimedMutex<T: Default> {
    place: Mutex<Place<T>>,
    freed: Condvar,
}

#[derive(Debug)]
struct Place<T> {
    shared: LockState<T>,
    /// Threads that wait: telling nobody would be a system call for each request.
    waiting: u32,
}

/// What is shared, or who has it.
#[derive(Debug)]
enum LockState<T> {
    Free(T),
    Locked(ThreadId),
}

/// Why a thread does not get its mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockError {
    /// It waited for as long as it may.
    Expired(WaitError),
    /// It has it already: what interrupts it in the middle asks for it again.
    Reentrant,
}

/// What is shared, until this is dropped.
pub(super) struct TimedMutexGuard<'a, T: Default> {
    mutex: &'a TimedMutex<T>,
    shared: T,
}

impl<T: Default> TimedMutex<T> {
    pub(super) fn new(shared: T) -> TimedMutex<T> {
        let place = Place { shared: LockState::Free(shared), waiting: 0 };
        TimedMutex { place: Mutex::new(place), freed: Condvar::new() }
    }

    /// Waits for the mutex; calls `meanwhile` now and then.
    ///
    /// # Errors
    /// That the deadline passed first, or the thread was interrupted, or has the mutex.
    pub(super) fn lock(
        &self,
        deadline: &Deadline,
        mut meanwhile: impl FnMut(),
    ) -> Result<TimedMutexGuard<'_, T>, LockError> {
        let mut slice = Duration::ZERO;
        loop {
            if let Some(shared) = self.lock_within(slice)? {
                return Ok(TimedMutexGuard { mutex: self, shared });
            }
            // Not under the lock: it may run the user's code, which may use the same store.
            slice = deadline.slice(Duration::MAX).map_err(LockError::Expired)?;
            meanwhile();
        }
    }

    fn lock_within(&self, slice: Duration) -> Result<Option<T>, LockError> {
        let own = thread::current().id();
        let mut place = self.place();
        match place.shared {
            LockState::Locked(thread) if thread == own => return Err(LockError::Reentrant),
            LockState::Locked(_) if !slice.is_zero() => {
                place.waiting += 1;
                let waited = self.freed.wait_timeout(place, slice);
                place = waited.unwrap_or_else(PoisonError::into_inner).0;
                place.waiting -= 1;
            }
            _ => {}
        }
        let shared = std::mem::replace(&mut place.shared, LockState::Locked(own));
        match shared {
            LockState::Free(shared) => Ok(Some(shared)),
            taken @ LockState::Locked(_) => {
                place.shared = taken;
                Ok(None)
            }
        }
    }

    fn place(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Deref for TimedMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared
    }
}

impl<T: Default> DerefMut for TimedMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.shared
    }
}

impl<T: Default> Drop for TimedMutexGuard<'_, T> {
    fn drop(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        // What a panic left in the middle of something is nothing to go on with.
        let shared = if thread::panicking() { T::default() } else { shared };
        let mut place = self.mutex.place();
        place.shared = LockState::Free(shared);
        let is_awaited = place.waiting > 0;
        drop(place);
        if is_awaited {
            self.mutex.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::LazyLock;
    use std::sync::mpsc;

    use super::*;
    use crate::store::install_interrupt_check;

    const EXPIRED: LockError = LockError::Expired(WaitError::TimedOut);

    #[test]
    fn who_waits_for_the_mutex_waits_no_longer_than_it_may() {
        let mutex = TimedMutex::new(0);
        let mut taken = mutex.lock(&Deadline::after(Duration::ZERO), || {}).unwrap();
        std::thread::scope(|scope| {
            let late = || mutex.lock(&Deadline::after(Duration::from_millis(1)), || {}).err();
            assert_eq!(scope.spawn(late).join().unwrap(), Some(EXPIRED));
            let waits =
                scope.spawn(|| *mutex.lock(&Deadline::after(Duration::ZERO), || {}).unwrap());
            *taken += 1;
            drop(taken);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(
            mutex.lock(&Deadline::after(Duration::from_millis(1)), || {}).is_ok(),
            "it was given back"
        );
    }

    #[test]
    fn who_has_the_mutex_is_refused_it_again() {
        let mutex = TimedMutex::new(0);
        let taken = mutex.lock(&Deadline::after(Duration::ZERO), || {}).unwrap();
        let another = mutex.lock(&Deadline::after(Duration::ZERO), || {}).err();
        assert_eq!(another, Some(LockError::Reentrant));
        drop(taken);
        assert!(mutex.lock(&Deadline::after(Duration::ZERO), || {}).is_ok());
    }

    #[test]
    fn what_a_panic_left_is_not_gone_on_with() {
        let mutex = TimedMutex::new(7);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut taken = mutex.lock(&Deadline::after(Duration::ZERO), || {}).unwrap();
            *taken = 8;
            panic!("in the middle");
        }));
        assert!(panics.is_err());
        assert_eq!(*mutex.lock(&Deadline::after(Duration::ZERO), || {}).unwrap(), 0);
    }

    static SHARED: LazyLock<TimedMutex<()>> = LazyLock::new(|| TimedMutex::new(()));

    #[test]
    fn what_interrupts_a_waiting_thread_may_ask_for_the_same_mutex() {
        fn asks_too() -> bool {
            let deadline = Deadline::uninterrupted(Duration::from_millis(1));
            SHARED.lock(&deadline, || {}).err() == Some(EXPIRED)
        }
        let (taken, is_taken) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _turn = SHARED.lock(&Deadline::after(Duration::ZERO), || {}).unwrap();
                taken.send(()).unwrap();
                // Until the other end is gone.
                let _ = is_over.recv();
            });
            is_taken.recv().unwrap();
            let guard = install_interrupt_check(asks_too);
            let waited = SHARED.lock(&Deadline::after(Duration::from_secs(60)), || {}).err();
            assert_eq!(waited, Some(LockError::Expired(WaitError::Interrupted)));
            drop((guard, over));
        });
    }
}
