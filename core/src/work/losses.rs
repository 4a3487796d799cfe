//! What compressing the elements of an operation lost on this rank. Knows no formats.

use std::sync::{Mutex, PoisonError};

use crate::kernels::CompressionLoss;

/// What was lost until now.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<CompressionLoss>);

impl Losses {
    /// All of it.
    pub(crate) fn all(&self) -> CompressionLoss {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More was lost.
    pub(crate) fn add(&self, lost: CompressionLoss) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.and(lost);
    }
}
