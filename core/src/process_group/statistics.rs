//! What a group has called, counted. Knows nothing of how.

use super::ProcessGroup;
use crate::generated::error::Result;
use crate::recorder::ProcessGroupStats;

impl ProcessGroup {
    /// What this rank has called in this group since it was made: of each method how often, how
    /// many bytes, how long that took and at what bandwidth; and for whom it has waited, of the
    /// present members. Always counted.
    ///
    /// All is exact but durations: of operations that are done when their call returns, one in 64
    /// is timed after the first thousand of the group, and counts as 64; and quantiles are known to
    /// some percent. Who is waited for is known of the backends `tcp` and `websocket`: each moment
    /// in which an operation here could not go on counts for the rank whose data ended that, once
    /// however many operations wait for it, and also while the program computes meanwhile. Waits
    /// of calls that do not go to sleep do not count, as most of small operations do not on one
    /// host.
    ///
    /// # Errors
    /// In a forked child, whose groups are its parent's.
    pub fn stats(&self) -> Result<ProcessGroupStats> {
        self.unless_inherited()?;
        Ok(self.inner.recorder.stats())
    }
}
