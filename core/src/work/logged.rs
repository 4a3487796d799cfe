//! What is logged of an operation: the span in which a thread waits for it, and its failure. Knows
//! no backend.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::Span;

use super::{CommName, Inner};
use crate::generated::error::Error;
use crate::recorder::GroupFacts;

/// The part of the log.
const TARGET: &str = "polyrank::operation";

impl Inner {
    /// That of what is logged while a thread waits for it: none unless single operations are
    /// logged. Nothing of it is asked for before that is known.
    #[inline]
    pub(super) fn span(&self) -> Span {
        tracing::trace_span!(
            target: TARGET,
            "operation",
            group = self.logged_group().name.as_str(),
            rank = u64::from(self.logged_group().rank),
            operation = self.name,
            sequence = self.sequence,
            comm_name = self.logged_name().as_deref()
        )
    }

    /// Logs that it has failed, once.
    pub(super) fn tell_failure(&self, error: &Error) {
        if self.is_failure_told.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::debug!(
            target: TARGET,
            group = self.logged_group().name.as_str(),
            rank = u64::from(self.logged_group().rank),
            operation = self.name,
            sequence = self.sequence,
            comm_name = self.logged_name().as_deref(),
            "failed: {error}"
        );
    }

    #[cold]
    fn logged_group(&self) -> GroupFacts {
        self.recorder.as_ref().map(|recorder| recorder.group()).unwrap_or_default()
    }

    #[cold]
    fn logged_name(&self) -> Option<Arc<str>> {
        self.comm_name.as_ref().map(CommName::text)
    }
}
