//! Which members of a group live, where its connections cannot say it any more: a group that broke
//! has closed them. Each member makes a member key (see `store/member.rs`) when the group is made,
//! which goes with its process in a server of ours; in other stores such keys stay, and nobody is
//! known to be gone. Knows no backend, and not what the members do.

use std::sync::Arc;
use std::time::Duration;

use super::{Inner, ProcessGroup};
use crate::generated::error::Result;
use crate::rendezvous;
use crate::store::{GroupStore, Store, member};

/// Where the rank is noted whose process hosts the server of the store.
const HOST: &str = "host";
/// What is there if none does.
const NONE: &[u8] = b"-";
/// How long a store may be busy that is told of a departure.
const BUSY_LIMIT: Duration = Duration::from_millis(100);

/// What the members of a group that was not made out of another know of one another.
pub(super) struct Liveness {
    /// For the keys of this alone. It is closed with the group.
    store: Arc<GroupStore>,
    /// The rank whose process hosts the store, if one does.
    pub(super) host: Option<u32>,
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
            store.set_async(HOST, rank.to_string().as_bytes()).await?;
        }
        Self::announce(store, rank).await
    }

    /// The rank that hosts the store, where all ranks have said whether they do.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn find_host(store: &dyn Store) -> Result<Option<u32>> {
        let host = store.compare_set_async(HOST, b"", NONE).await?;
        Ok(String::from_utf8(host).ok().and_then(|text| text.parse().ok()))
    }

    /// That of the group with this name, whose ranks have all announced themselves in `store`,
    /// which `host` hosts, if one of them does.
    pub(super) fn new(group: &str, store: Arc<dyn Store>, host: Option<u32>) -> Arc<Liveness> {
        Arc::new(Liveness { store: Arc::new(GroupStore::new(group, store)), host })
    }

    /// Notes that `rank` leaves the group, and may live all the same.
    pub(super) async fn leave(&self, rank: u32) -> Result<()> {
        rendezvous::find_store_free(&*self.store, BUSY_LIMIT).await?;
        let store: &dyn Store = &*self.store;
        store.set_async(&left(rank), b"1").await?;
        store.delete_key_async(&key_of(rank)).await.map(drop)
    }

    /// Nothing is known any more.
    pub(super) fn close(&self) {
        self.store.close();
    }

    /// A look at the members that takes `limit` at most, if this one is still in the group.
    pub(super) async fn look(&self, limit: Duration) -> Option<Look> {
        let store = self.store.underlying().ok()?;
        store.reopen_async(limit).await.ok().map(|store| Look { store })
    }
}

impl ProcessGroup {
    /// Notes for the others that this rank leaves the group, and has not died. A store of members
    /// goes with its last one.
    pub(super) async fn note_departure(&self) -> Result<()> {
        let Inner { liveness, store_prefix, origins, rank, .. } = &**self.inner;
        let own = liveness.as_ref().filter(|_| store_prefix.is_empty() && origins.is_none());
        match own {
            Some(liveness) => liveness.leave(*rank).await,
            None => Ok(()),
        }
    }
}

/// A connection over which members are looked for.
pub(super) struct Look {
    store: Arc<dyn Store>,
}

impl Look {
    /// Whether it is certain that the process of `rank` is gone.
    pub(super) async fn is_gone(&self, rank: u32) -> bool {
        let (key, left) = (key_of(rank), left(rank));
        let has = async |key: &str| self.store.check_async(&[key]).await.unwrap_or(true);
        !has(&key).await && !has(&left).await
    }
}

/// The key that is there as long as `rank` is. It stands alone, so that its scope is all of the
/// store: with the last member, everything goes that they left there.
fn key_of(rank: u32) -> String {
    let width = member::TOKEN_BYTES;
    let key = member::member_key("", &format!("{rank:0width$}"));
    key.trim_start_matches('/').to_owned()
}

fn left(rank: u32) -> String {
    format!("left/{rank}")
}
