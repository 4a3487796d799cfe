//! Which of the ranks that came to a group are still there, while others are waited for.
//! Knows no verdicts, and not how a store learns that a client is gone.
//!
//! Each rank that comes makes a member key (see [`crate::store::member`]), which goes with its
//! connection in a server of ours. In another store such keys stay, and all seem to be there. That
//! a rank is gone ends nobody's wait: the one that is started in its place may still come.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::join::{JoinObserver, Keys, PendingLook};
use crate::generated::error::Result;
use crate::sorted::SortedMap;
use crate::store::Store;
use crate::store::member::{TOKEN_BYTES, member_key};

/// Most ranks that one look asks for.
const MAX_LOOKED_AT: u32 = 8;
/// So many looks in a second are not much work for the server, whoever makes them.
const LOOKS_PER_SECOND: u32 = 64;

/// Key that is there as long as `rank`, which came to the group, is.
pub(super) fn key_of(keys: &Keys<'_>, rank: u32) -> String {
    member_key(&keys.of("here"), &format!("{rank:0TOKEN_BYTES$}"))
}

/// Which of these ranks came and are gone.
///
/// # Errors
/// Those of the store.
pub(super) async fn gone(
    store: &dyn Store,
    keys: &Keys<'_>,
    ranks: impl Iterator<Item = u32>,
) -> Result<Vec<u32>> {
    let mut gone = Vec::new();
    for rank in ranks {
        let came = store.check_async(&[&keys.of(rank)]).await?;
        if came && !store.check_async(&[&key_of(keys, rank)]).await? {
            gone.push(rank);
        }
    }
    Ok(gone)
}

/// Says in the log when a rank that came is gone, while this one waits for others.
pub(super) struct PresenceObserver<'a> {
    store: &'a dyn Store,
    group_name: &'a str,
    world_size: u32,
    record: Mutex<PresenceRecord>,
}

/// What was seen so far.
struct PresenceRecord {
    /// The rank that is looked at next.
    next: u32,
    /// Those that are gone, as has been said.
    gone: SortedMap<u32, ()>,
}

impl<'a> PresenceObserver<'a> {
    /// An observer of the other ranks.
    pub(super) fn new(
        store: &'a dyn Store,
        group_name: &'a str,
        (rank, world_size): (u32, u32),
    ) -> PresenceObserver<'a> {
        let record = Mutex::new(PresenceRecord { next: rank, gone: SortedMap::default() });
        PresenceObserver { store, group_name, world_size, record }
    }

    fn record(&self) -> MutexGuard<'_, PresenceRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_at_some(&self) -> Result<()> {
        let keys = Keys { group_name: self.group_name };
        let next = self.record().next;
        let after = |steps| (next + steps) % self.world_size;
        let some = (0..self.world_size.min(MAX_LOOKED_AT)).map(after);
        let gone = gone(self.store, &keys, some).await?;
        // Who knows the verdict is done here, and takes its key away.
        if !gone.is_empty() && self.store.check_async(&[&keys.of("verdict")]).await? {
            return Ok(());
        }
        let mut record = self.record();
        record.next = after(MAX_LOOKED_AT);
        for rank in gone {
            if record.gone.insert(rank, ()).is_none() {
                tracing::warn!(
                    "rank {rank} of {} came to group '{}' and is gone, before all ranks had come. \
                     The others wait for one in its place",
                    self.world_size,
                    self.group_name
                );
            }
        }
        Ok(())
    }
}

impl JoinObserver for PresenceObserver<'_> {
    fn look(&self) -> PendingLook<'_> {
        Box::pin(async move { self.look_at_some().await.map(|()| None) })
    }

    fn longest_pause(&self) -> Duration {
        Duration::from_secs(1).max(Duration::from_secs(1) * self.world_size / LOOKS_PER_SECOND)
    }
}
