//! Looks, while a member waits for the others, for those that can never come: their processes are
//! gone, they have called with another number, or the group was aborted meanwhile. Knows nothing
//! of what happens when all are there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::handle::Handle;
use super::meeting::call_key;
use crate::backend::memberless::Memberless;
use crate::generated::error::Result;
use crate::rendezvous::{GoneRanks, JoinObserver, PendingLook, meeting_place};
use crate::store::Store;

/// Most members that one look asks for.
pub(super) const MAX_LOOKED_AT: u32 = 8;
/// The longest pause between two looks.
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(400);
/// Where the first who finds that members are gone notes which.
pub(super) const GONE: &str = "gone";

/// What a member looks at while it waits.
pub(super) struct MemberObserver<'a> {
    pub(super) store: &'a dyn Store,
    /// The store in which all calls meet, of which that is a part.
    all_calls: &'a dyn Store,
    /// The members, by their new ranks.
    pub(super) handles: &'a [Handle],
    pub(super) rank: u32,
    /// The number of the call.
    uuid: i64,
    /// What the group has until they are there.
    pub(super) memberless: &'a Memberless,
    /// The member that is looked at next.
    next: AtomicU32,
    /// Why somebody ended the wait on this rank.
    aborted: Mutex<Option<String>>,
}

impl<'a> MemberObserver<'a> {
    pub(super) fn new(
        (store, all_calls): (&'a dyn Store, &'a dyn Store),
        handles: &'a [Handle],
        rank: u32,
        uuid: i64,
        memberless: &'a Memberless,
    ) -> MemberObserver<'a> {
        let next = AtomicU32::new(rank + 1);
        let aborted = Mutex::default();
        MemberObserver { store, all_calls, handles, rank, uuid, memberless, next, aborted }
    }

    /// The member that was found to be gone, if the wait ended for that.
    pub(super) async fn first_gone(&self) -> Option<u32> {
        self.all_gone().await.first().copied()
    }

    async fn all_gone(&self) -> Vec<u32> {
        let text = match self.store.check_async(&[GONE]).await {
            Ok(true) => self.store.get_async(GONE).await.unwrap_or_default(),
            _ => return Vec::new(),
        };
        let text = String::from_utf8_lossy(&text);
        let ranks = text.split(',').filter_map(|rank| rank.parse().ok());
        ranks.filter(|&rank: &u32| (rank as usize) < self.handles.len()).collect()
    }

    /// Whether the wait ended since the group was aborted on this rank.
    pub(super) fn was_aborted(&self) -> bool {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    async fn look_at_some(&self) -> Result<Option<String>> {
        if let Some(why) = self.memberless.aborted() {
            *self.aborted.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
            return Ok(Some(format!("rank {} does not come: {why}", self.rank)));
        }
        let size = self.handles.len() as u32;
        let first = self.next.fetch_add(MAX_LOOKED_AT, Ordering::Relaxed);
        let place = |rank: u32| self.handles[rank as usize].place.as_str();
        let mut gone: Vec<u32> = Vec::new();
        for step in 0..size.min(MAX_LOOKED_AT) {
            let rank = first.wrapping_add(step) % size;
            if rank == self.rank {
                continue;
            }
            if let Some(why) = self.serves_another(rank).await? {
                return Ok(Some(why));
            }
            if meeting_place::is_gone(place(rank)).await {
                gone.push(rank);
            }
        }
        let Some(&first) = gone.first() else { return Ok(None) };
        let ours: Vec<String> = gone.iter().map(u32::to_string).collect();
        self.store.compare_set_async(GONE, b"", ours.join(",").as_bytes()).await?;
        Ok(Some(gone_text(first, place(first))))
    }
}

impl MemberObserver<'_> {
    /// Why a rank never comes whose handle serves a call with another number.
    async fn serves_another(&self, rank: u32) -> Result<Option<String>> {
        let key = call_key(&self.handles[rank as usize]);
        if !self.all_calls.check_async(&[&key]).await? {
            return Ok(None);
        }
        let other = self.all_calls.get_async(&key).await?;
        let (other, ours) = (String::from_utf8_lossy(&other).into_owned(), self.uuid.to_string());
        Ok((other != ours).then(|| {
            format!(
                "rank {rank} does not come: it called reconfigure with uuid {other}, and rank {} \
                 with uuid {ours}",
                self.rank
            )
        }))
    }
}

/// How it is said that a member is gone.
pub(super) fn gone_text(rank: u32, place: &str) -> String {
    format!(
        "nobody listens at {place} any more, where rank {rank} was met: its process is gone, or it \
         left the group"
    )
}

impl JoinObserver for MemberObserver<'_> {
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
