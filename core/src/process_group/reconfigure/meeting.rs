//! The meeting of the new members: in the leader's store, from which they get one another's
//! addresses as the ranks of any group do. Knows no transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::handle::Handle;
use super::observer::{MemberObserver, gone_text};
use crate::backend::memberless::Memberless;
use crate::backend::registration::Bootstrap;
use crate::backend::registry::BackendName;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::create::own_connection;
use crate::process_group::{Inner, ProcessGroup};
use crate::rendezvous::{self, keys_of_group, meeting_place};
use crate::store::{GroupStore, PrefixStore, Store};

/// The name under which members meet, whatever each calls the group.
const MEETING: &str = "members";
/// Where the leader tells the others what the group is called.
const NAME: &str = "name";
/// What all keys of meetings begin with.
const PREFIX: &str = "polyrank-members";

/// Who meets, and for how long.
pub(super) struct Meeting {
    pub(super) uuid: i64,
    /// Of the number and the handles.
    pub(super) digest: u64,
    /// The members, by their new ranks.
    pub(super) handles: Vec<Handle>,
    pub(super) rank: u32,
    pub(super) timeout: Duration,
}

/// Where the members of a group come from, if it was reconfigured.
#[derive(Clone)]
pub(in crate::process_group) struct Origins {
    /// Where each of them can be met, by rank.
    pub(super) places: Arc<[String]>,
    /// Whether this process hosts the store of the group.
    pub(super) is_host: bool,
    /// The store in which they met, under the prefix of the meeting.
    pub(super) store: Arc<GroupStore>,
    /// Of the meeting.
    pub(super) digest: u64,
}

impl Origins {
    /// Whether some of them listen nowhere, so that all meet elsewhere.
    pub(super) fn has_deaf(&self) -> bool {
        self.places.iter().any(|place| !place.starts_with("tcp://"))
    }
}

/// How long the host of a group's store stays for the others when it leaves, at most, and if the
/// group broke.
const LEAVE_LIMITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3)];

impl ProcessGroup {
    /// Whether the members are not those with whom the group was made.
    pub(crate) fn was_reconfigured(&self) -> bool {
        self.inner.epoch > 0
    }

    /// Tells the host of the store, after the group was left, that this rank needs it no more; the
    /// host waits for all. Of a group that was not reconfigured, others see to that.
    pub(in crate::process_group) async fn leave_meeting(&self, broken: bool) -> Result<()> {
        let Inner { origins, rank, members, .. } = &**self.inner;
        let Some(Origins { store, is_host, .. }) = origins else { return Ok(()) };
        let ranks = (*rank, members.len() as u32);
        let limit = LEAVE_LIMITS[usize::from(broken)];
        let left = match broken && !is_host {
            true => rendezvous::leave_at_once(&**store, MEETING, *rank).await,
            false => rendezvous::leave_async(&**store, MEETING, ranks, *is_host, limit).await,
        };
        store.close();
        left
    }
}

impl Meeting {
    /// Meets the others and connects the backend: the members of `group` from then on.
    pub(super) async fn join(
        &self,
        group: &ProcessGroup,
        memberless: &Memberless,
    ) -> Result<Inner> {
        let began = Instant::now();
        let found = self.open(group).await?;
        self.claim(&*found).await?;
        let scoped = self.scoped(&found, self.digest);
        let size = self.size();
        let own = own_connection(&scoped, size).await?;
        if self.rank == 0 {
            scoped.set_async(NAME, group.group_name().as_bytes()).await?;
        }
        let observer = MemberObserver::new(&*scoped, &self.handles, self.rank, memberless);
        let own: Arc<dyn Store> = Arc::new(PrefixStore::new(keys_of_group(MEETING), own));
        let backend = group.inner.spec.backend_for("cpu").unwrap_or_else(BackendName::tcp);
        let connected = (backend.registration().connect)(Bootstrap {
            backend: backend.as_str(),
            store: &own,
            rank: self.rank,
            size,
            group: group.group_name(),
            meeting: MEETING,
            generation: self.digest as u32 | 1,
            timeout: self.left(began),
            observer: Some(&observer),
            device: group.inner.bound_device,
            options: group.inner.options.backend_options.as_ref(),
            share: None,
            host: None,
        });
        let cpu = match connected.await {
            Ok(cpu) => cpu,
            Err(error) => return Err(self.explained(group, &observer, error).await),
        };
        let shared_name = match self.rank {
            0 => group.group_name().to_owned(),
            _ => String::from_utf8_lossy(&scoped.get_async(NAME).await?).into_owned(),
        };
        let origins = Origins {
            places: self.handles.iter().map(|handle| handle.place.clone()).collect(),
            is_host: self.rank == 0 && self.place() == self.handles[0].place,
            store: Arc::new(GroupStore::new(group.group_name(), scoped.clone())),
            digest: self.digest,
        };
        let store: Arc<dyn Store> = Arc::new(PrefixStore::new(keys_of_group(MEETING), scoped));
        let former = &**group.inner;
        Ok(Inner {
            rank: self.rank,
            members: (0..size).collect(),
            store: Arc::new(GroupStore::new(&former.name, store)),
            cpu,
            shared_name,
            origins: Some(origins),
            // What was set while they met counts.
            timeout_ns: AtomicU64::new(former.timeout_ns.load(Ordering::Relaxed)),
            ..former.successor()
        })
    }

    fn size(&self) -> u32 {
        self.handles.len() as u32
    }

    /// Where all meet: at the leader's, or where those can go that listen nowhere.
    fn place(&self) -> &str {
        let deaf = self.handles.iter().filter(|handle| handle.is_deaf());
        let deaf = deaf.map(|handle| handle.place.as_str()).min();
        deaf.unwrap_or(&self.handles[0].place)
    }

    /// The store in which they meet.
    async fn open(&self, group: &ProcessGroup) -> Result<Arc<dyn Store>> {
        let place = self.place();
        let hosted = group.inner.site.hosted().filter(|hosted| hosted.url == place);
        if let Some(hosted) = hosted {
            return hosted.store.clone_store_async().await;
        }
        if meeting_place::is_gone(place).await {
            return Err(self.is_gone(group, 0));
        }
        match meeting_place::open(place, self.timeout).await {
            Err(_) if meeting_place::is_gone(place).await => Err(self.is_gone(group, 0)),
            opened => opened,
        }
    }

    /// Notes which members the leader's meeting of this number has, unless that is known.
    async fn claim(&self, store: &dyn Store) -> Result<()> {
        let Handle { nonce, .. } = self.handles[0];
        let key = format!("{PREFIX}/claims/{nonce:016x}/{}", self.uuid);
        let ours = format!("{:016x} {}", self.digest, self.size());
        let theirs = store.compare_set_async(&key, b"", ours.as_bytes()).await?;
        if theirs == ours.as_bytes() {
            return Ok(());
        }
        let theirs = String::from_utf8_lossy(&theirs).into_owned();
        let (digest, size) = theirs.split_once(' ').unwrap_or((&theirs, "?"));
        let message = format!(
            "reconfigure: members disagree on who they are: rank {} of {} has another list of \
             handles, or another order, for uuid {} than the member that came first, which has \
             {size} handles",
            self.rank,
            self.size(),
            self.uuid
        );
        if let Ok(digest) = u64::from_str_radix(digest, 16) {
            let prefix = format!("{}/{}", scope(digest), keys_of_group(MEETING));
            let keys = |store: &dyn Store| store.clone_store();
            if let Ok(store) = keys(store) {
                let theirs = PrefixStore::new(prefix, store);
                rendezvous::end_join(&theirs, MEETING, &message).await?;
            }
        }
        Err(Error::InvalidArgument { message })
    }

    /// `store` as those of the meeting with this digest have it.
    fn scoped(&self, store: &Arc<dyn Store>, digest: u64) -> Arc<dyn Store> {
        Arc::new(PrefixStore::new(scope(digest), store.clone()))
    }

    /// What is left of the time; zero is no limit.
    fn left(&self, began: Instant) -> Duration {
        match self.timeout.is_zero() {
            true => self.timeout,
            false => self.timeout.saturating_sub(began.elapsed()).max(Duration::from_millis(1)),
        }
    }

    fn is_gone(&self, group: &ProcessGroup, rank: u32) -> Error {
        Error::RankFailed {
            group: group.group_name().to_owned(),
            rank,
            why: gone_text(rank, &self.handles[rank as usize].place),
            collective: "reconfigure".to_owned(),
            sequence: 0,
        }
    }

    /// What `error`, with which the others were waited for, says of this call.
    async fn explained(
        &self,
        group: &ProcessGroup,
        observer: &MemberObserver<'_>,
        error: Error,
    ) -> Error {
        if observer.was_aborted() {
            return error;
        }
        if let Some(rank) = observer.gone().await.filter(|rank| *rank < self.size()) {
            return self.is_gone(group, rank);
        }
        let named = |message: String| {
            let group = format!("'{}'", group.group_name());
            message.replace(&format!("'{MEETING}'"), &group)
        };
        match error {
            Error::RendezvousTimeout { rank, missing_ranks, message } => {
                let places = missing_ranks.iter().filter_map(|&rank| {
                    let handle = self.handles.get(rank as usize)?;
                    Some(format!("rank {rank} is '{handle}'"))
                });
                let places: Vec<String> = places.take(8).collect();
                let message = format!(
                    "reconfigure (uuid {}) of group '{}' on rank {}: {} ({})",
                    self.uuid,
                    group.group_name(),
                    self.rank,
                    named(message),
                    places.join(", ")
                );
                Error::RendezvousTimeout { rank, missing_ranks, message }
            }
            Error::Rendezvous { message } => Error::Rendezvous { message: named(message) },
            Error::Network { .. } if meeting_place::is_gone(self.place()).await => {
                self.is_gone(group, 0)
            }
            other => other,
        }
    }
}

/// Prefix of the keys of a meeting.
fn scope(digest: u64) -> String {
    format!("{PREFIX}/{digest:016x}")
}
