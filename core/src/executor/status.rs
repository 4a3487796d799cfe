//! Questions to a group's executor that move nothing, for every kind of driver. Knows nothing of
//! who makes progress.

use super::{Driver, StallReport};
use crate::clock::Instant;
#[cfg(feature = "tcp")]
use crate::recorder::Waits;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

impl Driver {
    /// How many ranks have left the group.
    pub fn departed(&self) -> usize {
        self.lock().departed()
    }

    /// Whether it is known that `peer` has left the group cleanly.
    pub fn has_left(&self, peer: Rank) -> bool {
        self.lock().has_left(peer)
    }

    /// Whether it is known that `peer` has ended without leaving.
    pub fn has_died(&self, peer: Rank) -> bool {
        self.lock().has_died(peer)
    }

    /// The process of `peer`, as [`Executor::process_of`](super::Executor::process_of).
    pub fn process_of(&self, peer: Rank) -> Option<u32> {
        self.lock().process_of(peer)
    }

    /// The number of the last collective that this rank issued.
    pub fn issued(&self) -> u64 {
        self.lock().issued()
    }

    /// Whether other ranks may still find that they disagree with this rank on its last operation.
    pub fn is_unconfirmed(&self) -> bool {
        self.lock().is_unconfirmed()
    }

    /// For whom operations wait, and have waited.
    #[cfg(feature = "tcp")]
    pub fn waits(&self) -> Waits {
        self.lock().waits(Instant::now())
    }

    /// Why the group failed or was left, if it was.
    pub fn broken(&self) -> Option<Abort> {
        self.lock().broken().cloned()
    }

    /// Why the group failed or was left, or will fail once what may still end well has ended.
    pub fn failure(&self) -> Option<Abort> {
        self.lock().failure().cloned()
    }

    /// What operations that need everybody would end with, if a rank has left since the group gets
    /// other members.
    pub fn retirement(&self) -> Option<Abort> {
        self.lock().retirement()
    }

    /// Whether the group failed or was left, so that nothing can be started any more.
    pub fn is_broken(&self) -> bool {
        self.lock().broken().is_some()
    }

    /// The oldest operation in flight, and how long it has not moved.
    pub fn stalled(&self) -> Option<StallReport> {
        self.lock().stalled(Instant::now())
    }

    /// Numbers and fingerprints of the operations in flight, and of those that ended last.
    pub fn history(&self) -> Vec<(u64, Fingerprint)> {
        self.lock().history()
    }

    /// Notes ranks that are known not to have joined an operation, for the error at its deadline.
    pub fn note_elsewhere(&self, sequence: u64, ranks: Vec<Rank>) {
        self.lock().note_elsewhere(sequence, ranks);
    }
}
