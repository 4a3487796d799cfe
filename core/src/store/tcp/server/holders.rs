//! Which client of a server made which member keys, so that they go with it. Knows nothing of
//! what the keys stand for.

use std::collections::{HashMap, HashSet};

use super::waiters::ClientId;
use crate::store::member::scope_of;

/// Most member keys of one client. A process needs two for each default group at a time, and one
/// for each group that was not made out of another.
const MAX_KEYS: usize = 4096;

/// Who holds a member key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// The client of a connection.
    Connection(ClientId),
    /// The session with this number, whichever sockets it has.
    #[cfg_attr(not(feature = "websocket"), allow(dead_code, reason = "there are none"))]
    Session(u64),
}

/// All member keys that clients of a server made.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_key: HashMap<Vec<u8>, Vec<Holder>>,
    by_holder: HashMap<Holder, Vec<Vec<u8>>>,
    /// Sessions that have no socket now.
    away: HashSet<Holder>,
}

impl Holders {
    /// Notes that `holder` made `key`, if that is a member key; false if it has too many.
    pub(super) fn note(&mut self, holder: Holder, key: &[u8]) -> bool {
        if scope_of(key).is_none() {
            return true;
        }
        let keys = self.by_holder.entry(holder).or_default();
        if keys.iter().any(|known| known == key) {
            return true;
        }
        if keys.len() == MAX_KEYS {
            return false;
        }
        keys.push(key.to_vec());
        self.by_key.entry(key.to_vec()).or_default().push(holder);
        true
    }

    /// `key` was deleted.
    pub(super) fn forget(&mut self, key: &[u8]) {
        for holder in self.by_key.remove(key).unwrap_or_default() {
            if let Some(keys) = self.by_holder.get_mut(&holder) {
                keys.retain(|known| known != key);
                if keys.is_empty() {
                    self.by_holder.remove(&holder);
                }
            }
        }
    }

    /// `holder` is gone: the keys that nobody holds any more, the last one first.
    pub(super) fn release(&mut self, holder: Holder) -> Vec<Vec<u8>> {
        self.away.remove(&holder);
        let mut keys = self.by_holder.remove(&holder).unwrap_or_default();
        keys.retain(|key| {
            let Some(holders) = self.by_key.get_mut(key) else { return false };
            holders.retain(|other| *other != holder);
            let is_free = holders.is_empty();
            if is_free {
                self.by_key.remove(key);
            }
            is_free
        });
        keys.reverse();
        keys
    }

    /// Whether `holder` is away: it may come back, and keeps its keys until then.
    #[cfg(feature = "websocket")]
    pub(super) fn set_away(&mut self, holder: Holder, is_away: bool) {
        match is_away {
            true => self.away.insert(holder),
            false => self.away.remove(&holder),
        };
    }

    /// Whether all who hold `key` are away.
    pub(super) fn are_away(&self, key: &[u8]) -> bool {
        !self.away.is_empty()
            && self
                .by_key
                .get(key)
                .is_some_and(|holders| holders.iter().all(|holder| self.away.contains(holder)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::member::member_key;

    #[test]
    fn a_key_is_free_when_its_last_holder_is_gone() {
        let key = |scope: &str| member_key(scope, &"0".repeat(32)).into_bytes();
        let (one, two) = (Holder::Connection(1), Holder::Session(2));
        let mut holders = Holders::default();
        for (holder, scope) in [(one, "g"), (two, "g"), (one, "g"), (one, "g/0")] {
            assert!(holders.note(holder, &key(scope)));
        }
        assert!(holders.note(one, b"no member key"));
        assert_eq!(holders.release(one), [key("g/0")]);
        assert_eq!(holders.release(two), [key("g")]);
        assert!(holders.by_key.is_empty() && holders.by_holder.is_empty());
    }

    #[test]
    fn keys_that_were_deleted_are_nobodys_and_a_client_has_only_so_many() {
        let mut holders = Holders::default();
        let holder = Holder::Connection(1);
        let key = |number: usize| member_key("g", &format!("{number:032x}")).into_bytes();
        assert!((0..MAX_KEYS).all(|number| holders.note(holder, &key(number))));
        assert!(!holders.note(holder, &key(MAX_KEYS)) && holders.note(holder, &key(0)));
        (0..MAX_KEYS).for_each(|number| holders.forget(&key(number)));
        assert!(holders.by_key.is_empty() && holders.by_holder.is_empty());
        assert!(holders.release(holder).is_empty());
    }

    #[test]
    #[cfg(feature = "websocket")]
    fn a_session_without_a_socket_is_away() {
        let mut holders = Holders::default();
        let key = member_key("g", &"0".repeat(32)).into_bytes();
        holders.note(Holder::Session(1), &key);
        holders.set_away(Holder::Session(1), true);
        assert!(holders.are_away(&key));
        holders.note(Holder::Session(2), &key);
        assert!(!holders.are_away(&key));
        holders.release(Holder::Session(2));
        holders.set_away(Holder::Session(1), false);
        assert!(!holders.are_away(&key));
    }
}
