//! Who waits for which keys. Pure: knows clients by number, and nothing of values or sockets.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// A client, by number; numbers are never used twice.
pub(super) type ClientId = u64;

/// What a client waits for.
#[derive(Debug, Default)]
struct Wait {
    missing: HashSet<Rc<[u8]>>,
    /// How often the end of the wait must be told: clients that send WAIT twice want two answers.
    replies: usize,
    /// About what `missing` takes of memory.
    bytes: usize,
}

/// All waits of all clients.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The clients that wait for a key, oldest first.
    by_key: HashMap<Rc<[u8]>, VecDeque<ClientId>>,
    waits: HashMap<ClientId, Wait>,
}

/// A client whose wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WokenClient {
    /// The client.
    pub(super) client: ClientId,
    /// How many answers it expects.
    pub(super) replies: usize,
}

impl Waiters {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether `client` waits.
    #[cfg(feature = "websocket")]
    pub(super) fn is_waiting(&self, client: ClientId) -> bool {
        self.waits.contains_key(&client)
    }

    /// Makes `client` wait for all of `missing`, beside what it waits for already.
    pub(super) fn wait<'a>(&mut self, client: ClientId, missing: impl Iterator<Item = &'a [u8]>) {
        let wait = self.waits.entry(client).or_default();
        wait.replies += 1;
        for key in missing {
            if wait.missing.contains(key) {
                continue;
            }
            let key = match self.by_key.get_key_value(key) {
                Some((key, _)) => key.clone(),
                None => Rc::from(key),
            };
            wait.bytes += key_bytes(&key);
            wait.missing.insert(key.clone());
            self.by_key.entry(key).or_default().push_back(client);
        }
    }

    /// Forgets what `client` waits for.
    pub(super) fn cancel(&mut self, client: ClientId) {
        let Some(wait) = self.waits.remove(&client) else { return };
        for key in wait.missing {
            self.forget(&key, client);
        }
    }

    /// Bytes that the wait of `client` keeps in memory.
    pub(super) fn bytes(&self, client: ClientId) -> usize {
        self.waits.get(&client).map_or(0, |wait| wait.bytes)
    }

    /// `key` has a value now: everyone who waits for it has one key less to wait for.
    /// Those are woken that have none left, `queued` keys (elements are there) not counted.
    pub(super) fn written(
        &mut self,
        key: &[u8],
        queued: impl Fn(&[u8]) -> bool,
    ) -> Vec<WokenClient> {
        let Some((key, clients)) = self.by_key.remove_entry(key) else { return Vec::new() };
        let mut woken = Vec::new();
        for client in clients {
            let Some(wait) = self.waits.get_mut(&client) else { continue };
            if wait.missing.remove(&key) {
                wait.bytes -= key_bytes(&key);
            }
            if wait.missing.iter().all(|key| queued(key)) {
                woken.push(WokenClient { client, replies: wait.replies });
                self.cancel(client);
            }
        }
        woken
    }

    /// The queue `key` got an element: wakes the oldest client that waits for nothing else.
    pub(super) fn pushed(&mut self, key: &[u8]) -> Option<WokenClient> {
        let clients = self.by_key.get(key)?;
        let waits = &self.waits;
        let woken = clients.iter().find_map(|client| {
            let wait = waits.get(client)?;
            let only = wait.missing.len() == 1;
            only.then_some(WokenClient { client: *client, replies: wait.replies })
        })?;
        self.cancel(woken.client);
        Some(woken)
    }

    fn forget(&mut self, key: &Rc<[u8]>, client: ClientId) {
        if let Some(clients) = self.by_key.get_mut(key) {
            clients.retain(|&other| other != client);
            if clients.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

/// About what a key takes that a client waits for.
fn key_bytes(key: &[u8]) -> usize {
    key.len() + 2 * size_of::<Rc<[u8]>>() + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &[u8] = b"a";
    const B: &[u8] = b"b";

    fn woken(client: ClientId) -> WokenClient {
        WokenClient { client, replies: 1 }
    }

    #[test]
    fn a_key_listed_twice_counts_once_and_two_waits_get_two_answers() {
        let mut waiters = Waiters::default();
        waiters.wait(1, [A, A].into_iter());
        waiters.wait(1, [B].into_iter());
        assert_eq!(waiters.written(A, |_| false), []);
        assert_eq!(waiters.written(B, |_| false), [WokenClient { client: 1, replies: 2 }]);
        assert!(waiters.is_empty() && waiters.by_key.is_empty());
    }

    #[test]
    fn a_push_wakes_the_oldest_that_waits_for_nothing_else() {
        let mut waiters = Waiters::default();
        waiters.wait(1, [A, B].into_iter());
        waiters.wait(2, [A].into_iter());
        waiters.wait(3, [A].into_iter());
        assert_eq!(waiters.pushed(A), Some(woken(2)));
        assert_eq!(waiters.pushed(A), Some(woken(3)));
        assert_eq!(waiters.pushed(A), None);
        // Client 1 counts the elements that are there when its other key comes.
        assert_eq!(waiters.written(B, |key| key == A), [woken(1)]);
        assert!(waiters.is_empty() && waiters.by_key.is_empty());
    }

    #[test]
    fn cancelling_leaves_nothing_behind() {
        let mut waiters = Waiters::default();
        waiters.wait(1, [A, B].into_iter());
        waiters.wait(2, [B].into_iter());
        waiters.cancel(1);
        waiters.cancel(7);
        assert_eq!(waiters.written(A, |_| false), []);
        assert_eq!(waiters.written(B, |_| false), [woken(2)]);
        assert!(waiters.is_empty() && waiters.by_key.is_empty());
    }
}
