//! By which connection each replica was heard of last. Knows no network.

use std::collections::{BTreeMap, BTreeSet};

/// Most replicas whose heartbeats come by one connection; of more it is not known when they end.
/// Managers have one each.
const MAX_REPLICAS: usize = 64;

/// The connections that are there, by number, with the replicas that were heard of by each last.
#[derive(Debug, Default)]
pub(super) struct Connections(BTreeMap<u64, BTreeSet<String>>);

impl Connections {
    /// A replica was heard of by this connection; whether it is the first one of it.
    pub(super) fn note(&mut self, replica_id: &str, number: u64) -> bool {
        let is_new = !self.0.contains_key(&number);
        let replicas = self.0.entry(number).or_default();
        if replicas.contains(replica_id) {
            return is_new;
        }
        if replicas.len() < MAX_REPLICAS {
            replicas.insert(replica_id.to_owned());
        }
        // It has come by another one before.
        for (_, others) in self.0.iter_mut().filter(|(other, _)| **other != number) {
            others.remove(replica_id);
        }
        is_new
    }

    /// The connection has ended: who was heard of by it last.
    pub(super) fn end(&mut self, number: u64) -> BTreeSet<String> {
        self.0.remove(&number).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_with_the_connection_by_which_it_came_last() {
        let mut connections = Connections::default();
        assert!(connections.note("a", 1));
        assert!(!connections.note("a", 1) && !connections.note("b", 1));
        assert!(connections.note("a", 2));
        assert_eq!(connections.end(1), BTreeSet::from(["b".to_owned()]));
        assert!(!connections.note("c", 2));
        assert_eq!(connections.end(2).len(), 2);
        assert!(connections.end(2).is_empty() && connections.0.is_empty());
        for number in 0..1000 {
            connections.note(&number.to_string(), 3);
        }
        assert_eq!(connections.end(3).len(), MAX_REPLICAS);
    }
}
