//! What a process did not hear of groups that it left: whether the others ran the same. It hears of
//! that when it leaves the default group, and waits for others there alone. Knows no backend.

use std::sync::Arc;

use crate::backend::OpenComparison;
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::process_group::ProcessGroup;
use crate::rendezvous;
use crate::store::{PrefixStore, Store};

/// The groups that were left, and of which that is not known.
#[derive(Default)]
pub(super) struct OpenComparisons {
    open: Vec<OpenComparison>,
}

impl OpenComparisons {
    /// Adds what was not heard of `group`.
    pub(super) fn add(&mut self, group: &ProcessGroup) {
        self.open.extend(group.open_comparisons());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Waits for the others until `until` at most, as long as `default`, the default group, is not
    /// broken. `store` is that in which the default group met.
    ///
    /// # Errors
    /// That ranks disagree.
    pub(super) async fn settle(
        &mut self,
        store: &Arc<dyn Store>,
        default: &ProcessGroup,
        until: Instant,
    ) -> Result<()> {
        let since = Instant::now();
        let mut found = Ok(());
        loop {
            found = found.and(self.look(store, default).await);
            let now = Instant::now();
            let awaited = self.open.iter().find(|open| now < open.until(since, until));
            let Some(awaited) = awaited.filter(|_| !default.is_broken()) else { return found };
            if let Err(error) = awaited.await_verdict(&*store_of(awaited, store, default)).await {
                tracing::debug!(%error, "cannot wait for what other ranks ran");
                return found;
            }
        }
    }

    /// Looks what came of them by now, without waiting for anybody.
    ///
    /// # Errors
    /// As [`OpenComparisons::settle`].
    pub(super) async fn look(
        &mut self,
        store: &Arc<dyn Store>,
        default: &ProcessGroup,
    ) -> Result<()> {
        let mut found = Ok(());
        for open in std::mem::take(&mut self.open) {
            match open.outcome(&*store_of(&open, store, default)).await {
                Ok(Some(outcome)) => found = found.and(outcome),
                Ok(None) => self.open.push(open),
                // Without a store there is nothing to compare with.
                Err(error) => tracing::debug!(%error, "cannot hear what other ranks ran"),
            }
        }
        found
    }
}

/// The store of the group that was left: the default group, or one that was made out of it.
fn store_of(
    open: &OpenComparison,
    store: &Arc<dyn Store>,
    default: &ProcessGroup,
) -> Arc<dyn Store> {
    let name = default.group_name();
    let under = |name, store| Arc::new(PrefixStore::new(rendezvous::keys_of_group(name), store));
    let of_default = under(name, store.clone());
    if open.group() == name { of_default } else { under(open.group(), of_default) }
}
