//! The first error of a handle that keeps it for itself. Knows no operation.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What failed first, with the number of the members that the group had then: it says nothing of
/// others.
#[derive(Default)]
pub(super) struct SwallowedError(Mutex<Option<(u64, String)>>);

impl SwallowedError {
    /// What failed first among the members of `epoch`.
    pub(super) fn of(&self, epoch: u64) -> Option<String> {
        self.lock().as_ref().filter(|(of, _)| *of == epoch).map(|(_, error)| error.clone())
    }

    /// Something failed among the members of `epoch`. What is known of later ones stays.
    pub(super) fn note(&self, epoch: u64, error: impl FnOnce() -> String) {
        let mut first = self.lock();
        if first.as_ref().is_none_or(|(of, _)| *of < epoch) {
            *first = Some((epoch, error()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(u64, String)>> {
        // The value is valid whoever panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
