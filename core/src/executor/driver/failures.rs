//! Who waits for the group to break, and is told.

use std::sync::Arc;

use super::Driver;
use crate::completion::Completion;
use crate::transport::Rank;

impl Driver {
    /// What ends, badly, when the group breaks. As long as somebody has it, the background thread
    /// looks out for ranks that are gone, `peers` among them.
    pub fn await_failure(&self, peers: &[Rank]) -> Arc<Completion> {
        let completion = Arc::new(Completion::new());
        if self.is_inherited() {
            completion.complete(Err(self.inherited_error()));
            return completion;
        }
        self.change(|executor, _| executor.tell_of_failure(&completion, peers));
        self.background.attend();
        completion
    }
}
