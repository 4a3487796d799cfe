//! A mutex for what a whole process has. Knows nothing of what that is.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tcp")]
use crate::fork::Unforked;

/// A mutex that no thread holds while another forks: the child, in which that thread is not, finds
/// it free. A thread that panicked with it leaves what is there.
#[derive(Debug, Default)]
pub struct ProcessMutex<T> {
    inner: Mutex<T>,
}

/// What is in a [`ProcessMutex`], until this is dropped.
pub struct ProcessMutexGuard<'a, T> {
    // It goes first: as long as it is held, nobody forks.
    value: MutexGuard<'a, T>,
    #[cfg(feature = "tcp")]
    _unforked: Unforked,
}

impl<T> ProcessMutex<T> {
    /// A mutex of this value.
    pub const fn new(value: T) -> ProcessMutex<T> {
        ProcessMutex { inner: Mutex::new(value) }
    }

    /// What it holds. As long as it is held, nobody forks.
    pub fn lock(&self) -> ProcessMutexGuard<'_, T> {
        #[cfg(feature = "tcp")]
        let _unforked = Unforked::begin();
        let value = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        ProcessMutexGuard {
            value,
            #[cfg(feature = "tcp")]
            _unforked,
        }
    }
}

impl<T> Deref for ProcessMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ProcessMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
