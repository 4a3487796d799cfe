//! A page cannot synchronise states, and says so to those that can. Knows no digests.

#[cfg(not(feature = "tcp"))]
use super::ProcessGroup;
#[cfg(not(feature = "tcp"))]
use crate::generated::error::{Error, Result};

/// Words of what ranks tell one another first, of which zeros say that a rank takes no part.
pub(super) const FORM_WORDS: usize = 7;

#[cfg(not(feature = "tcp"))]
impl ProcessGroup {
    /// Takes no part in a call of `sync_state`, and leaves nobody waiting.
    ///
    /// # Errors
    /// [`Error::Unsupported`], and those of an allgather.
    pub(crate) async fn refuse_state_sync(&self) -> Result<()> {
        let room = vec![vec![0_u64; FORM_WORDS]; self.size() as usize];
        self.all_gather_vecs(room, vec![0; FORM_WORDS], None).await?;
        let who = "a page".to_owned();
        Err(Error::Unsupported { who, operation: "sync_state".to_owned() })
    }
}
