//! What a process did not hear of groups that it left: whether the others ran the same. Groups that
//! were split off another are left without waiting for other ranks: their process hears of them
//! when it leaves the group that they come from. Knows no backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::create::own_connection;
use super::{Inner, ProcessGroup};
use crate::backend::OpenComparison;
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::store::{PrefixStore, Store};

/// The groups of one family that were left, and of which that is not known: a group, and all that
/// were split off it.
#[derive(Debug, Default)]
pub(crate) struct OpenComparisons {
    left: Mutex<Vec<LeftGroup>>,
    /// Whether the group was left from which all others come.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct LeftGroup {
    open: OpenComparison,
    /// What begins its keys in the store of the group from which all come; nothing for that one.
    keys: String,
}

impl OpenComparisons {
    /// Adds what was not heard of `group`, which was left.
    pub(super) fn add(&self, group: &ProcessGroup) {
        let keys = &group.inner.keys;
        if keys.is_empty() {
            self.end();
        }
        let left = group.backends().filter_map(|backend| backend.open_comparison());
        let left = left.map(|open| LeftGroup { open, keys: keys.clone() });
        self.lock().extend(left);
    }

    /// The group from which all others come is left, or nobody has it any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether the group was left from which all others come, so that none is left later.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Waits for the others until `until` at most, as long as `first` is not broken, the group from
    /// which all come. `store` is that one's.
    ///
    /// # Errors
    /// That ranks disagree.
    async fn settle(
        &self,
        store: &Arc<dyn Store>,
        first: &ProcessGroup,
        until: Instant,
    ) -> Result<()> {
        let since = Instant::now();
        let mut found = Ok(());
        loop {
            found = found.and(self.look(store).await);
            let Some((open, keys)) = self.awaited(since, until).filter(|_| !first.is_broken())
            else {
                return found;
            };
            if let Err(error) = open.await_verdict(&*store_of(&keys, store)).await {
                tracing::debug!(%error, "cannot wait for what other ranks ran");
                return found;
            }
        }
    }

    /// Looks what came of them by now, without waiting for anybody. `store` is that of the group
    /// from which all come.
    ///
    /// # Errors
    /// As [`OpenComparisons::settle`].
    pub(crate) async fn look(&self, store: &Arc<dyn Store>) -> Result<()> {
        let mut found = Ok(());
        let left = std::mem::take(&mut *self.lock());
        for group in left {
            match group.open.outcome(&*store_of(&group.keys, store)).await {
                Ok(Some(outcome)) => found = found.and(outcome),
                Ok(None) => self.lock().push(group),
                // Without a store there is nothing to compare with.
                Err(error) => tracing::debug!(%error, "cannot hear what other ranks ran"),
            }
        }
        found
    }

    /// A group of which it is worth hearing yet.
    fn awaited(&self, since: Instant, until: Instant) -> Option<(OpenComparison, String)> {
        let (now, left) = (Instant::now(), self.lock());
        let awaited = left.iter().find(|group| now < group.open.until(since, until))?;
        Some((awaited.open.clone(), awaited.keys.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeftGroup>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessGroup {
    /// The groups of this one's family that were left.
    pub(crate) fn family(&self) -> &OpenComparisons {
        &self.inner.family
    }

    /// Hears what it can of the groups that were split off this one and left before it, until
    /// `until` at most.
    ///
    /// # Errors
    /// That ranks disagree.
    pub(super) async fn settle_family(&self, until: Instant) -> Result<()> {
        let Inner { family, keys, store, .. } = &*self.inner;
        if !keys.is_empty() || family.lock().is_empty() || self.is_broken() {
            return Ok(());
        }
        // Another thread may wait in that of the group.
        let opened = match store.underlying() {
            Ok(store) => own_connection(&store, self.size()).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(store) => family.settle(&store, self, until).await,
            Err(error) => {
                tracing::debug!(%error, "cannot hear what other ranks ran");
                Ok(())
            }
        }
    }
}

/// The store of a group with such keys.
fn store_of(keys: &str, first: &Arc<dyn Store>) -> Arc<dyn Store> {
    if keys.is_empty() { first.clone() } else { Arc::new(PrefixStore::new(keys, first.clone())) }
}
