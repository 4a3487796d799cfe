//! How messages are numbered and issued. Knows nothing of collectives.

use std::sync::Arc;

use super::{IssuedOperation, ScheduledBackend, Transfer};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::executor::Message;
use crate::generated::error::Result;

impl ScheduledBackend {
    /// Starts a message.
    pub(super) fn message<S>(
        &self,
        transfer: Transfer,
        deadline: Instant,
        start: impl FnOnce(Message) -> S,
    ) -> Result<IssuedOperation> {
        let Transfer { peer, tag, dtype, memory, finish } = transfer;
        Ok(self.numbered(|completion| {
            start(Message { peer, tag, dtype, memory, deadline, finish, completion })
        }))
    }

    /// Starts what is numbered among the messages.
    pub(super) fn numbered<S>(&self, start: impl FnOnce(Arc<Completion>) -> S) -> IssuedOperation {
        let completion = Arc::new(Completion::new());
        let mut issuing = self.issuing();
        issuing.messages += 1;
        let sequence = issuing.messages;
        let deferred = start(completion.clone());
        // Callbacks may issue operations.
        drop(issuing);
        drop(deferred);
        IssuedOperation { sequence, completion }
    }
}
