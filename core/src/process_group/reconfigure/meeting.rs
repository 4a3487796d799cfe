//! The meeting of the new members: in the store of the eldest, from which they get one another's
//! addresses as the ranks of any group do. Knows no transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::CallName;
use super::handle::Handle;
use super::observer::{MemberObserver, gone_text};
use super::survivor_call;
use super::unless_aborted::unless_aborted;
use crate::backend::memberless::Memberless;
use crate::backend::registration::Bootstrap;
use crate::backend::registry::BackendName;
use crate::blocking::sleep;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::create::own_connection;
use crate::process_group::liveness::Liveness;
use crate::process_group::sibling_names::SiblingNames;
use crate::process_group::{Inner, ProcessGroup};
use crate::rendezvous::{self, keys_of_group, meeting_place};
use crate::store::{Deadline, GroupStore, PrefixStore, Store};

/// The name under which members meet, whatever each calls the group.
const MEETING: &str = "members";
/// Where rank 0 tells the others what the group is called.
const NAME: &str = "name";
/// Where the eldest member tells the others what the hints of the group are.
const HINTS: &str = "hints";
/// What all keys of meetings begin with.
const PREFIX: &str = "polyrank-members";
/// What the keys begin with that say which members a meeting has.
const CLAIMS: &str = "polyrank-members/claims/";
/// What the keys begin with that say which call each handle serves.
const CALLS: &str = "polyrank-members/handles/";
/// How long the host stays for the others to hear that they disagree, and how often it looks.
const STAY: Duration = Duration::from_secs(2);
const STAY_PAUSE: Duration = Duration::from_millis(5);
/// What is there instead once a meeting has failed.
const ENDED: &str = "ended";

/// Who meets, and for how long.
pub(super) struct Meeting {
    pub(super) call: CallName,
    pub(super) uuid: i64,
    /// Of the number and the handles.
    pub(super) digest: u64,
    /// The members, by their new ranks.
    pub(super) handles: Vec<Handle>,
    pub(super) rank: u32,
    pub(super) timeout: Duration,
    /// The digest of the meeting of the members that this process leaves, if they had one.
    pub(super) former: Option<u64>,
}

/// Where the members of a group come from, if it was reconfigured.
#[derive(Clone)]
pub(in crate::process_group) struct Origins {
    /// Where each of them can be met, by rank.
    pub(super) places: Arc<[String]>,
    /// The rank that hosts the store of the group, if one of them does.
    pub(super) host: Option<u32>,
    /// The store in which they met, under the prefix of the meeting.
    pub(super) store: Arc<GroupStore>,
    /// Of the meeting.
    pub(super) digest: u64,
}

impl Origins {
    /// Whether `rank` hosts the store of the group.
    pub(in crate::process_group) fn is_hosted_by(&self, rank: u32) -> bool {
        self.host == Some(rank)
    }
}

/// How often it is looked whether the host is gone whose store was lost, and in what interval: a
/// process that is killed may still listen for a moment when its connections have ended.
const HOST_LOOKS: u32 = 20;
const HOST_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a process that gives up may take to tell the others.
const TELLING_LIMIT: Duration = Duration::from_millis(500);
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
        let Some(Origins { store, host, .. }) = origins else { return Ok(()) };
        let (ranks, is_host) = ((*rank, members.len() as u32), *host == Some(*rank));
        let limit = LEAVE_LIMITS[usize::from(broken)];
        let left = match broken && !is_host {
            true => rendezvous::leave_at_once(&**store, MEETING, *rank).await,
            false => rendezvous::leave_async(&**store, MEETING, ranks, is_host, limit).await,
        };
        store.close();
        left
    }

    /// The group was left: nobody is met any more.
    pub(in crate::process_group) fn close_meeting(&self) {
        if let Some(origins) = &self.inner.origins {
            origins.store.close();
        }
        self.inner.site.close();
    }
}

impl Meeting {
    /// Meets the others and connects the backend: the members of `group` from then on.
    pub(super) async fn join(
        &self,
        group: &ProcessGroup,
        memberless: &Arc<Memberless>,
    ) -> Result<Inner> {
        let began = Instant::now();
        let meets = async {
            let found = self.open(group).await?;
            self.claim(group, &*found).await.map(|()| found)
        };
        let met = unless_aborted(memberless, meets).await;
        if let Some(why) = memberless.aborted() {
            self.tell_of_abort(group, &why).await;
        }
        let found = match met {
            Ok(found) => found,
            Err(error) => return Err(self.unless_host_is_gone(group, error).await),
        };
        match self.join_in(&found, began, group, memberless).await {
            Ok(joined) => Ok(joined),
            Err(error) => {
                let error = self.unless_host_is_gone(group, error).await;
                self.end_claim(&*found, &error).await;
                self.hear_if_told(group, &*found).await;
                Err(error)
            }
        }
    }

    /// `error`, unless it is that the store was lost in which they meet, with the member that hosts
    /// it: whatever was asked of it then, that member is gone.
    async fn unless_host_is_gone(&self, group: &ProcessGroup, error: Error) -> Error {
        if !matches!(error, Error::Network { .. }) {
            return error;
        }
        for _ in 0..HOST_LOOKS {
            if meeting_place::is_gone(self.place()).await {
                return self.is_gone(group, self.eldest());
            }
            let _ = sleep(HOST_LOOK_INTERVAL).await;
        }
        error
    }

    /// Tells the others, if they can be reached at once, that this process gave up before it met
    /// them.
    async fn tell_of_abort(&self, group: &ProcessGroup, why: &str) {
        let (call, handles) = (self.call.clone(), self.handles.clone());
        let brief = Meeting { call, handles, timeout: TELLING_LIMIT, ..*self };
        let Ok(found) = brief.open(group).await else { return };
        let message = format!("rank {} does not come: {why}", self.rank);
        if self.claim(group, &*found).await.is_ok() {
            let scoped = self.scoped(&found, self.digest);
            // What is said here goes with the last that came.
            let _ = Liveness::announce(&*scoped, self.rank).await;
            let scoped = PrefixStore::new(keys_of_group(MEETING), scoped);
            let _ = rendezvous::end_join(&scoped, MEETING, &message).await;
            self.end_claim(&*found, &self.aborted(group, why.to_owned())).await;
        }
    }

    /// As [`Meeting::join`], in the store in which they meet.
    async fn join_in(
        &self,
        found: &Arc<dyn Store>,
        began: Instant,
        group: &ProcessGroup,
        memberless: &Memberless,
    ) -> Result<Inner> {
        let scoped = self.scoped(found, self.digest);
        let size = self.size();
        Liveness::announce(&*scoped, self.rank).await?;
        let own = own_connection(&scoped, size).await?;
        self.tell_what_all_share(group, &*scoped).await?;
        let stores = (&*scoped, &**found);
        let observer = MemberObserver::new(stores, &self.handles, self.rank, self.uuid, memberless);
        let own: Arc<dyn Store> = Arc::new(PrefixStore::new(keys_of_group(MEETING), own));
        let backend = group.inner.spec.backend_for("cpu").unwrap_or_else(BackendName::tcp);
        let members: Vec<u32> = (0..size).collect();
        let connected = (backend.registration().connect)(Bootstrap {
            backend: backend.as_str(),
            store: &own,
            rank: self.rank,
            size,
            members: &members,
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
        let eldest = self.eldest();
        if self.rank != eldest {
            group.inner.hints.adopt(&scoped.get_async(HINTS).await?);
        }
        let host = (!self.handles.iter().any(Handle::is_deaf)).then_some(eldest);
        let liveness = Liveness::new(group.group_name(), scoped.clone(), host).await?;
        let origins = Origins {
            places: self.handles.iter().map(|handle| handle.place.clone()).collect(),
            host,
            store: Arc::new(GroupStore::new(group.group_name(), scoped.clone())),
            digest: self.digest,
        };
        let store: Arc<dyn Store> = Arc::new(PrefixStore::new(keys_of_group(MEETING), scoped));
        let former = &**group.inner;
        let store = Arc::new(GroupStore::new(&former.name, store));
        Ok(Inner {
            rank: self.rank,
            members: (0..size).collect(),
            siblings: SiblingNames::of(&store),
            store,
            cpu,
            shared_name,
            origins: Some(origins),
            liveness: Some(liveness),
            // What was set while they met counts.
            timeout_ns: AtomicU64::new(former.timeout_ns.load(Ordering::Relaxed)),
            ..former.successor()
        })
    }

    /// Tells the others, if it falls to this rank, what the group is called and what its hints are.
    async fn tell_what_all_share(&self, group: &ProcessGroup, scoped: &dyn Store) -> Result<()> {
        if self.rank == 0 {
            scoped.set_async(NAME, group.group_name().as_bytes()).await?;
        }
        if self.rank == self.eldest() {
            let hints = group.inner.hints.to_text();
            scoped.set_async(HINTS, hints.as_bytes()).await?;
        }
        Ok(())
    }

    fn size(&self) -> u32 {
        self.handles.len() as u32
    }

    /// The eldest of the members, whatever their order, by its new rank.
    fn eldest(&self) -> u32 {
        let eldest = self.handles.iter().zip(0..).min_by(|one, other| one.0.seniority(other.0));
        eldest.map_or(0, |(_, rank)| rank)
    }

    /// Where all meet: at the eldest's, or where those can go that listen nowhere.
    fn place(&self) -> &str {
        let deaf = self.handles.iter().filter(|handle| handle.is_deaf());
        let deaf = deaf.map(|handle| handle.place.as_str()).min();
        deaf.unwrap_or(&self.handles[self.eldest() as usize].place)
    }

    /// The store in which they meet.
    async fn open(&self, group: &ProcessGroup) -> Result<Arc<dyn Store>> {
        let place = self.place();
        let hosted = group.inner.site.hosted().filter(|hosted| hosted.url == place);
        if let Some(hosted) = hosted {
            self.forget_claims(&*hosted.store).await?;
            return hosted.store.clone_store_async().await;
        }
        match meeting_place::open(place, self.timeout).await {
            Err(_) if meeting_place::is_gone(place).await => {
                Err(self.is_gone(group, self.eldest()))
            }
            Err(Error::StoreTimeout { .. }) => Err(self.is_silent(group, place)),
            opened => opened,
        }
    }

    fn is_silent(&self, group: &ProcessGroup, place: &str) -> Error {
        let eldest = self.eldest();
        let message = format!(
            "{} of group '{}' on rank {}: rank {eldest}, where the members meet, did not answer \
             at {place} within {} ms",
            self.call,
            group.group_name(),
            self.rank,
            self.timeout.as_millis() as u64
        );
        rendezvous::timed_out(self.rank, vec![eldest], message)
    }

    /// Where it is noted which members the meeting of this number has.
    fn claim_key(&self) -> String {
        let Handle { nonce, .. } = self.handles[self.eldest() as usize];
        format!("{CLAIMS}{nonce:016x}/{}", self.uuid)
    }

    /// Where those are counted that have heard that the members disagree.
    fn heard_key(&self) -> String {
        format!("{}/heard", self.claim_key())
    }

    fn own_claim(&self) -> String {
        format!("{:016x} {}", self.digest, self.size())
    }

    /// Forgets which members earlier meetings had in the store that this process hosts, and the
    /// calls of those that were left of them. Those of the former members may still be read.
    async fn forget_claims(&self, store: &dyn Store) -> Result<()> {
        let ours = self.claim_key();
        let of_call = survivor_call::PREFIX;
        let former = self.former.map(|digest| format!("{of_call}{digest:016x}/"));
        let is_read = |key: &str| former.as_ref().is_some_and(|former| key.starts_with(former));
        for key in store.list_keys_async().await? {
            let is_ours = key == ours || key == self.heard_key();
            let is_claim = key.starts_with(CLAIMS) && !is_ours;
            let is_known = |handle: &Handle| call_key(handle) == key;
            let is_call = key.starts_with(CALLS) && !self.handles.iter().any(is_known);
            if is_claim || is_call || (key.starts_with(of_call) && !is_read(&key)) {
                store.delete_key_async(&key).await?;
            }
        }
        Ok(())
    }

    /// Tells those that come late why the meeting failed: nobody waits for them.
    async fn end_claim(&self, store: &dyn Store, error: &Error) {
        let (kind, why) = match error {
            Error::RankFailed { rank, .. } => (rank.to_string(), error.to_string()),
            Error::RendezvousTimeout { .. } => ("late".to_owned(), error.to_string()),
            Error::Aborted { rank, why, .. } => {
                ("-".to_owned(), format!("rank {rank} does not come: {why}"))
            }
            _ => ("-".to_owned(), error.to_string()),
        };
        let ended = format!("{ENDED} {} {kind} {why}", self.own_claim());
        let (key, ours) = (self.claim_key(), self.own_claim());
        // Without the store, nobody meets there.
        let _ = store.compare_set_async(&key, ours.as_bytes(), ended.as_bytes()).await;
    }

    /// What a member fails with that came when the meeting had failed, as `claim` says if it does.
    fn came_late(&self, group: &ProcessGroup, claim: &str) -> Option<Error> {
        let ended = claim.strip_prefix(ENDED)?.strip_prefix(' ')?;
        let ended = ended.strip_prefix(self.own_claim().as_str())?.strip_prefix(' ')?;
        let (kind, why) = ended.split_once(' ').unwrap_or((ended, ""));
        let (rank, call) = (self.rank, &self.call);
        let message = format!("rank {rank} came to {call} after the others had given up: {why}");
        Some(match kind.parse() {
            Ok(rank) => Error::RankFailed {
                group: group.group_name().to_owned(),
                rank,
                why: message,
                collective: self.call.function.to_owned(),
                sequence: 0,
            },
            Err(_) if kind == "late" => rendezvous::timed_out(rank, vec![rank], message),
            Err(_) => Error::Rendezvous { message },
        })
    }

    /// Notes which members the meeting of this number has, unless that is known.
    async fn claim(&self, group: &ProcessGroup, store: &dyn Store) -> Result<()> {
        let (key, ours) = (self.claim_key(), self.own_claim());
        let served = call_key(&self.handles[self.rank as usize]);
        store.set_async(&served, self.uuid.to_string().as_bytes()).await?;
        let theirs = store.compare_set_async(&key, b"", ours.as_bytes()).await?;
        if theirs == ours.as_bytes() {
            return Ok(());
        }
        let theirs = String::from_utf8_lossy(&theirs).into_owned();
        if let Some(error) = self.came_late(group, &theirs) {
            self.hear_if_told(group, store).await;
            return Err(error);
        }
        // It stands there, too, of a meeting that has failed meanwhile.
        let theirs = theirs.strip_prefix(ENDED).map_or(&*theirs, str::trim_start);
        let mut parts = theirs.split(' ');
        let (digest, size) = (parts.next().unwrap_or_default(), parts.next().unwrap_or("other"));
        let message = format!(
            "{}: members disagree on who they are: rank {} of {} has another list of handles, or \
             another order, for {} than the member that came first, which has {size} handles",
            self.call.function,
            self.rank,
            self.size(),
            self.call.number
        );
        if let Ok(digest) = u64::from_str_radix(digest, 16) {
            let prefix = format!("{}/{}", scope(digest), keys_of_group(MEETING));
            let keys = |store: &dyn Store| store.clone_store();
            if let Ok(store) = keys(store) {
                let theirs = PrefixStore::new(prefix, store);
                rendezvous::end_join(&theirs, MEETING, &message).await?;
            }
        }
        self.hear(group, store).await;
        Err(Error::InvalidArgument { message })
    }

    /// Notes that this member has heard that they disagree. Who hosts the store stays a moment for
    /// the others to hear it: to them it would be gone.
    async fn hear(&self, group: &ProcessGroup, store: &dyn Store) {
        let key = self.heard_key();
        let hosted = group.inner.site.hosted();
        let is_host = hosted.is_some_and(|hosted| hosted.url == self.place());
        let stay = Deadline::after(STAY);
        let mut heard = store.add_async(&key, 1).await;
        while is_host && heard.is_ok_and(|heard| heard < i64::from(self.size())) {
            let Ok(pause) = stay.slice(STAY_PAUSE) else { return };
            let _ = sleep(pause).await;
            heard = store.add_async(&key, 0).await;
        }
    }

    /// As [`Meeting::hear`], if somebody has said that they do.
    async fn hear_if_told(&self, group: &ProcessGroup, store: &dyn Store) {
        if store.check_async(&[&self.heard_key()]).await.unwrap_or(false) {
            self.hear(group, store).await;
        }
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

    /// What the call ends with if this process gives up.
    pub(super) fn aborted(&self, group: &ProcessGroup, why: String) -> Error {
        let (group, collective) = (group.group_name().to_owned(), self.call.function.to_owned());
        Error::Aborted { group, rank: self.rank, why, collective, sequence: 0 }
    }

    fn is_gone(&self, group: &ProcessGroup, rank: u32) -> Error {
        Error::RankFailed {
            group: group.group_name().to_owned(),
            rank,
            why: gone_text(rank, &self.handles[rank as usize].place),
            collective: self.call.function.to_owned(),
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
        if let Some(rank) = observer.first_gone().await {
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
                    "{} of group '{}' on rank {}: {} ({})",
                    self.call,
                    group.group_name(),
                    self.rank,
                    named(message),
                    places.join(", ")
                );
                Error::RendezvousTimeout { rank, missing_ranks, message }
            }
            Error::Rendezvous { message } => Error::Rendezvous { message: named(message) },
            other => other,
        }
    }
}

/// Where it stands which call a handle serves: no other call has one that it serves.
pub(super) fn call_key(handle: &Handle) -> String {
    format!("{CALLS}{:016x}/{}", handle.nonce, handle.count)
}

/// Prefix of the keys of a meeting.
fn scope(digest: u64) -> String {
    format!("{PREFIX}/{digest:016x}")
}
