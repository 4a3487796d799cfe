//! What the ranks of a group tell one another through the store, where the library that runs
//! their operations tells nothing: why the group broke, who left, what each is about to run. Knows
//! no library.
//!
//! Keys of the group's store, all under the backend's name: `abort`, why it broke; `left/RANK`, the
//! number of that rank's last collective when it left; `failed/RANK`, that the rank lives, although
//! its library says that something failed; `check/NUMBER/RANK`, what a rank runs, at debug level
//! `DETAIL`, and `check/NUMBER/read`, how many have read that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::Leaving;
use super::departure::{Departure, OpenComparison, ShutdownDriver};
use super::inspect::{self, Comparison, NumberedFingerprint};
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::completion::error_of;
use crate::generated::error::{Error, Result};
use crate::store::Store;
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::Fingerprint;

/// How many fingerprints of operations are remembered.
const REMEMBERED: usize = 64;
/// How long an operation may stand still before the store is asked why.
pub(super) const STALL: Duration = Duration::from_millis(300);
/// How long after a look at the store the next one begins.
const AGAIN: Duration = Duration::from_millis(150);
/// How long the others have to answer when a rank's library says that something failed.
const ROLL_CALL: Duration = Duration::from_millis(600);
/// How long after the last answer that is, while several are silent: the slow ones are not to be
/// taken for the one that is gone.
const LAST_CALL: Duration = Duration::from_secs(2);
/// How long in all, whichever ranks answer then, and how long it is tried where the store does
/// not.
const END_OF_CALL: Duration = Duration::from_secs(10);
/// How often it is looked who has answered.
const AGAIN_SOON: Duration = Duration::from_millis(20);
/// Limit of one request to the store.
const STORE_LIMIT: Duration = Duration::from_millis(500);

/// One rank's side of it.
pub(super) struct GroupStatus {
    backend: &'static str,
    group: String,
    rank: u32,
    size: u32,
    broken: OnceLock<Abort>,
    left: AtomicBool,
    /// What the group was made with.
    store: Arc<dyn Store>,
    /// A handle that does not wait for what the user does with the store. It is made when the rank
    /// joins: when something is wrong, it may be too late to reach the store anew.
    own: Arc<dyn Store>,
    /// Another one, for comparing, which waits there.
    #[cfg(feature = "mpi")]
    compares: Mutex<Option<Arc<dyn Store>>>,
    numbers: Mutex<Numbers>,
    looks: Mutex<Looks>,
    open_comparison: OnceLock<OpenComparison>,
}

/// What this rank issued.
#[derive(Default)]
struct Numbers {
    collectives: u64,
    messages: u64,
    history: VecDeque<NumberedFingerprint>,
}

/// When to look at the store again, and what was seen there.
struct Looks {
    /// `None` while somebody looks.
    next: Option<Instant>,
    /// An operation, and the ranks that are known not to have reached it.
    elsewhere: (u64, Vec<u32>),
}

/// The result of comparing a collective.
#[cfg(feature = "mpi")]
pub(super) enum ComparisonOutcome {
    /// All ranks run the same.
    Equal,
    /// A rank runs another: the group must break.
    Different(Abort),
    /// Not all ranks have come.
    Unknown,
}

/// Who found why a group must break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// This rank: the others are to be told.
    ThisRank,
    /// Another rank, which told all.
    OtherRank,
}

impl GroupStatus {
    /// That of rank `rank` of the group `group`, whose ranks meet in `store`.
    ///
    /// # Errors
    /// Those of the store, if it cannot be reached.
    pub(super) fn join(
        backend: &'static str,
        group: &str,
        (rank, size): (u32, u32),
        store: &Arc<dyn Store>,
    ) -> Result<GroupStatus> {
        let own = match size {
            // Nobody is to be told anything.
            1 => store.clone(),
            _ => store.clone_store()?,
        };
        if size > 1 {
            own.set_timeout(STORE_LIMIT);
        }
        let looks = Looks { next: Some(Instant::now()), elsewhere: (0, Vec::new()) };
        Ok(GroupStatus {
            backend,
            group: group.to_owned(),
            rank,
            size,
            broken: OnceLock::new(),
            left: AtomicBool::new(false),
            store: store.clone(),
            own,
            #[cfg(feature = "mpi")]
            compares: Mutex::default(),
            numbers: Mutex::default(),
            looks: Mutex::new(looks),
            open_comparison: OnceLock::new(),
        })
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether the group failed or was left.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// An error if nothing can be issued any more.
    ///
    /// # Errors
    /// What an operation of this name ends with.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        match self.broken.get() {
            None => Ok(()),
            Some(abort) => {
                let next = lock(&self.numbers).collectives + 1;
                Err(error_of(abort, &self.group, name, next))
            }
        }
    }

    /// What the operation of this name and number ends with.
    pub(super) fn error(&self, name: &str, sequence: u64) -> Error {
        let unbroken = || Abort::User { rank: self.rank, why: "it is not broken".to_owned() };
        let abort = self.broken.get().cloned().unwrap_or_else(unbroken);
        error_of(&abort, &self.group, name, sequence)
    }

    /// Notes why the group broke; whether this is the first reason.
    pub(super) fn set_broken(&self, abort: Abort) -> bool {
        self.broken.set(abort).is_ok()
    }

    /// The number of the next collective, which is remembered.
    pub(super) fn next_collective(&self, fingerprint: Fingerprint) -> u64 {
        let mut numbers = lock(&self.numbers);
        numbers.collectives += 1;
        let sequence = numbers.collectives;
        if numbers.history.len() == REMEMBERED {
            numbers.history.pop_front();
        }
        numbers.history.push_back((sequence, fingerprint));
        sequence
    }

    /// Compares with the other ranks what was run, before this one leaves. `breaks` breaks the
    /// group, and `advance` moves what can be moved.
    ///
    /// # Errors
    /// That ranks disagree, if that was not known.
    pub(super) fn compare_before_leaving(
        &self,
        leaving: Leaving,
        breaks: &(dyn Fn(Abort, FoundBy) + Sync),
        advance: &(dyn Fn() + Sync),
    ) -> Result<()> {
        if self.is_broken() {
            return Ok(());
        }
        let departure = Departure {
            driver: &DepartingGroup { status: self, breaks, advance },
            store: self.own.clone(),
            backend: self.backend,
            group: &self.group,
            rank: self.rank,
            size: self.size,
        };
        if let Some(open) = block_on(async { Ok(departure.compare(leaving).await) })? {
            let _ = self.open_comparison.set(open);
        }
        match self.broken.get() {
            Some(abort) if abort.is_disagreement() => Err(self.error("shutdown", 0)),
            _ => Ok(()),
        }
    }

    /// The comparison that was open when the group was left: whether the others ran the same.
    pub(super) fn open_comparison(&self) -> Option<OpenComparison> {
        self.open_comparison.get().cloned()
    }

    /// The number of the next message.
    pub(super) fn next_message(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        numbers.messages += 1;
        numbers.messages
    }

    /// The ranks that hold up operation `sequence`: those that are known not to have come, or else
    /// all others.
    pub(super) fn late(&self, sequence: u64) -> Vec<u32> {
        let looks = lock(&self.looks);
        match looks.elsewhere.0 == sequence && !looks.elsewhere.1.is_empty() {
            true => looks.elsewhere.1.clone(),
            false => (0..self.size).filter(|&rank| rank != self.rank).collect(),
        }
    }

    /// Tells the others why the group broke, if they can still be told.
    pub(super) fn publish(&self) {
        let Some(abort) = self.broken.get() else { return };
        if self.size == 1 {
            return;
        }
        // The first reason counts, on all ranks.
        let told = self.own.compare_set(&self.key("abort"), b"", &abort.encode());
        if let Err(error) = told {
            tracing::debug!(%error, "cannot tell the other ranks why the group broke");
        }
    }

    /// Notes that this rank leaves, for the others to see; whether nothing had gone wrong.
    pub(super) fn leave(&self) -> bool {
        if self.left.swap(true, Ordering::SeqCst) {
            return false;
        }
        let last = lock(&self.numbers).collectives;
        let why = "the process group was destroyed".to_owned();
        let in_order = self.set_broken(Abort::User { rank: self.rank, why });
        if self.size == 1 {
            return in_order;
        }
        // The others need to learn of it only if they continue; the host of the store may end now.
        let told = self.own.set(&self.left_key(self.rank), &last.to_le_bytes());
        if let Err(error) = told {
            tracing::debug!(%error, "cannot tell the other ranks that this one left");
        }
        in_order
    }

    /// Looks at the store for the reason why an operation stands still, at most once in a while.
    /// What was found breaks the group: it is for the caller to do so, and to publish it if this
    /// rank found it. `oldest` is the oldest collective that stands still, 0 if there is none.
    pub(super) fn look(&self, oldest: u64) -> Option<(Abort, FoundBy)> {
        if self.size == 1 {
            return None;
        }
        let now = Instant::now();
        lock(&self.looks).next.take_if(|next| now >= *next)?;
        let found = self.ask(oldest);
        lock(&self.looks).next = Some(now + AGAIN);
        found.unwrap_or_else(|error| {
            // Without a store there is nothing to compare with; deadlines still count.
            tracing::debug!(%error, "cannot ask the store why an operation stands still");
            None
        })
    }

    /// Whether it is time to look, and nobody looks.
    pub(super) fn is_due(&self) -> bool {
        lock(&self.looks).next.is_some_and(|next| Instant::now() >= next)
    }

    /// Finds out which rank is to blame when the library says only that something failed: the one
    /// that told all why, or one that does not answer while the others do.
    pub(super) fn who_failed(&self, why: &str) -> (Abort, FoundBy) {
        let blame = |rank: u32, why: String| (Abort::Failed { rank, why }, FoundBy::ThisRank);
        match self.roll_call() {
            Ok(Answers { told: Some(abort), .. }) => (abort, FoundBy::OtherRank),
            Ok(Answers { missing: Some((rank, how)), .. }) => blame(rank, format!("{how}: {why}")),
            Ok(_) => blame(self.rank, why.to_owned()),
            Err(error) => {
                let why = format!("{why}; and the store does not say who is gone: {error}");
                blame(self.rank, why)
            }
        }
    }

    fn roll_call(&self) -> Result<Answers> {
        let since = Instant::now();
        let mut silent: Vec<u32> = (0..self.size).filter(|&rank| rank != self.rank).collect();
        let mut last_answer = since;
        loop {
            let (before, waited) = (silent.len(), since.elapsed());
            match self.answers(&mut silent) {
                Ok(answers) => {
                    if silent.len() < before {
                        last_answer = Instant::now();
                    }
                    let is_over = match silent.len() {
                        0 => true,
                        // A rank that has left is to blame, also where others are silent.
                        _ if answers.has_left || silent.len() == 1 => waited >= ROLL_CALL,
                        _ => last_answer.elapsed() >= LAST_CALL || waited >= END_OF_CALL,
                    };
                    if answers.told.is_some() || is_over {
                        return Ok(answers);
                    }
                }
                Err(Error::StoreTimeout { .. }) if waited < END_OF_CALL => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(AGAIN_SOON);
        }
    }

    /// Answers to a roll call, and asks those that were `silent` until now.
    fn answers(&self, silent: &mut Vec<u32>) -> Result<Answers> {
        let store = &self.own;
        let failed = |rank: u32| self.key(&format!("failed/{rank}"));
        store.set(&failed(self.rank), b"")?;
        let told = self.told()?;
        let mut still = Vec::with_capacity(silent.len());
        for &rank in &*silent {
            if !store.check(&[&failed(rank)])? {
                still.push(rank);
            }
        }
        *silent = still;
        let mut missing = silent.first().map(|&rank| (rank, "it does not answer"));
        let mut has_left = false;
        for &rank in &*silent {
            if store.check(&[&self.left_key(rank)])? {
                (missing, has_left) = (Some((rank, "it left the group")), true);
                break;
            }
        }
        Ok(Answers { told, missing, has_left })
    }

    /// Waits for a rank to tell why the group broke, as one that breaks it does before its library
    /// fails on the others. None if nobody does within the time of a roll call, or without a store.
    #[cfg(feature = "nccl")]
    pub(super) fn wait_for_reason(&self) -> Option<(Abort, FoundBy)> {
        let since = Instant::now();
        loop {
            match self.told() {
                Ok(Some(abort)) => return Some((abort, FoundBy::OtherRank)),
                Err(error) if !matches!(error, Error::StoreTimeout { .. }) => return None,
                _ if since.elapsed() >= ROLL_CALL => return None,
                _ => std::thread::sleep(AGAIN_SOON),
            }
        }
    }

    /// Why the group broke, if another rank has told and the store can be asked.
    #[cfg(feature = "nccl")]
    pub(super) fn reason_told(&self) -> Option<(Abort, FoundBy)> {
        Some((self.told().ok()??, FoundBy::OtherRank))
    }

    /// Why the group broke, if a rank has told.
    fn told(&self) -> Result<Option<Abort>> {
        let (store, abort) = (&self.own, self.key("abort"));
        if !store.check(&[&abort])? {
            return Ok(None);
        }
        Ok(Some(Abort::decode(&store.get(&abort)?).unwrap_or_else(|| Abort::User {
            rank: self.rank,
            why: "for a reason that this version does not know".to_owned(),
        })))
    }

    fn ask(&self, oldest: u64) -> Result<Option<(Abort, FoundBy)>> {
        let store = &self.own;
        if let Some(told) = self.told()? {
            return Ok(Some((told, FoundBy::OtherRank)));
        }
        if oldest == 0 {
            return Ok(None);
        }
        let history: Vec<_> = lock(&self.numbers).history.iter().copied().collect();
        let (place, own) = (self.key("stalled"), (self.rank, self.size));
        let compared = block_on(inspect::compare(&**store, &place, own, &history))?;
        let Comparison { mismatch, elsewhere } = compared;
        if let Some(mismatch) = mismatch {
            return Ok(Some((mismatch, FoundBy::ThisRank)));
        }
        for &rank in &elsewhere {
            let key = self.left_key(rank);
            if store.check(&[&key])? && last_of(&store.get(&key)?) < oldest {
                let why = "it left the group".to_owned();
                return Ok(Some((Abort::Failed { rank, why }, FoundBy::ThisRank)));
            }
        }
        lock(&self.looks).elsewhere = (oldest, elsewhere);
        Ok(None)
    }

    /// Compares a collective with that of the other ranks. Waits for all of them.
    ///
    /// # Errors
    /// Those of the store; a mismatch is not an error here, but the reason why the group breaks.
    #[cfg(feature = "nccl")]
    pub(super) fn compare_with_all(
        &self,
        sequence: u64,
        ours: Fingerprint,
        deadline: Instant,
    ) -> Result<Option<Abort>> {
        // A connection of its own: others wait on this one for long.
        let store = self.store.clone_store()?;
        let left = deadline.saturating_duration_since(Instant::now());
        // Zero would be no limit.
        self.compare_through(&*store, sequence, ours, left.max(Duration::from_millis(1)))
    }

    /// As `compare_with_all`, for one thread that compares all that the group runs, in order, and
    /// waits no longer than `limit` at a time: nothing is known if not all ranks have come by then.
    ///
    /// # Errors
    /// As `compare_with_all`.
    #[cfg(feature = "mpi")]
    pub(super) fn compare_for(
        &self,
        sequence: u64,
        ours: Fingerprint,
        limit: Duration,
    ) -> Result<ComparisonOutcome> {
        let store = self.comparing_store()?;
        match self.compare_through(&*store, sequence, ours, limit) {
            Ok(differs) => {
                Ok(differs.map_or(ComparisonOutcome::Equal, ComparisonOutcome::Different))
            }
            Err(Error::StoreTimeout { .. }) => Ok(ComparisonOutcome::Unknown),
            Err(error) => Err(error),
        }
    }

    fn compare_through(
        &self,
        store: &dyn Store,
        sequence: u64,
        ours: Fingerprint,
        limit: Duration,
    ) -> Result<Option<Abort>> {
        let key = |sequence: u64, rank: u32| self.key(&format!("check/{sequence}/{rank}"));
        store.set(&key(sequence, self.rank), &ours.encode())?;
        let keys: Vec<String> = (0..self.size).map(|rank| key(sequence, rank)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        store.wait(&keys, Some(limit))?;
        let values = store.multi_get(&keys)?;
        // The last reader clears up. A rank that came to a later one may still read this.
        let read = self.key(&format!("check/{sequence}/read"));
        if store.add(&read, 1)? == i64::from(self.size) {
            for key in keys.iter().copied().chain([read.as_str()]) {
                store.delete_key(key)?;
            }
        }
        let differs = (0..).zip(&values).find_map(|(rank, bytes)| {
            let theirs = Fingerprint::decode(bytes.first_chunk()?);
            let side = |rank, fingerprint| Side { rank, fingerprint, message_bytes: None };
            (!theirs.agrees_with(&ours)).then(|| Abort::Mismatch {
                sequence,
                one: side(self.rank, ours),
                other: side(rank, theirs),
            })
        });
        Ok(differs)
    }

    #[cfg(feature = "mpi")]
    fn comparing_store(&self) -> Result<Arc<dyn Store>> {
        if let Some(store) = &*lock(&self.compares) {
            return Ok(store.clone());
        }
        let store = self.store.clone_store()?;
        store.set_timeout(STORE_LIMIT);
        Ok(lock(&self.compares).insert(store).clone())
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.backend)
    }

    fn left_key(&self, rank: u32) -> String {
        self.key(&format!("left/{rank}"))
    }
}

/// A group that this rank leaves.
struct DepartingGroup<'a> {
    status: &'a GroupStatus,
    breaks: &'a (dyn Fn(Abort, FoundBy) + Sync),
    advance: &'a (dyn Fn() + Sync),
}

impl ShutdownDriver for DepartingGroup<'_> {
    fn broken(&self) -> Option<Abort> {
        self.status.broken.get().cloned()
    }

    fn break_with(&self, abort: Abort) {
        (self.breaks)(abort, FoundBy::ThisRank);
    }

    fn break_as_told(&self, abort: Abort) {
        (self.breaks)(abort, FoundBy::OtherRank);
    }

    fn issued(&self) -> u64 {
        lock(&self.status.numbers).collectives
    }

    fn history(&self) -> Vec<NumberedFingerprint> {
        lock(&self.status.numbers).history.iter().copied().collect()
    }

    fn is_unconfirmed(&self) -> bool {
        let last = lock(&self.status.numbers).history.back().copied();
        last.is_some_and(|(_, last)| last.ends_without_all(self.status.rank, self.status.size))
    }

    /// The libraries do not report it.
    fn departed(&self) -> usize {
        0
    }

    fn advance(&self) {
        (self.advance)();
    }
}

/// What a roll call brought.
struct Answers {
    /// Why the group broke, as a rank has told.
    told: Option<Abort>,
    /// A rank that does not answer, and what is known of it.
    missing: Option<(u32, &'static str)>,
    /// Whether that one is known to have left.
    has_left: bool,
}

fn last_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
