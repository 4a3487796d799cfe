//! Waiting for the group to break.

use std::sync::Arc;

use super::Driver;
use crate::completion::{Completion, inherited_error};
use crate::transport::Rank;

impl Driver {
    /// A completion that fails when the group breaks. While it is held, the background thread
    /// checks whether ranks are gone, `peers` among them.
    pub fn await_failure(&self, peers: &[Rank]) -> Arc<Completion> {
        let completion = Arc::new(Completion::new());
        if self.is_inherited() {
            completion.complete(Err(inherited_error()));
            return completion;
        }
        self.change(|executor, _| executor.tell_of_failure(&completion, peers));
        self.background.request_check();
        completion
    }
}
