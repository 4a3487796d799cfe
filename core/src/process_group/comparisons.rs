//! Groups that this process left without knowing whether the others ran the same. Split-off groups
//! are left without waiting for other ranks: their comparison ends when the root group is left, the
//! one from which all of them were split. Knows no backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::create::own_connection;
use super::{Inner, ProcessGroup};
use crate::backend::{self, OpenComparison};
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::store::{PrefixStore, Store};

/// The open comparisons of a root group and of all groups split from it.
#[derive(Debug, Default)]
pub(crate) struct OpenComparisons {
    left: Mutex<Vec<LeftGroup>>,
    /// Whether the root group was left.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct LeftGroup {
    open: OpenComparison,
    /// Prefix of its keys in the root group's store; empty for the root group.
    store_prefix: String,
}

impl OpenComparisons {
    /// Adds the open comparisons of `group`, which was left.
    pub(super) fn add(&self, group: &ProcessGroup) {
        let store_prefix = &group.inner.store_prefix;
        if store_prefix.is_empty() {
            self.end();
        }
        let left = group.inner.backends().filter_map(|backend| backend.open_comparison());
        let left = left.map(|open| LeftGroup { open, store_prefix: store_prefix.clone() });
        self.lock().extend(left);
    }

    /// Notes that the root group is left, or that nobody holds it any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether the root group was left, so that no later shutdown does the comparing.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Waits for the others until `until` at most, as long as the root group is not broken. `store`
    /// is the root group's.
    ///
    /// # Errors
    /// That ranks disagree.
    async fn settle(
        &self,
        store: &Arc<dyn Store>,
        root: &ProcessGroup,
        until: Instant,
    ) -> Result<()> {
        let since = Instant::now();
        let mut found = Ok(());
        loop {
            found = found.and(self.look(store).await);
            let Some((open, prefix)) = self.awaited(since, until).filter(|_| !root.is_broken())
            else {
                return found;
            };
            if let Err(error) = open.await_verdict(&*store_of(&prefix, store)).await {
                tracing::debug!(%error, "cannot wait for what other ranks ran");
                return found;
            }
        }
    }

    /// Reads the verdicts that exist by now, without waiting for anybody. `store` is the root
    /// group's.
    ///
    /// # Errors
    /// As [`OpenComparisons::settle`].
    pub(crate) async fn look(&self, store: &Arc<dyn Store>) -> Result<()> {
        let mut found = Ok(());
        let left = std::mem::take(&mut *self.lock());
        for group in left {
            match group.open.outcome(&*store_of(&group.store_prefix, store)).await {
                Ok(Some(outcome)) => found = found.and(outcome),
                Ok(None) => self.lock().push(group),
                // Without a store there is nothing to compare with.
                Err(error) => tracing::debug!(%error, "cannot learn what other ranks ran"),
            }
        }
        found
    }

    /// A comparison that is still worth waiting for, with its store prefix.
    fn awaited(&self, since: Instant, until: Instant) -> Option<(OpenComparison, String)> {
        let (now, left) = (Instant::now(), self.lock());
        let awaited = left.iter().find(|group| now < group.open.wait_deadline(since, until))?;
        Some((awaited.open.clone(), awaited.store_prefix.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeftGroup>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessGroup {
    /// Deadline for the comparison at shutdown; `None` if a group left later does the comparing.
    pub(super) fn comparison_deadline(&self) -> Option<Instant> {
        let Inner { store_prefix, open_comparisons, .. } = &**self.inner;
        let is_last = store_prefix.is_empty() || open_comparisons.is_over();
        is_last.then(backend::deadline)
    }

    /// The open comparisons of all groups split from the same root group.
    pub(crate) fn open_comparisons(&self) -> &OpenComparisons {
        &self.inner.open_comparisons
    }

    /// Closes what it can of the open comparisons of groups that were split off this one and left
    /// before it, until `until` at most.
    ///
    /// # Errors
    /// That ranks disagree.
    pub(super) async fn settle_comparisons(&self, until: Instant) -> Result<()> {
        let Inner { open_comparisons, store_prefix, store, .. } = &**self.inner;
        if !store_prefix.is_empty() || open_comparisons.lock().is_empty() || self.is_broken() {
            return Ok(());
        }
        // Another thread may block the connection of the group.
        let opened = match store.underlying() {
            Ok(store) => own_connection(&store, self.size()).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(store) => open_comparisons.settle(&store, self, until).await,
            Err(error) => {
                tracing::debug!(%error, "cannot learn what other ranks ran");
                Ok(())
            }
        }
    }
}

/// The store of the group with this prefix in `root`, the store of the root group.
fn store_of(prefix: &str, root: &Arc<dyn Store>) -> Arc<dyn Store> {
    if prefix.is_empty() { root.clone() } else { Arc::new(PrefixStore::new(prefix, root.clone())) }
}
