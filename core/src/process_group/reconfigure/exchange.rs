//! How the members of a group that is configured learn one another's handles: each writes its own
//! to a store, under the prefix of the call, and waits there for the others. Knows nothing of what
//! becomes of the group.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::handle::Handle;
use super::observer::{GONE, MAX_LOOKED_AT, MAX_PAUSE, gone_text};
use super::{CallName, members};
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::rendezvous::{self, GoneRanks, JoinObserver, PendingLook, StoreAddress, meeting_place};
use crate::store::{Bound, Store};

/// How long a process that gives up may take to tell the others.
const TELLING_LIMIT: Duration = Duration::from_millis(500);
/// What stands before the keys of all that meet.
const PREFIX: &str = "polyrank-configure";

/// One exchange, on one rank.
pub(super) struct Exchange<'a> {
    pub(super) group: &'a ProcessGroup,
    pub(super) call: &'a CallName,
    pub(super) address: &'a StoreAddress<'a>,
    /// The rank of this process, and how many they are.
    pub(super) place: (u32, u32),
    pub(super) quorum_id: Option<i64>,
    pub(super) timeout: Duration,
    pub(super) began: Instant,
    /// Where they meet, once that is known.
    pub(super) store: OnceLock<Arc<dyn Store>>,
}

impl Exchange<'_> {
    /// The members by their new ranks. This process had the rank `former` before; `begin` is called
    /// when it is about to tell who it is.
    pub(super) async fn run(
        &self,
        former: Option<u32>,
        begin: impl FnOnce(),
    ) -> Result<Vec<Handle>> {
        let (rank, size) = self.place;
        let bound = Bound::after(self.timeout);
        let opened = self.address.open(self.timeout).await?;
        let store = bound.of(self.store.get_or_init(|| opened));
        let group = self.group.group_name();
        let ours = self.group.inner.site.handle(group, former, &*store)?;
        begin();
        let met = self.meet(&*store, &ours).await;
        bound.lift();
        let texts = met.map_err(|error| self.unless_silent(error))?;
        let (handles, found) = members(self.call.function, &texts, true, &ours)?;
        if found == rank {
            return Ok(handles);
        }
        // Whoever wrote it was told the same rank and came at another time.
        let message = format!(
            "{}: the handle of rank {rank} of {size} stands at rank {found}; was the prefix used \
             before?",
            self.call
        );
        Err(Error::Rendezvous { message })
    }

    async fn meet(&self, store: &dyn Store, ours: &Handle) -> Result<Vec<String>> {
        let (rank, size) = self.place;
        store.set_async(&self.key(&rank.to_string()), ours.to_string().as_bytes()).await?;
        let observer = HandleObserver { exchange: self, store, next: AtomicU32::new(rank + 1) };
        let name = self.name();
        let joined =
            rendezvous::join_observed(store, &name, self.place, self.left(), &observer).await;
        if let Err(error) = joined {
            return Err(self.explained(error, observer.all_gone().await.first().copied()));
        }
        let keys: Vec<String> = (0..size).map(|other| self.key(&other.to_string())).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let handles = store.multi_get_async(&keys).await?;
        Ok(handles.iter().map(|handle| String::from_utf8_lossy(handle).into_owned()).collect())
    }

    /// Tells the others, if they can be reached at once, that this process does not come. Returns
    /// the error.
    pub(super) async fn aborted(&self, why: String) -> Error {
        let (rank, group) = (self.place.0, self.group.group_name().to_owned());
        if let Some(store) = self.store.get() {
            store.set_timeout(TELLING_LIMIT);
            let _ = rendezvous::end_join(&**store, &self.name(), &self.does_not_come(&why)).await;
        }
        let collective = self.call.function.to_owned();
        Error::Aborted { group, rank, why, collective, sequence: 0 }
    }

    /// As [`Exchange::aborted`], where nobody waits for what comes of it any more.
    pub(super) fn given_up(&self) {
        let Some(store) = self.store.get().cloned() else { return };
        let (name, message) = (self.name(), self.does_not_come("it has given the call up"));
        let tell = move || {
            // Another thread may still wait with that one.
            let Ok(store) = store.reopen(TELLING_LIMIT) else { return };
            let _ = block_on(rendezvous::end_join(&*store, &name, &message));
        };
        let thread = std::thread::Builder::new().name("polyrank-members".to_owned());
        if let Err(error) = thread.spawn(tell) {
            tracing::debug!(%error, "the others are not told that this process gave up");
        }
    }

    fn does_not_come(&self, why: &str) -> String {
        format!("rank {} does not come: {why}", self.place.0)
    }

    /// What is left of the time; zero if there is no limit.
    pub(super) fn left(&self) -> Duration {
        if self.timeout.is_zero() {
            return Duration::ZERO;
        }
        let left = self.timeout.saturating_sub(self.began.elapsed());
        left.max(Duration::from_millis(1))
    }

    /// What the meeting is called: quorums that have one prefix are others.
    fn name(&self) -> String {
        self.quorum_id.map_or("members".to_owned(), |quorum| format!("quorum {quorum}"))
    }

    fn key(&self, what: &str) -> String {
        format!("{PREFIX}/{}/{what}", self.name())
    }

    /// What `error`, with which the others were waited for, says of this call; a member may be
    /// `gone`.
    fn explained(&self, error: Error, gone: Option<u32>) -> Error {
        let (group, call) = (self.group.group_name(), self.call);
        if let Some(rank) = gone {
            return Error::RankFailed {
                group: group.to_owned(),
                rank,
                why: format!("{call}: rank {rank} came, and its process is gone"),
                collective: call.function.to_owned(),
                sequence: 0,
            };
        }
        let told = |message: String| {
            let told = message.replace(&format!("group '{}'", self.name()), "the members");
            let twice = told.split_once(" joined twice").map(|(who, _)| {
                format!(
                    "{who} came twice: two processes have the same rank, or the prefix was used \
                     before; every call needs one of its own"
                )
            });
            format!("{call} of group '{group}': {}", twice.unwrap_or(told))
        };
        match error {
            Error::RendezvousTimeout { rank, missing_ranks, message } => {
                Error::RendezvousTimeout { rank, missing_ranks, message: told(message) }
            }
            Error::Rendezvous { message } => Error::Rendezvous { message: told(message) },
            other => other,
        }
    }

    /// A request to the store that took too long is not what the program has called.
    fn unless_silent(&self, error: Error) -> Error {
        match error {
            Error::StoreTimeout { .. } => Error::Network {
                message: format!("{}: the store has not answered in time", self.call),
            },
            other => other,
        }
    }
}

/// Looks, while a member waits for the others, whether one that came is gone.
struct HandleObserver<'a> {
    exchange: &'a Exchange<'a>,
    store: &'a dyn Store,
    /// The member that is looked at next.
    next: AtomicU32,
}

impl HandleObserver<'_> {
    async fn look_at_some(&self) -> Result<Option<String>> {
        let (own, size) = self.exchange.place;
        let first = self.next.fetch_add(MAX_LOOKED_AT, Ordering::Relaxed);
        for step in 0..size.min(MAX_LOOKED_AT) {
            let rank = first.wrapping_add(step) % size;
            let key = self.exchange.key(&rank.to_string());
            if rank == own || !self.store.check_async(&[&key]).await? {
                continue;
            }
            let text = self.store.get_async(&key).await?;
            // One that cannot be read is for who reads them all.
            let Ok(handle) = Handle::parse(&String::from_utf8_lossy(&text)) else { continue };
            if meeting_place::is_gone(&handle.place).await {
                let key = self.exchange.key(GONE);
                self.store.compare_set_async(&key, b"", rank.to_string().as_bytes()).await?;
                return Ok(Some(gone_text(rank, &handle.place)));
            }
        }
        Ok(None)
    }

    /// The first member that was found to be gone.
    async fn all_gone(&self) -> Vec<u32> {
        let key = self.exchange.key(GONE);
        let text = match self.store.check_async(&[&key]).await {
            Ok(true) => self.store.get_async(&key).await.unwrap_or_default(),
            _ => return Vec::new(),
        };
        let rank = String::from_utf8_lossy(&text).parse().ok();
        rank.filter(|&rank: &u32| rank < self.exchange.place.1).into_iter().collect()
    }
}

impl JoinObserver for HandleObserver<'_> {
    fn look(&self) -> PendingLook<'_> {
        Box::pin(self.look_at_some())
    }

    fn longest_pause(&self) -> Duration {
        MAX_PAUSE
    }

    fn gone(&self) -> GoneRanks<'_> {
        Box::pin(self.all_gone())
    }
}
