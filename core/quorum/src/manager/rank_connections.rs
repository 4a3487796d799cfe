//! By which connection each rank of a replica asks its manager: with the connection, the rank has
//! left. Knows nothing of what they ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::serve::Connection;

/// Those of the ranks that have asked for a quorum, by rank.
#[derive(Debug, Default)]
pub(super) struct RankConnections(Mutex<BTreeMap<i64, Connection>>);

impl RankConnections {
    /// A rank has asked by this connection.
    pub(super) fn note(&self, rank: i64, connection: Option<Connection>) {
        let Some(connection) = connection else { return };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(rank, connection);
    }

    /// Whether a rank is there besides `own`.
    pub(super) fn has_others(&self, own: i64) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|(rank, connection)| *rank != own && connection.is_open())
    }
}
