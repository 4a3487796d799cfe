//! The last comparison. A rank whose last operation ended without all others, as that of a root
//! does, may leave before these find that they disagree with it. So ranks that leave after such an
//! operation wait for one another, and compare through the store what they ran. Knows no
//! transport.
//!
//! Keys of the group's store, all under the backend's name: `leave/first`, what the first rank to
//! come ran; `leave/count`, how many have compared with it; `leave/verdict`, what came of it.

use std::sync::Arc;
use std::time::Duration;

use super::inspect::{NumberedFingerprint, decode, encode, first_difference};
use crate::clock::Instant;
use crate::completion::Completion;
use crate::executor::Driver;
use crate::generated::error::{Error, Result};
use crate::store::Store;
use crate::wire::abort::Abort;

/// How long a rank waits for the others at most: they may go on without it.
const LIMIT: Duration = Duration::from_secs(3);
/// How long it waits for the store until it looks again whether the group broke.
const SLICE: Duration = Duration::from_millis(20);
/// The verdict where all ran the same.
const AGREED: &[u8] = b"agreed";

/// A rank that leaves.
pub(super) struct Departure<'a> {
    pub(super) driver: &'a Driver,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: &'a str,
    pub(super) rank: u32,
    pub(super) size: u32,
}

impl Departure<'_> {
    /// Compares, if need be; a disagreement breaks the group. Takes no longer than `limit`.
    pub(super) async fn compare(&self, limit: Duration) {
        let ours = self.driver.unconfirmed();
        if ours.is_empty() || self.size == 1 || limit.is_zero() {
            return;
        }
        let until = Instant::now() + limit.min(LIMIT);
        if let Err(error) = self.meet(&ours, until).await {
            // Without a store there is nothing to compare with.
            tracing::debug!(%error, "cannot compare operations through the store");
        }
    }

    async fn meet(&self, ours: &[NumberedFingerprint], until: Instant) -> Result<()> {
        let verdict = self.key("verdict");
        let own = [&self.rank.to_le_bytes()[..], &encode(ours)].concat();
        let first = self.store.compare_set_async(&self.key("first"), b"", &own).await?;
        if let Some((other, theirs)) = first.split_first_chunk::<4>()
            && let other = u32::from_le_bytes(*other)
            && let Some(abort) = first_difference(self.rank, ours, other, &decode(theirs))
        {
            self.store.compare_set_async(&verdict, b"", &abort.encode()).await?;
            self.driver.break_with(abort);
            return Ok(());
        }
        if self.store.add_async(&self.key("count"), 1).await? == i64::from(self.size) {
            self.store.compare_set_async(&verdict, b"", AGREED).await?;
        }
        self.obey(&verdict, until).await
    }

    /// Waits for the verdict, or for a reason not to.
    async fn obey(&self, verdict: &str, until: Instant) -> Result<()> {
        loop {
            if self.store.check_async(&[verdict]).await? {
                let found = self.store.get_async(verdict).await?;
                if let Some(abort) = Abort::decode(&found) {
                    self.driver.break_as_told(abort);
                }
                return Ok(());
            }
            // What the others send is not to wait for the store.
            self.driver.wait(&Completion::new(), Some(Instant::now()));
            let is_over = self.driver.is_broken() || self.driver.has_departed();
            let left = until.saturating_duration_since(Instant::now());
            if is_over || left.is_zero() {
                return Ok(());
            }
            match self.store.wait_async(&[verdict], Some(SLICE.min(left))).await {
                Err(Error::StoreTimeout { .. }) => {}
                other => other?,
            }
        }
    }

    fn key(&self, what: &str) -> String {
        format!("{}/leave/{what}", self.backend)
    }
}
