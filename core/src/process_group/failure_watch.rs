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

/// While it lives, the group looks out for ranks that are gone. A failure of the group ends what
/// this thread waits for in a store by [`FailureWatch::or_failure`], and no other request: what has
/// to be said in the store after a failure still is.
pub(super) struct FailureWatch {
    backend: Arc<dyn Backend>,
    /// None where the group failed before and those that are waited for may continue, or where the
    /// backend cannot tell.
    failure: Option<WatchedFailure>,
    interrupt: Option<InterruptCondition>,
}

/// The failure of a group, and whom it may keep from coming.
#[derive(Clone)]
struct WatchedFailure {
    completion: Arc<Completion>,
    reason: WaitReason,
}

/// Who waits, and for whom.
#[derive(Clone)]
struct WaitReason {
    /// This rank.
    rank: u32,
    /// Those without whom the call cannot end; `None`: all ranks of the group.
    needed: Option<Arc<[u32]>>,
}

impl ProcessGroup {
    /// Begins to watch for a failure, for a call of all ranks. `peers` are those to which a backend
    /// has to have connections for it. A failure that was there before does not count: the call
    /// finds out itself who comes all the same.
    pub(super) fn watch_for_failure(&self, peers: &[u32]) -> FailureWatch {
        let was_broken = self.cpu().is_broken();
        self.failure_watch(peers, None, |_| !was_broken)
    }

    /// As [`ProcessGroup::watch_for_failure`], for a call of `needed` alone: it goes on without
    /// other ranks, whenever they are lost, and a failure that was there before counts if it keeps
    /// one of `needed` from coming.
    pub(super) fn watch_for_loss_of(&self, needed: &[u32], peers: &[u32]) -> FailureWatch {
        let was_broken = self.cpu().is_broken();
        self.failure_watch(peers, Some(needed.into()), |failure| {
            !was_broken || failure.keeps_away_for_good()
        })
    }

    fn failure_watch(
        &self,
        peers: &[u32],
        needed: Option<Arc<[u32]>>,
        counts: impl FnOnce(&WatchedFailure) -> bool,
    ) -> FailureWatch {
        let backend = self.cpu();
        let failure = backend.await_failure(peers).map(|completion| WatchedFailure {
            completion,
            reason: WaitReason { rank: self.rank(), needed },
        });
        let failure = failure.filter(counts);
        let interrupts = failure.clone().filter(|_| WaitMode::current() == WaitMode::Block);
        let interrupt = interrupts.map(|failure| {
            let WatchedFailure { completion, reason } = failure.clone();
            let condition = interrupt_when(move || failure.ends_the_wait());
            condition.set_heeded(false);
            let end_wait = condition.caller();
            completion.on_end(move |result| {
                if result.as_ref().is_err_and(|error| reason.concerns(error)) {
                    end_wait();
                }
            });
            condition
        });
        FailureWatch { backend, failure, interrupt }
    }
}

impl WatchedFailure {
    /// Whether the group failed before the call and one that is needed cannot come for that.
    fn keeps_away_for_good(&self) -> bool {
        let error = self.completion.error();
        let is_final = matches!(
            error,
            Some(Error::Aborted { .. } | Error::RankFailed { .. } | Error::Reconfigured { .. })
        );
        is_final && self.ends_the_wait()
    }

    /// Whether the group failed, and not by the loss of a rank that need not come.
    fn ends_the_wait(&self) -> bool {
        self.completion.error().is_some_and(|error| self.reason.concerns(&error))
    }
}

impl WaitReason {
    /// Whether nobody waits any longer after this failure: it is not the loss of a rank that need
    /// not come.
    fn concerns(&self, error: &Error) -> bool {
        match (error, &self.needed) {
            (Error::RankFailed { rank, .. }, Some(needed)) => {
                *rank != self.rank && needed.contains(rank)
            }
            _ => true,
        }
    }
}

impl FailureWatch {
    /// Why the group failed, if it has.
    pub(super) fn error(&self) -> Option<Error> {
        self.failure.as_ref()?.completion.error()
    }

    /// The result of `waits`, or why the group failed, whichever is there first. Where `waits`
    /// loses the store, the rank is named that is gone.
    pub(super) async fn or_failure<T>(&self, waits: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(failure) = &self.failure else { return waits.await };
        let completion = &failure.completion;
        self.interrupt.iter().for_each(|interrupt| interrupt.set_heeded(true));
        let waited = {
            let (mut waits, mut failed) = (pin!(waits), pin!(completion.ended()));
            let mut has_failed = false;
            poll_fn(|context| {
                if let Poll::Ready(result) = waits.as_mut().poll(context) {
                    return Poll::Ready(Some(result));
                }
                has_failed = has_failed || failed.as_mut().poll(context).is_ready();
                if has_failed && failure.ends_the_wait() {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                }
            })
            .await
        };
        self.interrupt.iter().for_each(|interrupt| interrupt.set_heeded(false));
        match waited {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => {
                if matches!(error, Error::Network { .. }) {
                    self.await_explanation(completion).await;
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
