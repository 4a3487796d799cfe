//! An operation that is over, taken out from under the progress lock. Knows only its completion.

use std::sync::Arc;

use crate::completion::{Completion, Notification};
use crate::generated::error::Result;

/// An operation that is over, but whose completion still has to be settled without the progress
/// lock.
#[derive(Debug)]
pub struct FinishedOperation {
    completion: Arc<Completion>,
    result: Result<()>,
    /// Where one thread settles them one by one, their order says it.
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "threads settle several"))]
    comes_first: bool,
}

impl FinishedOperation {
    pub(super) fn new(completion: Arc<Completion>, result: Result<()>) -> FinishedOperation {
        FinishedOperation { completion, result, comes_first: false }
    }

    /// What has to be settled before others that end at the same moment.
    pub(super) fn first(completion: Arc<Completion>) -> FinishedOperation {
        FinishedOperation { completion, result: Ok(()), comes_first: true }
    }

    /// Whether it has to be settled before others.
    #[cfg(feature = "tcp")]
    pub(super) fn comes_first(&self) -> bool {
        self.comes_first
    }

    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// Settles the completion. Runs callbacks and wakers, so the caller must not hold a lock.
    pub fn settle(self) {
        self.completion.complete(self.result);
    }

    /// Marks the completion as done, and returns the notification that is still to be delivered.
    pub(super) fn mark_done(self) -> Option<Notification> {
        self.completion.mark_done(self.result)
    }
}
