//! The comparison at shutdown. Ranks may have diverged in their last operations without noticing: a
//! root finishes before the others, and an operation that only one rank calls completes nowhere
//! else. So each leaving rank publishes what it ran through the store and compares. Knows no
//! transport.
//!
//! Keys of the group's store, all under the backend's name: `leave/first`, what the first rank to
//! arrive ran; `leave/count`, how many have compared with it; `leave/verdict`, the result.
//!
//! A rank that leaves a group while it still has others waits for nobody: it reads the verdict
//! when it leaves the last one.

use std::sync::Arc;
use std::time::Duration;

use super::Leaving;
use super::inspect::{NumberedFingerprint, decode, encode, first_difference};
use crate::clock::Instant;
use crate::completion::error_of;
use crate::generated::error::{Error, Result};
use crate::store::Store;
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::Fingerprint;

/// Longest wait for ranks that may disagree with this one.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// The wait when nothing suggests a disagreement: ranks that leave together arrive within it.
const CONFIRMED_WAIT: Duration = Duration::from_millis(250);
/// How often it checks whether the group broke.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The verdict where all ran the same.
const AGREED: &[u8] = b"agreed";

/// The deadline of a rank that leaves its last group, for the comparisons of all its groups.
pub(crate) fn deadline() -> Instant {
    Instant::now() + MAX_WAIT
}

/// The executor of a rank that is leaving.
pub(super) trait ShutdownDriver: Sync {
    /// Why the group failed, if it did.
    fn broken(&self) -> Option<Abort>;
    /// Breaks the group for a reason that this rank found.
    fn break_with(&self, abort: Abort);
    /// Breaks the group for a reason that another rank has published to all.
    fn break_as_told(&self, abort: Abort);
    /// The number of the last collective that was issued.
    fn issued(&self) -> u64;
    /// The last collectives.
    fn history(&self) -> Vec<NumberedFingerprint>;
    /// Whether the others may yet find that they disagree with this rank on its last operation.
    fn is_unconfirmed(&self) -> bool;
    /// How many ranks are known to have left the group.
    fn departed(&self) -> usize;
    /// Makes progress on pending transfers: other ranks must not wait while this one polls the
    /// store.
    fn advance(&self);
}

/// One rank's shutdown of one group.
pub(super) struct Departure<'a> {
    pub(super) driver: &'a dyn ShutdownDriver,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: &'static str,
    pub(super) group: &'a str,
    pub(super) rank: u32,
    pub(super) size: u32,
}

/// A comparison without a verdict yet, of a group that this rank left before others did.
#[derive(Clone, Debug)]
pub struct OpenComparison {
    backend: &'static str,
    group: String,
    /// Whether others may disagree with this rank on its last operation.
    may_disagree: bool,
}

/// What a rank ran, as it publishes it.
struct Record {
    rank: u32,
    /// The number of its last operation.
    last: u64,
    /// Its last operations.
    history: Vec<NumberedFingerprint>,
}

impl Departure<'_> {
    /// Compares; a disagreement breaks the group. Returns the comparison if it is still open,
    /// because others have not arrived.
    pub(super) async fn compare(&self, leaving: Leaving) -> Option<OpenComparison> {
        if self.size == 1 || leaving.limit.is_zero() {
            return None;
        }
        let compared = match self.driver.broken() {
            Some(abort) if abort.is_disagreement() => {
                self.publish_verdict(&abort).await.map(|()| None)
            }
            // There is nothing left to compare.
            Some(_) => Ok(None),
            None => self.exchange_records(leaving.compare_until).await,
        };
        compared.unwrap_or_else(|error| {
            // Without a store there is nothing to compare with.
            tracing::debug!(%error, "cannot compare operations through the store");
            None
        })
    }

    /// Publishes why the group broke, for ranks that left before.
    async fn publish_verdict(&self, abort: &Abort) -> Result<()> {
        let verdict = key(self.backend, "verdict");
        self.store.compare_set_async(&verdict, b"", &abort.encode()).await.map(drop)
    }

    /// Publishes or compares this rank's record, then waits for the verdict at most until `limit`.
    async fn exchange_records(&self, limit: Option<Instant>) -> Result<Option<OpenComparison>> {
        let history = self.driver.history();
        let own = Record { rank: self.rank, last: self.driver.issued(), history };
        let first = key(self.backend, "first");
        let first = self.store.compare_set_async(&first, b"", &own.encode()).await?;
        if let Some(abort) = Record::decode(&first).and_then(|first| own.difference(&first)) {
            self.publish_verdict(&abort).await?;
            self.driver.break_with(abort);
            return Ok(None);
        }
        if self.store.add_async(&key(self.backend, "count"), 1).await? == i64::from(self.size) {
            let verdict = key(self.backend, "verdict");
            self.store.compare_set_async(&verdict, b"", AGREED).await?;
        }
        let open = OpenComparison {
            backend: self.backend,
            group: self.group.to_owned(),
            may_disagree: self.driver.is_unconfirmed(),
        };
        let now = Instant::now();
        let deadline = limit.map_or(now, |limit| open.wait_deadline(now, limit));
        Ok(self.await_verdict(&open, deadline).await?.then_some(open))
    }

    /// Waits until there is a verdict or waiting is pointless. Returns whether the comparison is
    /// still open.
    async fn await_verdict(&self, open: &OpenComparison, deadline: Instant) -> Result<bool> {
        let verdict = key(self.backend, "verdict");
        loop {
            if let Some(found) = open.verdict(&*self.store).await? {
                if let Some(abort) = Abort::decode(&found) {
                    self.driver.break_as_told(abort);
                }
                return Ok(false);
            }
            self.driver.advance();
            if self.driver.broken().is_some() {
                return Ok(false);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_incomplete().await? {
                return Ok(true);
            }
            match self.store.wait_async(&[&verdict], Some(POLL_INTERVAL.min(left))).await {
                Err(Error::StoreTimeout { .. }) => {}
                other => other?,
            }
        }
    }

    /// Whether a rank has left without publishing what it ran, so that there will be no verdict.
    async fn is_incomplete(&self) -> Result<bool> {
        let departed = self.driver.departed() as i64;
        if departed == 0 {
            return Ok(false);
        }
        let others = self.store.add_async(&key(self.backend, "count"), 0).await? - 1;
        Ok(departed > others)
    }
}

impl OpenComparison {
    /// Until when it is worth waiting for others, for a rank that started to wait at `started` and
    /// may do so until `limit`.
    pub(crate) fn wait_deadline(&self, started: Instant, limit: Instant) -> Instant {
        if self.may_disagree { limit } else { limit.min(started + CONFIRMED_WAIT) }
    }

    /// This rank's outcome, once there is a verdict. `store` is that of the group.
    pub(crate) async fn outcome(&self, store: &dyn Store) -> Result<Option<Result<()>>> {
        let Some(found) = self.verdict(store).await? else { return Ok(None) };
        let abort = Abort::decode(&found).filter(Abort::is_disagreement);
        Ok(Some(abort.map_or(Ok(()), |abort| Err(error_of(&abort, &self.group, "shutdown", 0)))))
    }

    /// Waits briefly for the verdict.
    pub(crate) async fn await_verdict(&self, store: &dyn Store) -> Result<()> {
        match store.wait_async(&[&key(self.backend, "verdict")], Some(POLL_INTERVAL)).await {
            Err(Error::StoreTimeout { .. }) => Ok(()),
            waited => waited,
        }
    }

    async fn verdict(&self, store: &dyn Store) -> Result<Option<Vec<u8>>> {
        let verdict = key(self.backend, "verdict");
        if !store.check_async(&[&verdict]).await? {
            return Ok(None);
        }
        store.get_async(&verdict).await.map(Some)
    }
}

fn key(backend: &str, what: &str) -> String {
    format!("{backend}/leave/{what}")
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let (rank, last) = (self.rank.to_le_bytes(), self.last.to_le_bytes());
        [&rank[..], &last[..], &encode(&self.history)].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let (rank, bytes) = bytes.split_first_chunk()?;
        let (last, bytes) = bytes.split_first_chunk()?;
        let (rank, last) = (u32::from_le_bytes(*rank), u64::from_le_bytes(*last));
        Some(Record { rank, last, history: decode(bytes) })
    }

    /// The first operation on which the two ranks disagree, or that one of them never reached.
    fn difference(&self, other: &Record) -> Option<Abort> {
        let differs = first_difference(self.rank, &self.history, other.rank, &other.history);
        differs.or_else(|| {
            let (ahead, behind) =
                if self.last > other.last { (self, other) } else { (other, self) };
            let missed = ahead.history.iter().filter(|(sequence, _)| *sequence > behind.last);
            let &(sequence, fingerprint) = missed.min_by_key(|(sequence, _)| *sequence)?;
            let side = |rank, fingerprint| Side { rank, fingerprint, message_bytes: None };
            Some(Abort::Mismatch {
                sequence,
                one: side(ahead.rank, fingerprint),
                other: side(behind.rank, Fingerprint::NOTHING),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn record(rank: u32, roots: &[u32]) -> Record {
        let history = (1..).zip(roots.iter());
        let history = history.map(|(n, &root)| (n, Fingerprint { root, ..Fingerprint::default() }));
        let history: Vec<_> = history.collect();
        Record { rank, last: roots.len() as u64, history }
    }

    #[test]
    fn ranks_disagree_on_what_differs_and_on_what_one_of_them_never_ran() {
        let difference = |ours: &[u32], theirs: &[u32]| {
            let theirs = Record::decode(&record(1, theirs).encode())?;
            match record(0, ours).difference(&theirs)? {
                Abort::Mismatch { sequence, one, other } => Some((sequence, one.rank, other)),
                _ => None,
            }
        };
        assert!(difference(&[0, 1], &[0, 1]).is_none());
        assert!(difference(&[], &[]).is_none());
        let differs = difference(&[0, 1, 0], &[0, 0]);
        assert!(differs.is_some_and(|(sequence, rank, _)| (sequence, rank) == (2, 0)));
        for (ours, theirs, ahead) in [(&[0, 0, 0][..], &[0][..], 0), (&[0], &[0, 0], 1)] {
            let (sequence, rank, other) = difference(ours, theirs).expect("one is ahead");
            assert_eq!((sequence, rank, other.fingerprint), (2, ahead, Fingerprint::NOTHING));
        }
    }
}
