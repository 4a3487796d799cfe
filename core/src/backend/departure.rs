//! The last comparison. Ranks may disagree on their last operations without having found it: that
//! of a root ends without all others, and one that others never call ends on nobody else. So each
//! rank that leaves says through the store what it ran, and compares. Knows no transport.
//!
//! Keys of the group's store, all under the backend's name: `leave/first`, what the first rank to
//! come ran; `leave/count`, how many have compared with it; `leave/verdict`, what came of it.
//!
//! A rank that leaves a group early, with others still to be left, waits for nobody: it looks at
//! the verdict again when it leaves the last one.

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

/// How long a rank waits for the others at most that may disagree with it: they may go on without
/// it.
const LIMIT: Duration = Duration::from_secs(3);
/// The same, where nothing says that they may: those that leave with it have come by then.
const SOON: Duration = Duration::from_millis(250);
/// How long it waits for the store until it looks again whether the group broke.
const SLICE: Duration = Duration::from_millis(20);
/// The verdict where all ran the same.
const AGREED: &[u8] = b"agreed";

/// Until when a rank that leaves its last group waits for others, in all its groups together.
pub(crate) fn deadline() -> Instant {
    Instant::now() + LIMIT
}

/// What runs the operations of a rank that leaves.
pub(super) trait DepartingRank: Sync {
    /// Why the group failed, if it did.
    fn broken(&self) -> Option<Abort>;
    /// Breaks the group for a reason that this rank found.
    fn break_with(&self, abort: Abort);
    /// Breaks the group for a reason that another rank has told all.
    fn break_as_told(&self, abort: Abort);
    /// The number of the last collective that was issued.
    fn issued(&self) -> u64;
    /// The last collectives.
    fn history(&self) -> Vec<NumberedFingerprint>;
    /// Whether the others may yet find that they disagree with this rank on its last operation.
    fn is_unconfirmed(&self) -> bool;
    /// How many ranks are known to have left the group.
    fn departed(&self) -> usize;
    /// Moves what can be moved: what the others send is not to wait for the store.
    fn advance(&self);
}

/// A rank that leaves.
pub(super) struct Departure<'a> {
    pub(super) driver: &'a dyn DepartingRank,
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: &'static str,
    pub(super) group: &'a str,
    pub(super) rank: u32,
    pub(super) size: u32,
}

/// What is still to be found out about a group that this rank left before all others did.
#[derive(Clone, Debug)]
pub struct OpenComparison {
    backend: &'static str,
    group: String,
    /// Whether others may disagree with this rank on its last operation.
    is_doubtful: bool,
}

/// What a rank ran.
struct Record {
    rank: u32,
    /// The number of its last operation.
    last: u64,
    /// The last ones.
    history: Vec<NumberedFingerprint>,
}

impl Departure<'_> {
    /// Compares; a disagreement breaks the group. What is still open, if others have not come.
    pub(super) async fn compare(&self, leaving: Leaving) -> Option<OpenComparison> {
        if self.size == 1 || leaving.limit.is_zero() {
            return None;
        }
        let met = match self.driver.broken() {
            Some(abort) if abort.is_disagreement() => self.tell(&abort).await.map(|()| None),
            // There is nothing to compare, or that has been done.
            Some(_) => Ok(None),
            None => self.meet(leaving.compare_until).await,
        };
        met.unwrap_or_else(|error| {
            // Without a store there is nothing to compare with.
            tracing::debug!(%error, "cannot compare operations through the store");
            None
        })
    }

    /// Tells those that left before why the group broke.
    async fn tell(&self, abort: &Abort) -> Result<()> {
        let verdict = key(self.backend, "verdict");
        self.store.compare_set_async(&verdict, b"", &abort.encode()).await.map(drop)
    }

    async fn meet(&self, until: Option<Instant>) -> Result<Option<OpenComparison>> {
        let history = self.driver.history();
        let own = Record { rank: self.rank, last: self.driver.issued(), history };
        let first = key(self.backend, "first");
        let first = self.store.compare_set_async(&first, b"", &own.encode()).await?;
        if let Some(abort) = Record::decode(&first).and_then(|first| own.difference(&first)) {
            self.tell(&abort).await?;
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
            is_doubtful: self.driver.is_unconfirmed(),
        };
        let until = until.map_or_else(Instant::now, |until| open.until(Instant::now(), until));
        Ok(self.await_verdict(&open, until).await?.then_some(open))
    }

    /// Waits for the verdict, or for a reason not to; whether there was none.
    async fn await_verdict(&self, open: &OpenComparison, until: Instant) -> Result<bool> {
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
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_incomplete().await? {
                return Ok(true);
            }
            match self.store.wait_async(&[&verdict], Some(SLICE.min(left))).await {
                Err(Error::StoreTimeout { .. }) => {}
                other => other?,
            }
        }
    }

    /// Whether a rank has left without saying what it ran, so that there will be no verdict.
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
    /// Until when it is worth waiting for others, for a rank that began to at `since` and has until
    /// `until`.
    pub(crate) fn until(&self, since: Instant, until: Instant) -> Instant {
        if self.is_doubtful { until } else { until.min(since + SOON) }
    }

    /// What came of it, if that is known: the error of this rank. `store` is that of the group.
    pub(crate) async fn outcome(&self, store: &dyn Store) -> Result<Option<Result<()>>> {
        let Some(found) = self.verdict(store).await? else { return Ok(None) };
        let abort = Abort::decode(&found).filter(Abort::is_disagreement);
        Ok(Some(abort.map_or(Ok(()), |abort| Err(error_of(&abort, &self.group, "shutdown", 0)))))
    }

    /// Waits a little for what comes of it.
    pub(crate) async fn await_verdict(&self, store: &dyn Store) -> Result<()> {
        match store.wait_async(&[&key(self.backend, "verdict")], Some(SLICE)).await {
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

    /// The first operation on which the two ranks disagree, or that one of them never came to.
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
