//! What is left of a group of which ranks failed: revoking it, and going on without them. Knows
//! nothing of how members meet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{ReconfigureOptions, on_thread};
use crate::backend::memberless::Memberless;
use crate::backend::{Backend, IssuedOperation};
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::completion::Completion;
use crate::fnv::Fnv;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::rendezvous::{self, meeting_place};
use crate::store::{PrefixStore, Store};
use crate::work::{Work, WorkResult};

/// How long a rank waits for the others before it looks whether they are gone.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Where those meet that are left of a group.
pub(super) struct Refuge {
    /// A store, with keys for this call alone.
    pub(super) store: Arc<dyn Store>,
    /// Names this call: the same on all ranks.
    pub(super) number: u64,
}

impl ProcessGroup {
    /// Fails everything in flight and everything later, on all ranks, as MPI's `MPIX_Comm_revoke`:
    /// ranks that wait for one another learn that some of them gave up, and all can come to
    /// [`ProcessGroup::shrink_group`] or [`ProcessGroup::agree`], which work all the same.
    pub fn revoke(&self) {
        self.abort_because("it revoked the group");
    }

    /// How the group stands, without asking anybody: [`WorkResult::Success`] as long as it works.
    pub fn get_error(&self) -> WorkResult {
        let failure = self.inner.backends().into_iter().find_map(|backend| {
            let failure = backend.failure();
            failure.or_else(|| backend.is_broken().then(|| lost(self)))
        });
        failure.map_or(WorkResult::Success, |error| WorkResult::of(&error))
    }

    /// Goes on without some ranks: the others call this with the same list, and are the members
    /// from then on, in their order. It is [`ProcessGroup::reconfigure`], where the ranks exchange
    /// handles themselves: over the stores that members host if the group was reconfigured before,
    /// otherwise over the store in which it was made.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for ranks that are none, and for this one. The work ends as that
    /// of [`ProcessGroup::reconfigure`]; if it ends before members meet, the group has its former
    /// ones still.
    pub fn shrink_group(
        &self,
        ranks_to_exclude: &[u32],
        timeout: Option<Duration>,
    ) -> Result<Work> {
        let survivors = self.survivors(ranks_to_exclude)?;
        let completion = Arc::new(Completion::new());
        let issued = IssuedOperation { sequence: 0, completion: completion.clone() };
        // It only waits for the completion.
        let backend: Arc<dyn Backend> = Arc::new(Memberless::new("", self.group_name(), ""));
        let work = Work::new(self.label("shrink_group"), vec![(issued, backend)], Vec::new());
        let group = self.clone();
        on_thread(move || completion.complete(block_on(group.shrink(&survivors, timeout))))?;
        Ok(work)
    }

    /// As [`ProcessGroup::shrink_group`], until the members are there.
    ///
    /// # Errors
    /// As [`ProcessGroup::shrink_group`] and its work.
    pub async fn shrink_group_async(
        &self,
        ranks_to_exclude: &[u32],
        timeout: Option<Duration>,
    ) -> Result<()> {
        let survivors = self.survivors(ranks_to_exclude)?;
        self.shrink(&survivors, timeout).await
    }

    fn survivors(&self, excluded: &[u32]) -> Result<Vec<u32>> {
        self.require_members("shrink_group")?;
        let size = self.size();
        let wrong = excluded.iter().find(|&&rank| rank >= size || rank == self.rank());
        if let Some(rank) = wrong {
            let message = match *rank < size {
                true => format!(
                    "shrink_group: rank {rank}, which calls it, is to be excluded; only those call \
                     it that stay"
                ),
                false => format!("shrink_group: rank {rank} is not one of the {size} ranks"),
            };
            return Err(Error::InvalidArgument { message });
        }
        Ok((0..size).filter(|rank| !excluded.contains(rank)).collect())
    }

    async fn shrink(&self, survivors: &[u32], timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        let began = Instant::now();
        let handle = self.own_handle()?.to_string();
        let Refuge { store, number } = self.refuge("shrink", survivors[0], timeout).await?;
        let key = |rank: &u32| format!("{rank}");
        store.set_async(&key(&self.rank()), handle.as_bytes()).await?;
        loop {
            let late = !timeout.is_zero() && began.elapsed() >= timeout;
            let missing = self.await_keys(&*store, survivors, key).await?;
            let Some(first) = missing.first().copied() else { break };
            for &rank in &missing {
                if self.is_known_gone(rank).await {
                    return Err(self.gone("shrink_group", rank));
                }
            }
            if late {
                let ms = timeout.as_millis();
                let message = format!(
                    "shrink_group of group '{}': ranks {missing:?} did not come within {ms} ms",
                    self.group_name()
                );
                return Err(rendezvous::timed_out(first, missing, message));
            }
        }
        let keys: Vec<String> = survivors.iter().map(key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let handles = store.multi_get_async(&keys).await?;
        let handles = handles.into_iter().map(|it| String::from_utf8_lossy(&it).into_owned());
        let mut hash = Fnv::new();
        hash.bytes(number.to_le_bytes());
        survivors.iter().for_each(|rank| hash.bytes(rank.to_le_bytes()));
        // Numbers below zero are left for this.
        let uuid = -1 - (hash.value() >> 1) as i64;
        let options = ReconfigureOptions::new(uuid, handles).timeout(timeout);
        self.reconfigure_async(options).await
    }

    /// Waits a moment for the keys of `ranks`; the ranks of which there is none.
    pub(super) async fn await_keys(
        &self,
        store: &dyn Store,
        ranks: &[u32],
        key: impl Fn(&u32) -> String,
    ) -> Result<Vec<u32>> {
        let keys: Vec<String> = ranks.iter().map(&key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        match store.wait_async(&keys, Some(LOOK_AFTER)).await {
            Ok(()) => return Ok(Vec::new()),
            Err(Error::StoreTimeout { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut missing = Vec::new();
        for (rank, key) in ranks.iter().zip(keys) {
            if !store.check_async(&[key]).await? {
                missing.push(*rank);
            }
        }
        Ok(missing)
    }

    /// Where those meet that are left, for a call `what` of all of them, each as often as the
    /// others; `host` is the first of them, whose store serves if the members host stores.
    pub(super) async fn refuge(&self, what: &str, host: u32, timeout: Duration) -> Result<Refuge> {
        let count = self.inner.survivor_calls.fetch_add(1, Ordering::Relaxed);
        let members = &**self.inner;
        let Some(origins) = members.origins.clone() else {
            let store = members.store.underlying()?.clone_store_async().await?;
            let store = Arc::new(PrefixStore::new(format!("{what}/{count}"), store));
            return Ok(Refuge { store, number: count });
        };
        let place = &origins.places[host as usize];
        let hosted = self.inner.site.hosted().filter(|hosted| hosted.url == *place);
        let store = match hosted {
            _ if origins.has_deaf() => origins.store.underlying()?.clone_store_async().await?,
            Some(hosted) => hosted.store.clone_store_async().await?,
            None if meeting_place::is_gone(place).await => return Err(self.gone(what, host)),
            None => meeting_place::open(place, timeout).await?,
        };
        let prefix = format!("polyrank-survivors/{:016x}/{what}/{count}", origins.digest);
        let number = origins.digest.wrapping_add(count);
        Ok(Refuge { store: Arc::new(PrefixStore::new(prefix, store)), number })
    }

    /// Whether it is certain that a rank's process is gone.
    pub(super) async fn is_known_gone(&self, rank: u32) -> bool {
        let members = &**self.inner;
        if members.cpu.has_died(rank) || members.cpu.has_left(rank) {
            return true;
        }
        match &members.origins {
            Some(origins) => meeting_place::is_gone(&origins.places[rank as usize]).await,
            None => false,
        }
    }

    pub(super) fn gone(&self, what: &str, rank: u32) -> Error {
        Error::RankFailed {
            group: self.group_name().to_owned(),
            rank,
            why: "its process is gone, or has left the group".to_owned(),
            collective: what.to_owned(),
            sequence: 0,
        }
    }
}

/// What is wrong with a group whose backend does not say it.
fn lost(group: &ProcessGroup) -> Error {
    let message = format!("group '{}' is broken", group.group_name());
    Error::Network { message }
}
