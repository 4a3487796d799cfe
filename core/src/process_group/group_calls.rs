//! The calls that make groups out of a group: what a rank publishes in the store while it waits in
//! one, so that others find that calls cross. Knows no backend and no operations.
//!
//! Such a wait means something only if nobody else on the rank may make the group that the others
//! wait for. A thread or an event loop makes one after the other, so that the calls of a rank with
//! one caller have an order. Callers that have ended count no longer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::blocking::{Caller, LiveCallers};
use crate::generated::error::Result;
use crate::store::Store;

/// What a rank publishes that makes groups from several threads.
const SEVERAL: &[u8] = b"several";
/// What a rank publishes whose call is over.
const NONE: &[u8] = b"";

/// A call that makes a group out of some ranks of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupCall {
    /// `new_group` or `split_group`.
    pub(super) function: String,
    /// The name of the new group.
    pub(super) group: String,
    /// Its members, as ranks of the parent.
    pub(super) ranks: Vec<u32>,
}

/// The calls of this process that make groups out of one group.
#[derive(Debug, Default)]
pub(super) struct GroupCalls {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    pending: u32,
    /// How many there were.
    count: u64,
    /// Those that made groups.
    makers: LiveCallers,
}

impl GroupCall {
    /// The key under which a rank publishes in which call it waits.
    fn key(rank: u32) -> String {
        format!("calls/{rank}")
    }

    /// `new_group of ranks [0, 1]`.
    pub(super) fn describe(&self) -> String {
        format!("{} of ranks {:?}", self.function, self.ranks)
    }

    /// The name under which the members meet.
    pub(super) fn meeting(&self) -> String {
        format!("{}/assembly", self.group)
    }

    /// Those before and after member `rank`, as ranks of the parent.
    pub(super) fn neighbours(&self, rank: u32) -> [u32; 2] {
        let size = self.ranks.len() as u32;
        [1, size - 1].map(|step| self.ranks[((rank + step) % size) as usize])
    }

    fn encode(&self) -> Vec<u8> {
        let GroupCall { function, group, ranks } = self;
        let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
        format!("{function}\n{}\n{group}", ranks.join(",")).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<GroupCall> {
        let mut lines = std::str::from_utf8(bytes).ok()?.splitn(3, '\n');
        let (function, ranks) = (lines.next()?.to_owned(), lines.next()?);
        let ranks = ranks.split(',').map(|rank| rank.parse().ok()).collect::<Option<_>>()?;
        Some(GroupCall { function, group: lines.next()?.to_owned(), ranks })
    }

    /// The call in which `rank` waits, if it waits in one alone. `store` is that of the parent.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn of(store: &dyn Store, rank: u32) -> Result<Option<GroupCall>> {
        let key = GroupCall::key(rank);
        if !store.check_async(&[&key]).await? {
            return Ok(None);
        }
        let published = GroupCall::decode(&store.get_async(&key).await?);
        Ok(published.filter(|call| call.ranks.contains(&rank)))
    }

    /// Publishes that `rank` waits in one call, in several or in none.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn publish(store: &dyn Store, rank: u32, text: &[u8]) -> Result<()> {
        store.set_async(&GroupCall::key(rank), text).await
    }
}

impl GroupCalls {
    /// Notes that a call of `caller` begins.
    pub(super) fn begin(&self, caller: &Caller) -> PendingCall<'_> {
        let mut calls = self.lock();
        calls.pending += 1;
        calls.count += 1;
        calls.makers.note(caller);
        drop(calls);
        PendingCall { calls: self }
    }

    /// How many calls there were.
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Whether several are under way, or may be soon.
    pub(super) fn are_concurrent(&self) -> bool {
        let calls = self.lock();
        calls.pending > 1 || calls.makers.are_several()
    }

    /// What to publish while `call` waits.
    pub(super) fn text_of(&self, call: &GroupCall) -> Vec<u8> {
        if self.are_concurrent() { SEVERAL.to_vec() } else { call.encode() }
    }

    /// What to publish when a call is over.
    pub(super) fn text_of_end(&self) -> &'static [u8] {
        if self.are_concurrent() { SEVERAL } else { NONE }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as a call under way until it is dropped.
pub(super) struct PendingCall<'a> {
    calls: &'a GroupCalls,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.calls.lock().pending -= 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;

    fn call() -> GroupCall {
        GroupCall { function: "new_group".into(), group: "a\nb".into(), ranks: vec![2, 0] }
    }

    #[test]
    fn what_is_published_is_read_again() {
        assert_eq!(GroupCall::decode(&call().encode()), Some(call()));
        assert_eq!(GroupCall::decode(SEVERAL), None);
        assert_eq!(GroupCall::decode(NONE), None);
    }

    /// What a thread does that has ended then.
    fn on_a_thread(calls: &Arc<GroupCalls>, act: fn(&GroupCalls)) {
        let calls = calls.clone();
        std::thread::spawn(move || act(&calls)).join().unwrap();
    }

    #[test]
    fn calls_of_threads_that_have_ended_do_not_count() {
        let calls = Arc::new(GroupCalls::default());
        for _ in 0..2 {
            on_a_thread(&calls, |calls| drop(calls.begin(&Caller::of_thread())));
        }
        let own = Caller::of_thread();
        let _pending = calls.begin(&own);
        assert_eq!(calls.text_of(&call()), call().encode());
        let _other = calls.begin(&own);
        assert_eq!(calls.text_of(&call()), SEVERAL);
    }
}
