//! One group over a communicator: what it issued, whether it broke and why, and what the ranks tell
//! one another through the store when something stands still, since MPI tells nothing.
//! Knows no requests.
//!
//! Keys of the group's store: `mpi/abort`, why it broke; `mpi/left/RANK`, the number of that rank's
//! last collective when it left; `mpi/check/NUMBER/RANK`, what a rank is about to run, at debug
//! level `DETAIL`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::abi::Handle;
use crate::backend::inspect::{self, Comparison};
use crate::blocking::block_on;
use crate::clock::Instant;
use crate::executor::error_of;
use crate::store::Store;
use crate::wire::abort::{Abort, Side};
use crate::wire::frame::Fingerprint;
use crate::{Error, Region, Result};

/// How many fingerprints of operations are remembered.
const REMEMBERED: usize = 64;
/// How long an operation may stand still before the store is asked why.
pub(super) const STALL: Duration = Duration::from_millis(300);
/// How long after a look at the store the next one begins.
const AGAIN: Duration = Duration::from_millis(150);
/// Limit of one request to the store.
const STORE_LIMIT: Duration = Duration::from_secs(1);

/// Bytes that are kept for small operations at least.
const LEAST_SCRATCH: usize = 4096;

const ABORT: &str = "mpi/abort";

/// The ranks of one group.
pub(super) struct Group<H: Handle> {
    pub(super) name: String,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) comm: H,
    /// Operations that have not ended for the caller.
    pub(super) in_flight: AtomicUsize,
    /// Requests that the library has not ended, for the caller or not.
    pub(super) in_library: AtomicUsize,
    broken: OnceLock<Abort>,
    left: AtomicBool,
    /// Whether a thread compares what this group holds.
    pub(super) comparing: AtomicBool,
    compares: Mutex<Option<Arc<dyn Store>>>,
    /// Memory for small operations, while none uses it.
    scratch: Mutex<Option<Region>>,
    store: Arc<dyn Store>,
    numbers: Mutex<Numbers>,
    looks: Mutex<Looks>,
}

/// What this rank issued.
#[derive(Default)]
struct Numbers {
    collectives: u64,
    messages: u64,
    history: VecDeque<(u64, Fingerprint)>,
}

/// When to look at the store again, and what was seen there.
struct Looks {
    own: Option<Arc<dyn Store>>,
    /// `None` while somebody looks.
    next: Option<Instant>,
    /// An operation, and the ranks that are known not to have come to it.
    elsewhere: (u64, Vec<u32>),
}

impl<H: Handle> Group<H> {
    pub(super) fn new(
        (rank, size): (u32, u32),
        name: &str,
        comm: H,
        store: Arc<dyn Store>,
    ) -> Group<H> {
        let looks = Looks { own: None, next: Some(Instant::now()), elsewhere: (0, Vec::new()) };
        Group {
            name: name.to_owned(),
            rank,
            size,
            comm,
            in_flight: AtomicUsize::new(0),
            in_library: AtomicUsize::new(0),
            broken: OnceLock::new(),
            left: AtomicBool::new(false),
            comparing: AtomicBool::new(false),
            compares: Mutex::default(),
            scratch: Mutex::default(),
            store,
            numbers: Mutex::default(),
            looks: Mutex::new(looks),
        }
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
                Err(error_of(abort, &self.name, name, next))
            }
        }
    }

    /// What the operation of this name and number ends with.
    pub(super) fn error(&self, name: &str, sequence: u64) -> Error {
        let unbroken = || Abort::User { rank: self.rank, why: "it is not broken".to_owned() };
        let abort = self.broken.get().cloned().unwrap_or_else(unbroken);
        error_of(&abort, &self.name, name, sequence)
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

    /// The number of the next message.
    pub(super) fn next_message(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        numbers.messages += 1;
        numbers.messages
    }

    /// Memory of so many bytes at least, for a small operation.
    pub(super) fn take_scratch(&self, bytes: usize) -> Region {
        let kept = lock(&self.scratch).take_if(|kept| kept.len() >= bytes);
        kept.unwrap_or_else(|| Region::zeroed(bytes.next_power_of_two().max(LEAST_SCRATCH)))
    }

    /// Gives back what [`Group::take_scratch`] gave, when MPI does not use it any more.
    pub(super) fn put_scratch(&self, scratch: Region) {
        *lock(&self.scratch) = Some(scratch);
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
        let told = self.own_store().and_then(|store| {
            // The first reason counts, on all ranks.
            store.compare_set(ABORT, b"", &abort.encode())
        });
        if let Err(error) = told {
            tracing::debug!(%error, "cannot tell the other ranks why the group broke");
        }
    }

    /// Notes that this rank leaves, for the others to see; whether it had not yet.
    pub(super) fn leave(&self) -> bool {
        if self.left.swap(true, Ordering::SeqCst) {
            return false;
        }
        let last = lock(&self.numbers).collectives;
        let why = "the process group was destroyed".to_owned();
        let in_order = self.set_broken(Abort::User { rank: self.rank, why });
        // The others need to hear of it only if they go on; whoever hosts the store may end now.
        let told =
            self.own_store().and_then(|store| store.set(&left_key(self.rank), &last.to_le_bytes()));
        if let Err(error) = told {
            tracing::debug!(%error, "cannot tell the other ranks that this one left");
        }
        in_order
    }

    /// Looks at the store for the reason why an operation stands still, at most once in a while.
    /// What was found breaks the group: it is for the caller to do so, and to publish it if this
    /// rank found it.
    pub(super) fn look(&self, oldest: u64) -> Option<(Abort, Found)> {
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

    fn ask(&self, oldest: u64) -> Result<Option<(Abort, Found)>> {
        let store = self.own_store()?;
        if store.check(&[ABORT])? {
            let told = Abort::decode(&store.get(ABORT)?).unwrap_or_else(|| Abort::User {
                rank: self.rank,
                why: "for a reason that this version does not know".to_owned(),
            });
            return Ok(Some((told, Found::Elsewhere)));
        }
        if oldest == 0 {
            return Ok(None);
        }
        let history: Vec<_> = lock(&self.numbers).history.iter().copied().collect();
        let own = (self.rank, self.size);
        let compared = block_on(inspect::compare(&*store, "mpi/stalled", own, &history))?;
        let Comparison { mismatch, elsewhere } = compared;
        if let Some(mismatch) = mismatch {
            return Ok(Some((mismatch, Found::Here)));
        }
        for &rank in &elsewhere {
            let key = left_key(rank);
            if store.check(&[&key])? && last_of(&store.get(&key)?) < oldest {
                let why = "it left the group".to_owned();
                return Ok(Some((Abort::Failed { rank, why }, Found::Here)));
            }
        }
        lock(&self.looks).elsewhere = (oldest, elsewhere);
        Ok(None)
    }

    /// Says what this rank's collective of this number is, and compares it with those of the other
    /// ranks, for which it waits no longer than `limit`.
    ///
    /// # Errors
    /// Those of the store; a mismatch is no error here, but the reason why the group breaks.
    pub(super) fn compare(
        &self,
        sequence: u64,
        ours: Fingerprint,
        limit: Duration,
    ) -> Result<Compared> {
        let key = |sequence: u64, rank: u32| format!("mpi/check/{sequence}/{rank}");
        let store = self.comparing_store()?;
        store.set(&key(sequence, self.rank), &ours.encode())?;
        let keys: Vec<String> = (0..self.size).map(|rank| key(sequence, rank)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        match store.wait(&keys, Some(limit)) {
            Err(Error::StoreTimeout { .. }) => return Ok(Compared::Unknown),
            waited => waited?,
        }
        let values = store.multi_get(&keys)?;
        if sequence > 2 {
            // All ranks have read it: they came to the one before this.
            store.delete_key(&key(sequence - 2, self.rank))?;
        }
        let differs = (0..).zip(&values).find_map(|(rank, bytes)| {
            let theirs = Fingerprint::decode(bytes.first_chunk()?);
            let side = |rank, fingerprint| Side { rank, fingerprint, message_bytes: None };
            (theirs != ours).then(|| Abort::Mismatch {
                sequence,
                one: side(self.rank, ours),
                other: side(rank, theirs),
            })
        });
        Ok(differs.map_or(Compared::Equal, Compared::Different))
    }

    /// A handle on the store for comparing alone, which waits there.
    fn comparing_store(&self) -> Result<Arc<dyn Store>> {
        if let Some(store) = &*lock(&self.compares) {
            return Ok(store.clone());
        }
        let store = self.store.clone_store()?;
        store.set_timeout(STORE_LIMIT);
        Ok(lock(&self.compares).insert(store).clone())
    }

    /// A handle on the store that does not wait for what the user does with the store.
    fn own_store(&self) -> Result<Arc<dyn Store>> {
        if let Some(store) = &lock(&self.looks).own {
            return Ok(store.clone());
        }
        let store = self.store.clone_store()?;
        store.set_timeout(STORE_LIMIT);
        Ok(lock(&self.looks).own.insert(store).clone())
    }
}

/// What came of comparing a collective.
pub(super) enum Compared {
    /// All ranks run the same.
    Equal,
    /// A rank runs another: the group must break.
    Different(Abort),
    /// Not all ranks have come.
    Unknown,
}

/// Who found why a group must break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This rank: the others are to be told.
    Here,
    /// Another rank, which told all.
    Elsewhere,
}

fn left_key(rank: u32) -> String {
    format!("mpi/left/{rank}")
}

fn last_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
