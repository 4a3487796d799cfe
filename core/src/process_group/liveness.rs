//! Which members of a group live, where its connections cannot say it any more: a group that broke
//! has closed them. Each member makes a member key (see `store/member.rs`) when the group is made,
//! which goes with its process in a server of ours; in other stores such keys stay, and nobody is
//! known to be gone. A mark that no other group has stands beside them: a port on which the store
//! of a group was served may be another's by the time that somebody comes back to it. Knows no
//! backend, and not what the members do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Inner, ProcessGroup};
use crate::generated::error::{Error, Result};
use crate::random;
use crate::rendezvous;
use crate::store::{GroupStore, Store, member};

/// Where the mark of the group is: the rank whose process hosts the server of the store, or
/// [`NO_RANK`], and a number that no other group has.
const MARK: &str = "host";
/// What is there in place of the rank if none does.
const NO_RANK: &str = "-";
/// How long a store may be busy that is told of a departure.
const BUSY_LIMIT: Duration = Duration::from_millis(100);
/// How long one may take to answer that is told of a departure from a group that broke: its host
/// may be what is wrong.
const BROKEN_LIMIT: Duration = Duration::from_millis(500);

/// What the members of a group that was not made out of another know of one another.
pub(super) struct Liveness {
    /// For the keys of this alone. It is closed with the group.
    store: Arc<GroupStore>,
    /// The rank whose process hosts the store, if one does.
    pub(super) host: Option<u32>,
    /// What is at [`MARK`] as long as it is the store of this group.
    mark: Vec<u8>,
    /// How many groups of this process have it that were not left: one, and those out of it.
    groups: AtomicU32,
}

impl Liveness {
    /// Notes in `store`, before anybody relies on it, that `rank` is there as long as its process
    /// has the store.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn announce(store: &dyn Store, rank: u32) -> Result<()> {
        store.add_async(&key_of(rank), 1).await.map(drop)
    }

    /// As [`Liveness::announce`]; also whether this process hosts the store.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn announce_host(store: &dyn Store, rank: u32) -> Result<()> {
        if store.hosts_server() {
            store.set_async(MARK, &mark_of(Some(rank))?).await?;
        }
        Self::announce(store, rank).await
    }

    /// That of the group with this name, whose ranks have all announced themselves in `store`. If
    /// none of them has said that it hosts that, `host` does.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn new(
        group: &str,
        store: Arc<dyn Store>,
        host: Option<u32>,
    ) -> Result<Arc<Liveness>> {
        let mark = store.compare_set_async(MARK, b"", &mark_of(host)?).await?;
        let text = String::from_utf8_lossy(&mark);
        let host = text.split(' ').next().and_then(|rank| rank.parse().ok());
        let (store, groups) = (Arc::new(GroupStore::new(group, store)), AtomicU32::new(1));
        Ok(Arc::new(Liveness { store, host, mark, groups }))
    }

    /// For another group, made out of one that has this; both have to close it.
    pub(super) fn share(self: &Arc<Self>) -> Arc<Liveness> {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    /// Notes that `rank` leaves the group, which has the prefix `prefix` if it was made out of
    /// another, and may live all the same.
    async fn leave(&self, store: &dyn Store, prefix: &str, rank: u32) -> Result<()> {
        store.set_async(&left(prefix, rank), b"1").await?;
        if prefix.is_empty() {
            store.delete_key_async(&key_of(rank)).await?;
        }
        Ok(())
    }

    /// One of the groups that have this was left. With the last, nothing is known any more.
    pub(super) fn close(&self) {
        if self.groups.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.store.close();
        }
    }

    /// A look at the members that takes `limit` at most (zero is none).
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if this one has left the group, [`Error::Network`] if the store is
    /// gone, [`Error::StoreTimeout`] if it does not answer.
    pub(super) async fn look(&self, limit: Duration) -> Result<Look> {
        let store = self.store.underlying()?.reopen_async(limit).await?;
        let is_marked = store.check_async(&[MARK]).await?;
        if is_marked && store.get_async(MARK).await? == self.mark {
            return Ok(Look { store });
        }
        let message = "it has nothing of this group; another process listens in its place";
        Err(Error::Network { message: message.to_owned() })
    }
}

impl ProcessGroup {
    /// Notes for the others that this rank leaves the group, and has not died. A store of members
    /// goes with its last one; who leaves a group that was made out of another, and works, tells
    /// the others itself.
    pub(super) async fn note_departure(&self) -> Result<()> {
        let Inner { liveness, store_prefix, origins, rank, members, .. } = &**self.inner;
        let (broken, prefix, rank) = (self.is_broken(), store_prefix, members.get(*rank as usize));
        let is_told = match prefix.is_empty() {
            true => origins.is_some(),
            false => !broken,
        };
        let (Some(liveness), Some(&rank), false) = (liveness, rank, is_told) else { return Ok(()) };
        if broken {
            let look = liveness.look(BROKEN_LIMIT).await?;
            return liveness.leave(&*look.store, prefix, rank).await;
        }
        rendezvous::find_store_free(&*liveness.store, BUSY_LIMIT).await?;
        liveness.leave(&*liveness.store, prefix, rank).await
    }
}

/// A connection over which members are looked for.
pub(super) struct Look {
    /// For keys beside those of the members, which go with the last of them.
    pub(super) store: Arc<dyn Store>,
}

impl Look {
    /// Whether it is certain that the process of `rank` is gone, or has left the group, which has
    /// the prefix `prefix` if it was made out of another.
    pub(super) async fn is_gone(&self, prefix: &str, rank: u32) -> bool {
        let has = async |key: &str| self.store.check_async(&[key]).await.ok();
        let has_left = async |prefix: &str| has(&left(prefix, rank)).await == Some(true);
        let has_no_key = has(&key_of(rank)).await == Some(false);
        match prefix.is_empty() {
            true => has_no_key,
            false => has_left(prefix).await || (has_no_key && !has_left("").await),
        }
    }
}

/// What only the group has that gets it now.
fn mark_of(host: Option<u32>) -> Result<Vec<u8>> {
    let host = host.map_or_else(|| NO_RANK.to_owned(), |rank| rank.to_string());
    let number = u64::from_le_bytes(random::bytes::<8>()?);
    Ok(format!("{host} {number:016x}").into_bytes())
}

/// The key that is there as long as `rank` is. It stands alone, so that its scope is all of the
/// store: with the last member, everything goes that they left there.
fn key_of(rank: u32) -> String {
    let width = member::TOKEN_BYTES;
    let key = member::member_key("", &format!("{rank:0width$}"));
    key.trim_start_matches('/').to_owned()
}

/// Where it stands that `rank` has left the group with this prefix.
fn left(prefix: &str, rank: u32) -> String {
    format!("left/{prefix}/{rank}")
}
