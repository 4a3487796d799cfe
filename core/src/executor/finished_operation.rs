//! An operation that is over, on its way out of the progress lock. Knows only its completion.

use std::sync::Arc;

use crate::completion::{Completion, Notification};
use crate::generated::error::Result;

/// An operation that is over and whose completion is still to be told, without the progress lock.
#[derive(Debug)]
pub struct FinishedOperation {
    completion: Arc<Completion>,
    result: Result<()>,
}

impl FinishedOperation {
    pub(super) fn new(completion: Arc<Completion>, result: Result<()>) -> FinishedOperation {
        FinishedOperation { completion, result }
    }

    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// Tells the completion. Runs callbacks and wakers, so no lock may be held.
    pub fn settle(self) {
        self.completion.complete(self.result);
    }

    /// Ends the completion, and hands back what is still to be told.
    pub(super) fn mark_done(self) -> Option<Notification> {
        self.completion.mark_done(self.result)
    }
}
