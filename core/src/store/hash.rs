//! A store within one process, for ranks that are threads. Knows nothing of sockets or files.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::deadline::{Deadline, SLICE};
use super::table::{Refusal, Table};
use super::{Store, count_to_barrier, equal_lengths, expired, from_millis, to_millis};
use crate::{Error, Result};

/// A store within one process. Clones share their data.
#[derive(Debug)]
pub struct HashStore {
    shared: Arc<Shared>,
    timeout_ms: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    table: Table,
    /// Tickets of the callers that wait to pop from a queue, oldest first: the n-th of them may
    /// have the n-th element.
    waiting: HashMap<String, VecDeque<u64>>,
    next_ticket: u64,
}

impl HashStore {
    /// An empty store with the default timeout.
    pub fn new() -> Self {
        let state =
            State { table: Table::new(usize::MAX), waiting: HashMap::new(), next_ticket: 0 };
        let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
        Self {
            shared: Arc::new(shared),
            timeout_ms: AtomicU64::new(to_millis(super::DEFAULT_TIMEOUT)),
        }
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
        self.shared.changed.notify_all();
        changed.map_err(|refusal| super::refused(refusal, key))
    }

    /// Waits until `ready` gives something.
    fn wait_until<T>(
        &self,
        (operation, keys): (&str, &[&str]),
        timeout: Duration,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T> {
        let mut state = self.state();
        // The clock is not read when there is nothing to wait for.
        let mut deadline = None;
        loop {
            if let Some(done) = ready(&mut state) {
                return Ok(done);
            }
            let deadline = deadline.get_or_insert_with(|| Deadline::after(timeout));
            let slice =
                deadline.slice(SLICE).map_err(|why| expired(why, operation, keys, deadline))?;
            let waited = self.shared.changed.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pop_in_turn(&self, key: &str) -> Result<Vec<u8>> {
        let ticket = {
            let mut state = self.state();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.entry(key.to_owned()).or_default().push_back(ticket);
            ticket
        };
        let popped = self.wait_until(("wait", &[key]), self.timeout(), |state| {
            let turn = state.waiting.get(key)?.iter().position(|&other| other == ticket)?;
            if turn < state.table.queue_len(key.as_bytes()) {
                state.table.pop(key.as_bytes())
            } else {
                None
            }
        });
        let mut state = self.state();
        if let Some(tickets) = state.waiting.get_mut(key) {
            tickets.retain(|&other| other != ticket);
            if tickets.is_empty() {
                state.waiting.remove(key);
            }
        }
        drop(state);
        // Whoever stood behind this caller has moved up.
        self.shared.changed.notify_all();
        Ok(popped?.bytes().to_vec())
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
        self.wait_until(("wait", &[key]), self.timeout(), |state| {
            state.table.get(key.as_bytes()).map(|value| value.bytes().to_vec())
        })
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
        self.wait_until(("wait", keys), timeout.unwrap_or_else(|| self.timeout()), |state| {
            keys.iter().all(|key| state.table.has(key.as_bytes())).then_some(())
        })
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.wait_until(("wait", keys), self.timeout(), |state| {
            let value = |key: &&str| Some(state.table.get(key.as_bytes())?.bytes().to_vec());
            keys.iter().map(value).collect()
        })
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
            return self.pop_in_turn(key);
        }
        let popped = self.state().table.pop(key.as_bytes());
        popped.map(|value| value.bytes().to_vec()).ok_or(Error::QueueEmpty)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        Ok(self.state().table.queue_len(key.as_bytes()) as i64)
    }

    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
        count_to_barrier(self, key, world_size, timeout)
    }

    fn has_extended_api(&self) -> bool {
        true
    }

    fn timeout(&self) -> Duration {
        from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(to_millis(timeout), Ordering::Relaxed);
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self {
            shared: self.shared.clone(),
            timeout_ms: AtomicU64::new(self.timeout_ms.load(Ordering::Relaxed)),
        }))
    }
}
