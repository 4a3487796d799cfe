//! What ranks of other hosts have said of what they wait for long, on its way to the launcher that
//! says it for all: that of node 0. Knows nothing of when it is said.
//!
//! ```text
//!  polyrank/N/stalls     counts what was told in start N of the ranks
//!  polyrank/N/stalls/K   what ranks of node K have said, while they wait
//! ```

use std::sync::Arc;

use polyrank::stall_report::StallReport;
use polyrank::store::{Store, TcpStore};

use super::{Nodes, key};

/// What the launchers of one start of the ranks tell each other of stalls.
pub(crate) struct NodeStalls {
    store: Arc<TcpStore>,
    restart: u32,
    node_rank: u32,
    node_count: u32,
    /// How much had been told when it was last read, and what.
    heard: (i64, Vec<StallReport>),
}

impl Nodes {
    /// The way of stalls in one start of the ranks.
    pub(crate) fn stalls(&self, restart: u32, node_rank: u32) -> NodeStalls {
        let (store, node_count) = (self.store.clone(), self.count);
        NodeStalls { store, restart, node_rank, node_count, heard: (0, Vec::new()) }
    }
}

impl NodeStalls {
    /// Whether this node says it for all.
    pub(crate) fn speaks(&self) -> bool {
        self.node_rank == 0
    }

    /// Tells node 0 all that ranks of this node wait for.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn tell(&self, reports: &[StallReport]) -> polyrank::Result<()> {
        // Strings and numbers always have a form.
        let text = serde_json::to_vec(reports).unwrap_or_default();
        self.store.set(&self.key_of(self.node_rank), &text)?;
        self.store.add(&self.count(), 1).map(drop)
    }

    /// What ranks of the other nodes wait for.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn hear(&mut self) -> polyrank::Result<&[StallReport]> {
        // Looking makes no key.
        if self.store.check(&[&self.count()])? {
            let count = self.store.add(&self.count(), 0)?;
            if count != self.heard.0 {
                self.heard = (count, self.read()?);
            }
        }
        Ok(&self.heard.1)
    }

    fn read(&self) -> polyrank::Result<Vec<StallReport>> {
        let mut all = Vec::new();
        for node in (0..self.node_count).filter(|node| *node != self.node_rank) {
            let key = self.key_of(node);
            if self.store.check(&[&key])? {
                let text = self.store.get(&key)?;
                // What is no report is nobody's.
                all.extend(serde_json::from_slice::<Vec<_>>(&text).unwrap_or_default());
            }
        }
        Ok(all)
    }

    fn count(&self) -> String {
        key(self.restart, "stalls")
    }

    fn key_of(&self, node: u32) -> String {
        key(self.restart, &format!("stalls/{node}"))
    }
}
