//! Waiting for other ranks through the store, and learning meanwhile that the group failed: that a
//! rank is gone is known to the group's connections long before a wait in the store times out.
//! Knows no backend.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::ProcessGroup;
use crate::backend::Backend;
use crate::blocking::{WaitMode, sleep};
use crate::clock;
use crate::completion::Completion;
use crate::generated::error::{Error, Result};
use crate::store::{InterruptCondition, interrupt_when};

/// How long after the store was lost the group may take to find out which rank is gone.
const EXPLANATION_LIMIT: Duration = Duration::from_secs(1);

/// While it lives, the group looks out for ranks that are gone, and a failure of the group ends
/// what this thread waits for in a store.
pub(super) struct FailureWatch {
    backend: Arc<dyn Backend>,
    /// None where the group failed before and those that are waited for may continue, or where the
    /// backend cannot tell.
    failure: Option<Arc<Completion>>,
    _interrupt: Option<InterruptCondition>,
}

impl ProcessGroup {
    /// Begins to look out for `peers` among others, which a backend may have no connection to yet.
    /// A failure that was there before counts if it keeps one of `needed` from coming.
    pub(super) fn watch_for_failure(&self, peers: &[u32], needed: &[u32]) -> FailureWatch {
        let backend = self.cpu();
        let was_broken = backend.is_broken();
        let failure = backend.await_failure(peers);
        let failure = failure.filter(|failure| !was_broken || self.keeps_away(failure, needed));
        let interrupts = failure.clone().filter(|_| WaitMode::current() == WaitMode::Block);
        let interrupt = interrupts.map(|failure| interrupt_when(move || failure.is_done()));
        FailureWatch { backend, failure, _interrupt: interrupt }
    }

    /// Whether the group is over on all ranks, or another of `needed` is gone.
    fn keeps_away(&self, failure: &Completion, needed: &[u32]) -> bool {
        match failure.error() {
            Some(Error::Aborted { .. }) => true,
            Some(Error::RankFailed { rank, .. }) => rank != self.rank() && needed.contains(&rank),
            _ => false,
        }
    }
}

impl FailureWatch {
    /// Why the group failed, if it has.
    pub(super) fn error(&self) -> Option<Error> {
        self.failure.as_ref()?.error()
    }

    /// The result of `waits`, or why the group failed, whichever is there first. Where `waits`
    /// loses the store, the rank is named that is gone.
    pub(super) async fn or_failure<T>(&self, waits: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(failure) = &self.failure else { return waits.await };
        let waited = {
            let (mut waits, mut failed) = (pin!(waits), pin!(failure.ended()));
            poll_fn(|context| match waits.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => failed.as_mut().poll(context).map(|()| None),
            })
            .await
        };
        match waited {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => {
                if matches!(error, Error::Network { .. }) {
                    self.await_explanation(failure).await;
                }
                Err(self.error().unwrap_or(error))
            }
            None => Err(self.error().unwrap_or_else(|| Error::InvalidGroup {
                message: "the group failed for an unknown reason".to_owned(),
            })),
        }
    }

    async fn await_explanation(&self, failure: &Arc<Completion>) {
        if WaitMode::current() == WaitMode::Block {
            self.backend.wait(failure, Some(clock::after(EXPLANATION_LIMIT)));
            return;
        }
        let (mut failed, mut late) = (pin!(failure.ended()), pin!(sleep(EXPLANATION_LIMIT)));
        poll_fn(|context| match failed.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => late.as_mut().poll(context).map(drop),
        })
        .await;
    }
}
