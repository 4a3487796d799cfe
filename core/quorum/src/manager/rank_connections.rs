//! By which connection each rank of a replica asks its manager: with the connection, the rank has
//! left. Knows nothing of what they ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

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

    /// Waits until those of the ranks have ended, but for `own`; whether they have.
    pub(super) fn wait_for_end(&self, own: i64, limit: Duration) -> bool {
        let others: Vec<Connection> = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter(|(rank, _)| **rank != own).map(|(_, it)| it.clone()).collect()
        };
        if others.is_empty() {
            return true;
        }
        // Without one, nobody is waited for.
        let Ok(runtime) = Builder::new_current_thread().enable_time().build() else { return true };
        let all_ended = async {
            for connection in others {
                connection.ended().await;
            }
        };
        // The caller may run tasks of its own.
        std::thread::scope(|scope| {
            let waits = || runtime.block_on(async { timeout(limit, all_ended).await.is_ok() });
            scope.spawn(waits).join().unwrap_or(true)
        })
    }
}
