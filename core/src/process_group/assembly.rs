//! The members of a group that is split off wait for one another in the parent's store, before any
//! backend does: here they learn of ranks that are gone, and of calls that cross. Knows no backend.
//!
//! Two calls cross if a rank waits in one for a rank that waits in the other for it, perhaps
//! through further ranks: neither ever continues. A rank that waits for a while publishes in which
//! call, looks for such a circle, and ends all calls in it if it is still there a little later. A
//! rank that makes several groups at the same time, from several threads, waits in several calls,
//! so that a circle through it means nothing: it says so.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::failure_watch::FailureWatch;
use super::group_calls::GroupCall;
use super::{Inner, ProcessGroup};
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::meetings::{self, MeetingCall};
use crate::rendezvous::{self, JoinObserver, PendingLook};
use crate::sorted::{SortedMap, sort};
use crate::store::Store;
use crate::work::comm_name::titled;

/// How many ranks are looked at for calls that cross.
const MAX_RANKS: usize = 64;

impl ProcessGroup {
    /// Waits, as member `rank` of the new group of `call`, until all members are there. `store` is
    /// a connection of this call's own: others may wait in that of the group. `watch` looks out for
    /// failures of this one.
    ///
    /// # Errors
    /// [`Error::RankFailed`], as of an operation of this group; [`Error::RendezvousTimeout`] naming
    /// the members that did not come; [`Error::Rendezvous`] if calls cross, or a member cannot
    /// join.
    pub(super) async fn assemble(
        &self,
        store: &dyn Store,
        (call, description): (&GroupCall, &str),
        rank: u32,
        timeout: Duration,
        watch: &FailureWatch,
    ) -> Result<()> {
        let size = call.ranks.len() as u32;
        if size == 1 {
            return Ok(());
        }
        let calls = &self.inner.group_calls;
        let observer = AssemblyObserver { group: self, store, call, found: Mutex::default() };
        let (began, meeting) = (Instant::now(), call.meeting());
        let joined = rendezvous::join_observed(store, &meeting, (rank, size), timeout, &observer);
        let joined = self.meeting_for(call, description, joined);
        let joined = watch.or_failure(joined).await;
        if observer.has_published() {
            // If the store is lost, that is told already.
            let _ = GroupCall::publish(store, self.rank(), calls.text_of_end()).await;
        }
        joined.map_err(|error| self.error_of(call, error, began.elapsed() < timeout))
    }

    /// Tells the other members of the new group of `call` why this one cannot join it.
    pub(super) async fn refuse(
        &self,
        store: &dyn Store,
        call: &GroupCall,
        rank: u32,
        why: &Error,
        timeout: Duration,
    ) {
        let size = call.ranks.len() as u32;
        if size > 1 {
            rendezvous::refuse(store, &call.meeting(), (rank, size), why, timeout).await;
        }
    }

    /// `future`, in which the members of the new group of `call` meet: who waits for them knows it
    /// as that.
    #[cfg(feature = "tcp")]
    pub(super) fn meeting_for<F: Future>(
        &self,
        call: &GroupCall,
        description: &str,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let global = |&rank: &u32| self.global_rank(rank).unwrap_or(rank);
        let call = MeetingCall {
            function: call.function.clone(),
            makes_group: true,
            group: call.group.clone(),
            description: description.to_owned(),
            members: call.ranks.iter().map(global).collect(),
        };
        // What is awaited within others is as large as they are together: the stack of a thread
        // that polls the outermost must hold none of it.
        meetings::within_call(call, Box::pin(future))
    }

    /// As above, where nobody says who is late.
    #[cfg(not(feature = "tcp"))]
    pub(super) fn meeting_for<F: Future>(&self, _: &GroupCall, _: &str, future: F) -> F {
        future
    }

    /// The global ranks of `members` of the new group of `call`.
    fn global_ranks(&self, call: &GroupCall, members: &[u32]) -> Vec<u32> {
        let parents = members.iter().filter_map(|&member| call.ranks.get(member as usize));
        parents.filter_map(|&rank| self.global_rank(rank).ok()).collect()
    }

    /// What `error` says of `call`.
    pub(super) fn error_of(&self, call: &GroupCall, error: Error, is_early: bool) -> Error {
        let number = self.inner.group_calls.count();
        let told = |message: String| {
            let (what, group) = (titled(&call.describe()), &call.group);
            let message = message.replace(&format!("'{}'", call.meeting()), &format!("'{group}'"));
            format!("{what} (group '{group}') on rank {}: {message}", self.rank())
        };
        let function = titled(&call.function);
        match error {
            Error::RankFailed { group, rank, why, .. } => {
                Error::RankFailed { group, rank, why, collective: function, sequence: number }
            }
            Error::Aborted { group, rank, why, .. } => {
                Error::Aborted { group, rank, why, collective: function, sequence: number }
            }
            Error::RendezvousTimeout { rank, missing_ranks, message } => {
                let late =
                    if is_early { ", when the timeout of another rank had passed" } else { "" };
                let mut missing = self.global_ranks(call, &missing_ranks);
                let also = match missing == *missing_ranks {
                    true => String::new(),
                    false => format!(" (global ranks {missing:?})"),
                };
                sort(&mut missing);
                let first = missing.first().copied();
                let rank = first.or_else(|| self.global_ranks(call, &[rank]).pop()).unwrap_or(rank);
                rendezvous::timed_out(rank, missing, told(format!("{message}{also}{late}")))
            }
            Error::Rendezvous { message } => Error::Rendezvous { message: told(message) },
            other => other,
        }
    }
}

/// Looks for members that have left, and for calls that cross, while this rank waits.
struct AssemblyObserver<'a> {
    group: &'a ProcessGroup,
    store: &'a dyn Store,
    call: &'a GroupCall,
    found: Mutex<Looks>,
}

/// What was seen so far.
#[derive(Default)]
struct Looks {
    /// What this rank has published.
    published: Option<Vec<u8>>,
    /// The circle that was there at the last look.
    circle: Option<Vec<WaitingRank>>,
}

/// A rank that waits in a call for the next one of a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WaitingRank {
    rank: u32,
    call: GroupCall,
}

impl JoinObserver for AssemblyObserver<'_> {
    fn look(&self) -> PendingLook<'_> {
        Box::pin(async move {
            if let Some(why) = self.departure().await? {
                return Ok(Some(why));
            }
            let is_first = !self.has_published();
            self.publish().await?;
            if is_first {
                return Ok(None);
            }
            let circle = self.circle().await?;
            let before = std::mem::replace(&mut lock(&self.found).circle, circle.clone());
            let Some(circle) = circle.filter(|circle| before.as_ref() == Some(circle)) else {
                return Ok(None);
            };
            let why = describe(&circle);
            for WaitingRank { call, .. } in &circle {
                rendezvous::end_join(self.store, &call.meeting(), &why).await?;
            }
            Ok(Some(why))
        })
    }
}

impl AssemblyObserver<'_> {
    fn has_published(&self) -> bool {
        lock(&self.found).published.is_some()
    }

    /// Publishes in which call this rank waits, if that has changed.
    async fn publish(&self) -> Result<()> {
        let Inner { group_calls, rank, .. } = &**self.group.inner;
        let text = group_calls.text_of(self.call);
        if lock(&self.found).published.as_ref() == Some(&text) {
            return Ok(());
        }
        GroupCall::publish(self.store, *rank, &text).await?;
        lock(&self.found).published = Some(text);
        Ok(())
    }

    /// Which member has left the parent without having reached the call, if one has.
    async fn departure(&self) -> Result<Option<String>> {
        let group = self.group;
        let left: Vec<u32> =
            self.call.ranks.iter().copied().filter(|&rank| group.cpu().has_left(rank)).collect();
        if left.is_empty() {
            return Ok(None);
        }
        // Read after it was known that they have left: who came did so before.
        let missing = self.missing(self.call).await?;
        Ok(missing.into_iter().find(|rank| left.contains(rank)).map(|rank| {
            format!("rank {rank} does not come: it has left group '{}'", group.group_name())
        }))
    }

    /// The calls in which ranks wait for each other in a circle that this one waits for.
    async fn circle(&self) -> Result<Option<Vec<WaitingRank>>> {
        if self.group.inner.group_calls.are_concurrent() {
            return Ok(None);
        }
        let mut path = vec![WaitingRank { rank: self.group.rank(), call: self.call.clone() }];
        let mut open = vec![self.missing(self.call).await?];
        let mut seen = SortedMap::from_iter([(self.group.rank(), ())]);
        while let Some(next) = open.last_mut() {
            let Some(rank) = next.pop() else {
                open.pop();
                path.pop();
                continue;
            };
            if let Some(from) = path.iter().position(|waiting| waiting.rank == rank) {
                return Ok(Some(path.split_off(from)));
            }
            if seen.insert(rank, ()).is_some() || seen.len() > MAX_RANKS {
                continue;
            }
            if let Some(call) = GroupCall::of(self.store, rank).await? {
                open.push(self.missing(&call).await?);
                path.push(WaitingRank { rank, call });
            }
        }
        Ok(None)
    }

    /// The members that have not reached `call`, as ranks of the parent.
    async fn missing(&self, call: &GroupCall) -> Result<Vec<u32>> {
        let size = call.ranks.len() as u32;
        let missing = rendezvous::absent(self.store, &call.meeting(), size).await?;
        Ok(missing.into_iter().filter_map(|rank| call.ranks.get(rank as usize).copied()).collect())
    }
}

/// Which calls cross.
fn describe(circle: &[WaitingRank]) -> String {
    let told = |call: &GroupCall| match circle.iter().any(|other| differ_in_name(call, &other.call))
    {
        true => format!("{} (group '{}')", call.describe(), call.group),
        false => call.describe(),
    };
    let next = circle.iter().cycle().skip(1);
    let waits: Vec<String> = circle
        .iter()
        .zip(next)
        .map(|(WaitingRank { rank, call }, next)| {
            format!("rank {rank} waits for rank {} in {}", next.rank, told(call))
        })
        .collect();
    format!(
        "calls cross: {}. Ranks that are in several new groups make them in the same order, and \
         name the same ranks",
        waits.join(", and ")
    )
}

/// Whether two calls are told apart by the names of the new groups alone.
fn differ_in_name(one: &GroupCall, other: &GroupCall) -> bool {
    one.group != other.group && one.describe() == other.describe()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
