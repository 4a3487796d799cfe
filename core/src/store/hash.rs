//! A store within one process, for ranks that are threads. Knows nothing of sockets or files.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::awaited_keys::{self, Finding};
use super::deadline::{Deadline, SLICE, WaitError};
use super::table::{Refusal, Table};
use super::{Store, StoreFuture, StoreReply, StoreRequest};
use super::{TimeoutSetting, equal_lengths, expired};
use super::{elsewhere, request::perform};
use crate::clock::{self, CAN_BLOCK};
use crate::generated::error::{Error, Result};
use crate::sorted::SortedMap;

/// A store within one process. Clones share their data.
#[derive(Debug)]
pub struct HashStore {
    shared: Arc<SharedState>,
    timeout: TimeoutSetting,
}

#[derive(Debug)]
struct SharedState {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    table: Table,
    /// Tickets of the callers that wait to pop from a queue, oldest first: the n-th of them may
    /// have the n-th element.
    waiting: SortedMap<String, VecDeque<u64>>,
    next_ticket: u64,
    /// Who wants to learn of the next change, by their tickets.
    watchers: Vec<(u64, Waker)>,
}

impl State {
    fn next_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

impl HashStore {
    /// An empty store with the default timeout.
    pub fn new() -> Self {
        let state = State {
            table: Table::new(usize::MAX),
            waiting: SortedMap::new(),
            next_ticket: 0,
            watchers: Vec::new(),
        };
        let shared = SharedState { state: Mutex::new(state) };
        Self { shared: Arc::new(shared), timeout: TimeoutSetting::new(super::DEFAULT_TIMEOUT) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the table half changed: no change calls foreign code.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        key: &str,
        change: impl FnOnce(&mut Table) -> Result<T, Refusal>,
    ) -> Result<T> {
        let changed = change(&mut self.state().table);
        self.tell();
        changed.map_err(|refusal| super::refused(refusal, key))
    }

    /// Wakes those that wait: something changed.
    fn tell(&self) {
        // Wakers are foreign code, which runs without the lock.
        let watchers = std::mem::take(&mut self.state().watchers);
        watchers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits until `ready` returns something.
    fn wait_until<T>(
        &self,
        keys: &[&str],
        timeout: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        if let Some(done) = ready(&mut self.state()) {
            return Ok(done);
        }
        if !CAN_BLOCK {
            return Err(super::by_request::cannot_block());
        }
        // The clock is not read when there is nothing to wait for.
        let deadline = Deadline::after(timeout);
        let mut watcher = Watcher::new(self, &Waker::from(Arc::new(ParkedThread::here())));
        loop {
            if let Some(done) = watcher.look(&mut ready) {
                return Ok(done);
            }
            awaited_keys::look(|| self.description(), || self.missing(keys));
            let slice = deadline.slice(SLICE);
            let slice = slice.map_err(|why| expired(why, "wait", keys, &deadline))?;
            std::thread::park_timeout(slice);
        }
    }

    /// Those of `keys` that are not there.
    fn missing(&self, keys: &[&str]) -> Finding {
        let state = self.state();
        Finding::Missing(state.table.missing(keys))
    }

    /// As [`HashStore::wait_until`], without blocking.
    async fn wait_later<T>(
        &self,
        keys: &[&str],
        timeout: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let deadline = Deadline::after(timeout);
        let mut alarm = deadline.remaining().map(|left| clock::sleep_until(clock::after(left)));
        let mut watcher: Option<Watcher<'_>> = None;
        poll_fn(|context| {
            let waker = context.waker();
            let watcher = match &mut watcher {
                Some(watcher) if watcher.waker.will_wake(waker) => watcher,
                other => other.insert(Watcher::new(self, waker)),
            };
            if let Some(done) = watcher.look(&mut ready) {
                return Poll::Ready(Ok(done));
            }
            let late = |alarm: &mut clock::Sleep| Pin::new(alarm).poll(context).is_ready();
            if alarm.as_mut().is_some_and(late) {
                return Poll::Ready(Err(expired(WaitError::TimedOut, "wait", keys, &deadline)));
            }
            Poll::Pending
        })
        .await
    }

    /// Answers `request` without ever blocking.
    async fn answer_later(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        let timeout = self.timeout();
        match request {
            StoreRequest::Get { key } => {
                self.wait_later(&[key], timeout, value_of(key)).await.map(StoreReply::Value)
            }
            StoreRequest::MultiGet { keys } => {
                self.wait_later(keys, timeout, values_of(keys)).await.map(StoreReply::Values)
            }
            StoreRequest::Wait { keys, timeout: limit } => {
                let there = self.wait_later(keys, limit.unwrap_or(timeout), all_there(keys)).await;
                there.map(|()| StoreReply::Done)
            }
            StoreRequest::QueuePop { key, block: true } => {
                let ticket = Ticket::take(self, key);
                let popped = self.wait_later(&[key], timeout, |state| ticket.pop(state)).await;
                popped.map(StoreReply::Value)
            }
            StoreRequest::Barrier { key, world_size, timeout: limit } => {
                let Some(opened) = super::count_at_barrier(self, key, world_size)? else {
                    return Ok(StoreReply::Done);
                };
                let keys = [opened.as_str()];
                let limit = limit.unwrap_or(timeout);
                let waited = self.wait_later(&keys, limit, all_there(&keys)).await;
                waited.map_err(|error| super::of_barrier(error, key)).map(|()| StoreReply::Done)
            }
            // The others do not wait.
            request => perform(self, request),
        }
    }
}

/// The value of `key`, if there is one.
fn value_of(key: &str) -> impl FnMut(&mut State) -> Option<Vec<u8>> {
    move |state| state.table.get(key.as_bytes()).map(|value| value.bytes().to_vec())
}

/// The values of `keys`, if all are there.
fn values_of(keys: &[&str]) -> impl FnMut(&mut State) -> Option<Vec<Vec<u8>>> {
    move |state| {
        let value = |key: &&str| Some(state.table.get(key.as_bytes())?.bytes().to_vec());
        keys.iter().map(value).collect()
    }
}

/// Whether all `keys` are there.
fn all_there(keys: &[&str]) -> impl FnMut(&mut State) -> Option<()> {
    move |state| keys.iter().all(|key| state.table.has(key.as_bytes())).then_some(())
}

/// Somebody who waits for a change. Forgotten when it is dropped.
struct Watcher<'a> {
    store: &'a HashStore,
    ticket: u64,
    waker: Waker,
}

impl<'a> Watcher<'a> {
    fn new(store: &'a HashStore, waker: &Waker) -> Watcher<'a> {
        Watcher { store, ticket: store.state().next_ticket(), waker: waker.clone() }
    }

    /// The result of `ready`; if it is `None`, the next change wakes the caller.
    fn look<T>(&mut self, ready: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.store.state();
        let done = ready(&mut state);
        if done.is_none() && !state.watchers.iter().any(|(known, _)| *known == self.ticket) {
            state.watchers.push((self.ticket, self.waker.clone()));
        }
        done
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state();
        state.watchers.retain(|(known, _)| *known != self.ticket);
    }
}

/// A thread that sleeps until it is woken.
struct ParkedThread(Thread);

impl ParkedThread {
    fn here() -> ParkedThread {
        ParkedThread(std::thread::current())
    }
}

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A caller's place among those that wait to pop from a queue. Given up when it is dropped.
struct Ticket<'a> {
    store: &'a HashStore,
    key: &'a str,
    number: u64,
}

impl<'a> Ticket<'a> {
    fn take(store: &'a HashStore, key: &'a str) -> Ticket<'a> {
        let mut state = store.state();
        let number = state.next_ticket();
        state.waiting.entry(key.to_owned()).or_default().push_back(number);
        Ticket { store, key, number }
    }

    /// The element that is its turn's.
    fn pop(&self, state: &mut State) -> Option<Vec<u8>> {
        let tickets = state.waiting.get(self.key)?;
        let turn = tickets.iter().position(|&other| other == self.number)?;
        if turn >= state.table.queue_len(self.key.as_bytes()) {
            return None;
        }
        state.table.pop(self.key.as_bytes()).map(|value| value.bytes().to_vec())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state();
        if let Some(tickets) = state.waiting.get_mut(self.key) {
            tickets.retain(|&other| other != self.number);
            if tickets.is_empty() {
                state.waiting.remove(self.key);
            }
        }
        drop(state);
        // Those after this caller have moved up.
        self.store.tell();
    }
}

impl Default for HashStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for HashStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(key, |table| table.set(key.as_bytes(), value))
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.wait_until(&[key], self.timeout(), value_of(key))
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.change(key, |table| table.add(key.as_bytes(), amount))
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(key, |table| table.append(key.as_bytes(), value))
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        let state = self.state();
        Ok(keys.iter().all(|key| state.table.has(key.as_bytes())))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.change(key, |table| table.compare_set(key.as_bytes(), expected, desired))
            .map(|(reply, _)| reply)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        Ok(self.state().table.delete(key.as_bytes()))
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        self.wait_until(keys, timeout, all_there(keys))
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.wait_until(keys, self.timeout(), values_of(keys))
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        equal_lengths(keys, values)?;
        for (key, value) in keys.iter().zip(values) {
            self.set(key, value)?;
        }
        Ok(())
    }

    fn num_keys(&self) -> Result<i64> {
        Ok(self.state().table.num_keys() as i64)
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        let state = self.state();
        Ok(state.table.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(key, |table| table.push(key.as_bytes(), value))
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        if block {
            let ticket = Ticket::take(self, key);
            return self.wait_until(&[key], self.timeout(), |state| ticket.pop(state));
        }
        let popped = self.state().table.pop(key.as_bytes());
        popped.map(|value| value.bytes().to_vec()).ok_or(Error::QueueEmpty)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        Ok(self.state().table.queue_len(key.as_bytes()) as i64)
    }

    fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        if CAN_BLOCK {
            Box::pin(elsewhere::run(self, request))
        } else {
            Box::pin(self.answer_later(request))
        }
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        self.clone_store().ok()
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self { shared: self.shared.clone(), timeout: self.timeout.clone() }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::task::Context;

    use super::*;

    fn poll(
        future: &mut (impl Future<Output = Result<StoreReply>> + Unpin),
    ) -> Poll<Result<StoreReply>> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_waits_is_answered_when_it_is_there() {
        let store = HashStore::new();
        let later = |request| Box::pin(store.answer_later(request));
        let mut get = later(StoreRequest::Get { key: "a" });
        let mut both = later(StoreRequest::MultiGet { keys: &["a", "b"] });
        let mut wait = later(StoreRequest::Wait { keys: &["b"], timeout: None });
        let mut pops = ["q", "q"].map(|key| later(StoreRequest::QueuePop { key, block: true }));
        let barrier = StoreRequest::Barrier { key: "c", world_size: 2, timeout: None };
        let mut first = later(barrier);
        assert!(poll(&mut get).is_pending() && poll(&mut both).is_pending());
        assert!(poll(&mut wait).is_pending() && poll(&mut first).is_pending());
        assert!(pops.iter_mut().all(|pop| poll(pop).is_pending()));
        store.set("a", b"1").unwrap();
        assert_eq!(poll(&mut get), Poll::Ready(Ok(StoreReply::Value(b"1".to_vec()))));
        assert!(poll(&mut both).is_pending());
        store.set("b", b"2").unwrap();
        let values = StoreReply::Values(vec![b"1".to_vec(), b"2".to_vec()]);
        assert_eq!(poll(&mut both), Poll::Ready(Ok(values)));
        assert_eq!(poll(&mut wait), Poll::Ready(Ok(StoreReply::Done)));
        assert_eq!(poll(&mut later(barrier)), Poll::Ready(Ok(StoreReply::Done)));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(StoreReply::Done)));
        // In the order in which they came, and not in which they are asked.
        store.queue_push("q", b"3").unwrap();
        assert!(poll(&mut pops[1]).is_pending());
        assert_eq!(poll(&mut pops[0]), Poll::Ready(Ok(StoreReply::Value(b"3".to_vec()))));
    }

    #[test]
    fn who_gives_up_leaves_nothing_behind() {
        let store = HashStore::new();
        for _ in 0..3 {
            let mut pop =
                Box::pin(store.answer_later(StoreRequest::QueuePop { key: "q", block: true }));
            assert!(poll(&mut pop).is_pending());
        }
        let short = Some(Duration::from_nanos(1));
        let mut late =
            Box::pin(store.answer_later(StoreRequest::Wait { keys: &["k"], timeout: short }));
        while poll(&mut late).is_pending() {}
        drop(late);
        let state = store.state();
        assert!(state.waiting.is_empty() && state.watchers.is_empty());
    }
}
