//! What copies cost in a group is kept for the next one when it is left. Knows no operations.

use std::sync::PoisonError;

use super::ScheduledBackend;

impl ScheduledBackend {
    /// Keeps what copies cost here for the next group, if this rank does that, once. What a broken
    /// group has measured may be its end.
    pub(super) fn keep_prices(&self) {
        let kept = self.kept_prices.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_over = self.driver.is_inherited() || self.driver.is_broken();
        if let Some(kept) = kept.filter(|_| !is_over) {
            kept.keep(self.driver.known_prices());
        }
    }
}

impl Drop for ScheduledBackend {
    fn drop(&mut self) {
        // Of a group that nobody has ended.
        self.keep_prices();
    }
}
