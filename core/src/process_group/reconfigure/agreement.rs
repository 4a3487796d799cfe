//! Agreement of the ranks that live, as MPI's `MPIX_Comm_agree`. Knows nothing of how members meet.
//!
//! Every rank writes its flag into one store, and waits until the others have, or are known to be
//! gone. Whoever has seen that first writes what comes of the flags that are there, and that is
//! what all return: it is written once. A rank that was taken for gone and comes late returns it,
//! too, although its own flag does not count.

use std::time::Duration;

use super::survivors::Refuge;
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::ProcessGroup;
use crate::rendezvous;

/// Where the result is written.
const DECISION: &str = "decision";

impl ProcessGroup {
    /// The bits that the flags of all ranks that live have in common: the same number on all of
    /// them, whatever they know of failures, and also in a group that is broken or revoked. All
    /// ranks that live call it, equally often.
    ///
    /// # Errors
    /// [`Error::RankFailed`] if the host of the store is gone: rank 0 of a group that was
    /// reconfigured, for others whoever hosts the store in which it was made;
    /// [`Error::RendezvousTimeout`] naming ranks that live and did not come in time.
    pub fn agree(&self, flag: i64, timeout: Option<Duration>) -> Result<i64> {
        block_on(self.agree_async(flag, timeout))
    }

    /// As [`ProcessGroup::agree`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::agree`].
    pub async fn agree_async(&self, flag: i64, timeout: Option<Duration>) -> Result<i64> {
        self.require_members("agree")?;
        let timeout = timeout.unwrap_or_else(|| self.timeout());
        let began = Instant::now();
        let Refuge { store, .. } = self.refuge("agree", 0, timeout).await?;
        let everyone: Vec<u32> = (0..self.size()).collect();
        let key = |rank: &u32| format!("{rank}");
        store.set_async(&key(&self.rank()), flag.to_string().as_bytes()).await?;
        loop {
            let late = !timeout.is_zero() && began.elapsed() >= timeout;
            let missing = self.await_keys(&*store, &everyone, key).await?;
            if store.check_async(&[DECISION]).await? {
                return number(&store.get_async(DECISION).await?);
            }
            let mut awaited = Vec::new();
            for &rank in &missing {
                if !self.is_known_gone(rank).await {
                    awaited.push(rank);
                }
            }
            if let Some(&first) = awaited.first() {
                if !late {
                    continue;
                }
                let message = format!(
                    "agree of group '{}': ranks {awaited:?} live and did not come within {} ms",
                    self.group_name(),
                    timeout.as_millis()
                );
                return Err(rendezvous::timed_out(first, awaited, message));
            }
            let mut common = -1;
            for rank in everyone.iter().filter(|rank| !missing.contains(rank)) {
                common &= number(&store.get_async(&key(rank)).await?)?;
            }
            let ours = common.to_string().into_bytes();
            return number(&store.compare_set_async(DECISION, b"", &ours).await?);
        }
    }
}

fn number(text: &[u8]) -> Result<i64> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| Error::Rendezvous {
        message: format!("the store has '{text}' where a rank's flag was expected"),
    })
}
