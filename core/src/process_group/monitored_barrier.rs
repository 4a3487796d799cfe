//! A barrier that says who is missing, over the group's store. Knows no backend.
//!
//! Every rank announces itself by a key. Rank 0 watches the announcements, and decides within its
//! limit; the others name rank 0 if it has not come a little after theirs. The first to decide
//! writes the verdict, which holds for all: either every rank passes or every rank fails. Nothing
//! of it goes through the collectives, so that a rank that is stuck in one is found like any other.
//! All goes over a connection of the barriers' own, as others may wait in that of the group.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::ProcessGroup;
use super::composed::of_whole;
use super::failure_watch::FailureWatch;
use super::late_ranks::LateRanks;
use crate::blocking::block_on;
use crate::clock::{self, Instant};
use crate::generated::error::{Error, Result};
use crate::store::Store;
use crate::work::comm_name::describe_error;

/// The verdict that lets everybody pass.
const PASSED: &[u8] = b"passed";
/// How often a waiting rank looks whether the group broke.
const SLICE: Duration = Duration::from_millis(200);
/// How many ranks rank 0 connects to, so that their deaths are noticed.
const WATCHED: usize = 16;
/// How much longer than their own limit the others wait for rank 0 to come.
const ARRIVAL_GRACE: Duration = Duration::from_secs(2);
/// How much longer than rank 0 the others wait for its verdict.
const GRACE: Duration = Duration::from_secs(10);

impl ProcessGroup {
    /// Waits until all ranks came. If some do not come within `timeout` (the group's, where none is
    /// given; with zero, if they are not there already), every rank fails, and the message names
    /// the first missing rank, or all of them with `wait_all_ranks`. The group is not broken by
    /// that.
    ///
    /// # Errors
    /// [`Error::MonitoredBarrier`], in c10d's words; the failure of the store.
    pub fn monitored_barrier(&self, timeout: Option<Duration>, wait_all_ranks: bool) -> Result<()> {
        block_on(self.monitored_barrier_async(timeout, wait_all_ranks))
    }

    /// As [`ProcessGroup::monitored_barrier`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::monitored_barrier`].
    pub async fn monitored_barrier_async(
        &self,
        timeout: Option<Duration>,
        wait_all_ranks: bool,
    ) -> Result<()> {
        self.require_members("monitored_barrier")?;
        let barrier = self.pass_monitored_barrier(timeout, wait_all_ranks);
        let barrier = self.within_call("monitored_barrier", barrier);
        describe_error(self.among_members("monitored_barrier", barrier).await)
    }

    async fn pass_monitored_barrier(
        &self,
        timeout: Option<Duration>,
        wait_all_ranks: bool,
    ) -> Result<()> {
        if self.is_alone() {
            return Ok(());
        }
        let number = self.inner.monitored_barriers.fetch_add(1, Ordering::Relaxed);
        let limit = timeout.unwrap_or_else(|| self.limit());
        let others: Vec<u32> = match self.rank() {
            0 => (1..self.size()).take(WATCHED).collect(),
            _ => vec![0],
        };
        // It names all that do not come, whatever was known before.
        let failure = self.watch_for_failure(&others);
        // Where none is opened, the connection of the group is there, and as good as the server is.
        let (store, opened) = match failure.or_failure(self.barrier_store()).await {
            Ok(store) => (store, Ok(())),
            Err(error) => (self.get_group_store(), Err(error)),
        };
        let (failure, late) = (&failure, &self.late_ranks("monitored_barrier"));
        let barrier = Barrier { group: self, store: &*store, number, limit, failure, late };
        let passed = match opened {
            Ok(()) => barrier.run(wait_all_ranks).await,
            Err(_) if failure.error().is_some() => barrier.run(wait_all_ranks).await,
            Err(error) => Err(error),
        };
        let passed = match passed {
            // The host of the store learned of the failure first, and is gone with the verdict.
            Err(Error::Network { .. }) if failure.error().is_some() => {
                barrier.result_of(barrier.failure("Rank 0", &[0]))
            }
            passed => passed,
        };
        passed.map_err(|error| of_whole(error, "monitored_barrier"))
    }
}

impl ProcessGroup {
    /// The connection of the monitored barriers.
    async fn barrier_store(&self) -> Result<Arc<dyn Store>> {
        let kept = || self.inner.barrier_store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = kept().clone() {
            return Ok(store);
        }
        let group = self.inner.store.underlying()?;
        // For a rank alone as well: another of its threads may wait.
        let own = group.clone_store_async().await?;
        let own = kept().get_or_insert(own).clone();
        // The group may have been left meanwhile: then nobody else closes it.
        if let Err(closed) = self.inner.store.underlying() {
            kept().take();
            return Err(closed);
        }
        Ok(own)
    }

    /// The group's timeout, where zero means no limit.
    fn limit(&self) -> Duration {
        if self.timeout().is_zero() { Duration::MAX } else { self.timeout() }
    }
}

/// What holds for all ranks.
enum Verdict {
    Passed,
    Failed { missing: Vec<u32>, message: String },
}

impl Verdict {
    /// What is in the store: the missing ranks on the first line, then the message.
    fn encode(&self) -> Vec<u8> {
        match self {
            Verdict::Passed => PASSED.to_vec(),
            Verdict::Failed { missing, message } => {
                let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
                format!("{}\n{message}", missing.join(",")).into_bytes()
            }
        }
    }

    fn decode(bytes: &[u8]) -> Verdict {
        if bytes == PASSED {
            return Verdict::Passed;
        }
        let text = String::from_utf8_lossy(bytes);
        let (missing, message) = text.split_once('\n').unwrap_or(("", &text));
        let missing = missing.split(',').filter_map(|rank| rank.parse().ok()).collect();
        Verdict::Failed { missing, message: message.to_owned() }
    }
}

/// One barrier, on one rank.
struct Barrier<'a> {
    group: &'a ProcessGroup,
    store: &'a dyn Store,
    /// How many barriers the group had before.
    number: u64,
    limit: Duration,
    /// Ends waits in the store when the group fails.
    failure: &'a FailureWatch,
    late: &'a LateRanks<'a>,
}

impl Barrier<'_> {
    async fn run(&self, wait_all_ranks: bool) -> Result<()> {
        let rank = self.group.rank();
        self.store.set_async(&self.arrival(rank), b"here").await?;
        if rank == 0 { self.watch(wait_all_ranks).await } else { self.follow().await }
    }

    /// Rank 0: waits for the others, decides, and cleans up behind the barrier before.
    async fn watch(&self, wait_all_ranks: bool) -> Result<()> {
        let ranks: Vec<u32> = (1..self.group.size()).collect();
        let until = clock::after(self.limit);
        let mut missing = ranks.clone();
        let mut teller = self.late.teller(self.store, self.late_ranks());
        loop {
            missing = self.not_arrived(&missing).await?;
            teller.tell(&missing).await;
            if missing.is_empty()
                || self.group.is_broken()
                || !self.wait_for(&missing, until).await?
            {
                break;
            }
        }
        // Who came at the last moment is not missing.
        let missing = self.not_arrived(&missing).await?;
        let verdict = match missing.as_slice() {
            [] => Verdict::Passed,
            several if wait_all_ranks => self.failure(&names(several), several),
            several @ [first, ..] => self.failure(&format!("Rank {first}"), several),
        };
        if let Verdict::Failed { missing, message } = self.decide(&verdict).await? {
            let is_late = missing == [0] && self.failure.error().is_none();
            let message = match is_late {
                true => format!("rank 0 came when others had given up waiting for it: {message}"),
                false => message,
            };
            return Err(self.failed(missing, message));
        }
        // Everybody is here, so nobody reads what the barrier before left behind. A store that
        // cannot delete keeps a few keys more.
        for rank in &ranks {
            let _ = self.store.delete_key_async(&self.arrival(*rank)).await;
        }
        teller.end().await;
        if let Some(before) = self.number.checked_sub(1) {
            let before = Barrier { number: before, ..*self };
            let _ = self.store.delete_key_async(&before.verdict()).await;
            let _ = self.store.delete_key_async(&before.arrival(0)).await;
        }
        Ok(())
    }

    /// The others: wait for rank 0 to come, then for its verdict.
    async fn follow(&self) -> Result<()> {
        let until = clock::after(self.limit.saturating_add(ARRIVAL_GRACE));
        while !self.is_there(&self.arrival(0)).await? && !self.is_there(&self.verdict()).await? {
            self.late.look(&[0]);
            if self.group.is_broken() || !self.wait_for(&[0], until).await? {
                self.decide(&self.failure("Rank 0", &[0])).await?;
                break;
            }
        }
        self.late.look(&[]);
        // Rank 0 decides within its own limit, which may be another one; if it dies, the group
        // breaks. The last resort is the group's limit.
        let until = clock::after(self.limit.max(self.group.limit()).saturating_add(GRACE));
        let verdict = self.verdict();
        let mut news = self.late.news(self.store, self.late_ranks());
        loop {
            if self.is_there(&verdict).await? {
                let found = self.store.get_async(&verdict).await?;
                return self.result_of(Verdict::decode(&found));
            }
            news.look().await;
            let slice = SLICE.min(until.saturating_duration_since(Instant::now()));
            if self.group.is_broken() || slice.is_zero() {
                let found = self.decide(&self.failure("Rank 0", &[0])).await?;
                return self.result_of(found);
            }
            self.sleep_on(&[&verdict], slice).await?;
        }
    }

    fn result_of(&self, verdict: Verdict) -> Result<()> {
        let Verdict::Failed { missing, message } = verdict else { return Ok(()) };
        let message = format!(
            "Rank {} successfully reached monitoredBarrier, but received errors while waiting for \
             send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original \
             exception: \n{message}",
            self.group.rank(),
        );
        Err(self.failed(missing, message))
    }

    /// Writes the verdict if there is none; the one that holds.
    async fn decide(&self, verdict: &Verdict) -> Result<Verdict> {
        let holds = self.store.compare_set_async(&self.verdict(), b"", &verdict.encode()).await?;
        Ok(Verdict::decode(&holds))
    }

    fn failed(&self, missing_ranks: Vec<u32>, message: String) -> Error {
        Error::MonitoredBarrier {
            group: self.group.group_name().to_owned(),
            collective: "monitored_barrier".to_owned(),
            rank: missing_ranks.first().copied().unwrap_or_default(),
            missing_ranks: missing_ranks.into(),
            message,
        }
    }

    fn failure(&self, who: &str, missing: &[u32]) -> Verdict {
        let when = match (self.failure.error(), self.group.is_broken()) {
            (Some(why), _) => format!("before the group failed: {why}"),
            (None, true) => "before the group failed, was aborted or was left".to_owned(),
            (None, false) => format!("in {} ms", self.limit.as_millis() as u64),
        };
        let (who, missing) = match self.failure.error() {
            Some(Error::RankFailed { rank, .. }) => (format!("Rank {rank}"), vec![rank]),
            _ => (who.to_owned(), missing.to_vec()),
        };
        let message = format!("[Rank 0]: {who} failed to pass monitoredBarrier {when}");
        Verdict::Failed { missing, message }
    }

    async fn not_arrived(&self, ranks: &[u32]) -> Result<Vec<u32>> {
        if ranks.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = ranks.iter().map(|&rank| self.arrival(rank)).collect();
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        if self.store.check_async(&all).await? {
            return Ok(Vec::new());
        }
        let mut missing = Vec::new();
        for (rank, key) in ranks.iter().zip(all) {
            if !self.is_there(key).await? {
                missing.push(*rank);
            }
        }
        Ok(missing)
    }

    /// Waits for one of `ranks` to come, for a slice; whether there is time left.
    async fn wait_for(&self, ranks: &[u32], until: Instant) -> Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let keys: Vec<String> = ranks.iter().map(|&rank| self.arrival(rank)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.sleep_on(&keys, SLICE.min(left)).await?;
        Ok(true)
    }

    /// Waits until all `keys` are there, or for `slice`.
    async fn sleep_on(&self, keys: &[&str], slice: Duration) -> Result<()> {
        // A limit of zero would be none.
        let slice = slice.max(Duration::from_millis(1));
        match self.failure.or_failure(self.store.wait_async(keys, Some(slice))).await {
            Err(Error::StoreTimeout { .. }) => Ok(()),
            // Its outcome is decided for all ranks alike, in the store.
            Err(error) if self.failure.error().as_ref() == Some(&error) => Ok(()),
            other => other,
        }
    }

    async fn is_there(&self, key: &str) -> Result<bool> {
        self.store.check_async(&[key]).await
    }

    fn arrival(&self, rank: u32) -> String {
        format!("monitored_barrier/{}/{rank}", self.number)
    }

    /// Where rank 0 tells who has not come.
    fn late_ranks(&self) -> String {
        format!("monitored_barrier/{}/late", self.number)
    }

    fn verdict(&self) -> String {
        format!("monitored_barrier/{}/verdict", self.number)
    }
}

fn names(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("Ranks {}", names.join(", "))
}
