//! Agreement of the ranks that live, as MPI's `MPIX_Comm_agree`. Knows nothing of how members meet.
//!
//! Every rank gives its flag, and what comes of the flags of those that live is settled once
//! (`survivor_call.rs`). A rank that was taken for gone and comes late returns it, too, although
//! its own flag does not count.

use std::time::Duration;

use super::survivor_call::SurvivorCall;
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;

impl ProcessGroup {
    /// The bits that the flags of all ranks that live have in common: the same number on all of
    /// them, whatever they know of failures, and also in a group that is broken or revoked. All
    /// ranks that live call it, equally often.
    ///
    /// # Errors
    /// [`Error::RankFailed`] if the rank is gone that hosts the store: for a group that was
    /// reconfigured that of a member, otherwise the one in which it was made;
    /// [`Error::RendezvousTimeout`] naming ranks that live and did not come in time;
    /// [`Error::InvalidArgument`] if another rank calls something else. All ranks that come get the
    /// same.
    pub fn agree(&self, flag: i64, timeout: Option<Duration>) -> Result<i64> {
        block_on(self.agree_async(flag, timeout))
    }

    /// As [`ProcessGroup::agree`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::agree`].
    pub async fn agree_async(&self, flag: i64, timeout: Option<Duration>) -> Result<i64> {
        self.require_members("agree")?;
        let call = SurvivorCall {
            group: self,
            name: "agree",
            what: "agree".to_owned(),
            ranks: (0..self.size()).collect(),
            goes_on: true,
            elsewhere: None,
            timeout: timeout.unwrap_or_else(|| self.timeout()),
        };
        let common = |flags: &[Vec<u8>]| {
            let bits = flags.iter().map(|flag| number(flag).unwrap_or_default());
            bits.fold(-1, |all, flag| all & flag).to_string().into_bytes()
        };
        let (agreed, _) = call.run(flag.to_string().as_bytes(), common).await?;
        number(&agreed)
    }
}

fn number(text: &[u8]) -> Result<i64> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| Error::Rendezvous {
        message: format!("the store has '{text}' where a rank's flag was expected"),
    })
}
