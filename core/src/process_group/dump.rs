//! What the groups of this job have called lately, in a file. Knows nothing of what is in it.

use std::path::{Path, PathBuf};

use super::ProcessGroup;
use crate::blocking::block_on;
use crate::generated::error::Result;

impl ProcessGroup {
    /// Writes to a file what all ranks of the job have called lately, in all their groups, and what
    /// of that is not done: JSON, in the layout of PyTorch's flight recorder, which `polyrank
    /// trace` explains. Without a `path` that is `polyrank_trace.json` in the folder that
    /// `POLYRANK_TRACE_DIR` names, or in the present one. Ranks that have not answered after 3 s
    /// are listed as missing; they answer also while they wait or compute. The path.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the file cannot be written.
    pub fn dump(&self, path: Option<&Path>) -> Result<PathBuf> {
        block_on(self.dump_async(path.map(Path::to_path_buf)))
    }

    /// As [`ProcessGroup::dump`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::dump`].
    pub async fn dump_async(&self, path: Option<PathBuf>) -> Result<PathBuf> {
        self.unless_inherited()?;
        self.inner.recorder.gather(path).await
    }
}
