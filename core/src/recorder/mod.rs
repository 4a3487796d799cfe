//! The flight recorder: what the groups of this process have called lately, and what of it is not
//! done. Knows no backend, and nothing of why something is not done.
//!
//! It is always on. Operations that are done when their call returns leave a line in a ring,
//! without a lock (`brief`). Others take microseconds anyway; they are noted with their
//! completion, which says how and when they ended, so that nothing is called at their end.

mod brief;
mod dump;
mod files;
mod gather;
pub(crate) mod meetings;
mod note;
mod open_metrics;
mod pending;
mod questions;
pub mod report;
mod sites;
pub mod snapshot;
mod statistics;
#[cfg(test)]
mod tests;
mod ticks;
pub mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub(crate) use brief::{BegunNote, CallTime, DoneOperation, NO_RANK};
pub(crate) use note::{OperationKind, OperationNote, TensorNote};
pub use open_metrics::{CONTENT_TYPE, open_metrics};
pub(crate) use pending::IssuedNote;
pub use statistics::{OperationStats, PeerStats, ProcessGroupStats};

use crate::call_site::{self, CallFrame, call_frames};
use crate::clock::Instant;
use crate::debug_level::{DebugLevel, get_debug_level};
use crate::generated::error::Error;
use crate::process_mutex::ProcessMutex;
use crate::whole_file;
use brief::BriefOperations;
use pending::PendingOperations;

/// Operations of a group that are remembered.
pub(crate) const REMEMBERED: usize = 1000;

/// What a group has called.
pub(crate) struct Recorder {
    group: Mutex<GroupFacts>,
    brief: BriefOperations,
    pending: Mutex<PendingOperations>,
    /// The epoch of whose failure a file was written, and one.
    written: AtomicU64,
    /// The number of forks before it was made.
    forks: u32,
    /// Since when is counted.
    began: Instant,
    /// Who knows for whom of the present members operations wait.
    waits: Mutex<Option<WaitSource>>,
    /// Whether it is noted where operations were called.
    notes_calls: bool,
    /// Where ranks have called what they disagree on.
    sites: sites::Sites,
}

/// For whom of the group operations of this rank wait. Ranks are those of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How long they have waited for each.
    pub waited: Vec<(u32, Duration)>,
    /// The collectives that have not ended.
    pub collectives: Vec<OpenCollective>,
}

/// A collective that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCollective {
    /// Its number.
    pub sequence: u64,
    /// The ranks whose data, or whose consent to send, it waits for.
    pub waits_for: Vec<u32>,
    /// How long it may take.
    pub limit: Duration,
}

/// Knows for whom operations wait.
type WaitSource = Arc<dyn Fn() -> Waits + Send + Sync>;

/// Whose operations they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupFacts {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) rank: u32,
    /// Global ranks of the members, by group rank.
    pub(crate) members: Vec<u32>,
    pub(crate) backend: String,
    /// How often the members were replaced.
    pub(crate) epoch: u64,
}

/// An operation that was recorded.
#[derive(Clone, Debug)]
pub(crate) struct RecordedOperation {
    /// Its place among all that the group has called.
    pub(crate) number: u64,
    /// The method that was called.
    pub(crate) name: &'static str,
    /// What the user calls it.
    pub(crate) comm_name: Option<Arc<str>>,
    /// Its number among the group's collectives, or among its messages.
    pub(crate) sequence: u64,
    /// How many numbers it takes.
    pub(crate) parts: u64,
    pub(crate) note: OperationNote,
    /// When it was issued; none where only the end is known.
    pub(crate) issued: Option<Instant>,
    pub(crate) end: Option<RecordedEnd>,
    /// Whether somebody waits for it, or is to be told of its end.
    pub(crate) is_awaited: bool,
    /// Where it was called, the innermost line first, if that is noted.
    pub(crate) frames: Arc<[CallFrame]>,
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEnd {
    pub(crate) at: Instant,
    /// What its error says. The error itself may hold what belongs to the program.
    pub(crate) error: Option<Arc<str>>,
}

impl GroupFacts {
    /// What its user calls it: its description, if it has one.
    fn title(&self) -> &str {
        group_title(&self.name, &self.description)
    }

    /// As its title, with the name where other groups of this process are called the same.
    pub(crate) fn shown(&self) -> String {
        let is_shared = |other: &Arc<Recorder>| {
            let other = other.group();
            other.name != self.name && other.title() == self.title()
        };
        match self.title() != self.name && all().iter().any(is_shared) {
            true => with_name(self.title(), &self.name),
            false => self.title().to_owned(),
        }
    }

    /// This process's rank in the group of all; 0 in a group without members.
    fn global_rank(&self) -> u32 {
        self.members.get(self.rank as usize).copied().unwrap_or(0)
    }
}

/// "tp (default_pg:split:64dbcbc3ab5bf1a5:1)".
fn with_name(title: &str, name: &str) -> String {
    format!("{title} ({name})")
}

/// What its user calls a group of this name and description, which is empty if none was given.
fn group_title<'a>(name: &'a str, description: &'a str) -> &'a str {
    if description.is_empty() { name } else { description }
}

impl RecordedOperation {
    /// The method, with the user's name for it.
    fn title(&self) -> String {
        match &self.comm_name {
            Some(comm_name) => format!("{} '{comm_name}'", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// The recorders of this process, in the order in which their groups were made.
static ALL: ProcessMutex<Vec<Weak<Recorder>>> = ProcessMutex::new(Vec::new());

impl Recorder {
    /// That of a new group, which is one of [`all`] as long as it lives.
    pub(crate) fn new(group: GroupFacts) -> Arc<Recorder> {
        // A level that cannot be read is an error where groups are made.
        let notes_calls = get_debug_level() == Ok(DebugLevel::Detail);
        let recorder = Arc::new(Recorder {
            group: Mutex::new(group),
            brief: BriefOperations::default(),
            pending: Mutex::default(),
            written: AtomicU64::new(0),
            forks: crate::fork::forks(),
            began: Instant::now(),
            waits: Mutex::new(None),
            notes_calls,
            sites: sites::Sites::default(),
        });
        ticks::start();
        if notes_calls {
            call_site::want_frames();
        }
        if snapshot::is_wanted() {
            watch::look_after_process();
        }
        let mut all = ALL.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&recorder));
        recorder
    }

    /// The group has these members from now on. What was called among others is forgotten: ranks
    /// and numbers had another meaning.
    /// `waits` says for whom of them operations wait.
    pub(crate) fn describe(&self, group: GroupFacts, waits: WaitSource) {
        let mut known = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.epoch != group.epoch;
        *known = group;
        drop(known);
        let former = self.waits.lock().unwrap_or_else(PoisonError::into_inner).replace(waits);
        // Outside the lock: it may be the last who knows the backend.
        drop(former);
        if is_new {
            self.brief.forget();
            let former = self.pending().replace();
            // Outside the lock: errors may hold what belongs to the program.
            drop(former);
        }
    }

    /// Whose operations they are.
    pub(crate) fn group(&self) -> GroupFacts {
        self.group.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The time, if an operation that is called now, and may be done at once, is timed.
    #[inline]
    pub(crate) fn called(&self) -> CallTime {
        self.brief.called()
    }

    /// Notes an operation that is done.
    #[inline]
    pub(crate) fn note_done(&self, operation: &DoneOperation, called: CallTime) {
        self.brief.end(self.brief.begin(operation), called);
    }

    /// Begins to note an operation that may be done soon.
    #[inline]
    pub(crate) fn begin_note(&self, operation: &DoneOperation) -> BegunNote {
        self.brief.begin(operation)
    }

    /// Notes that it is done.
    #[inline]
    pub(crate) fn end_note(&self, note: BegunNote, called: CallTime) {
        self.brief.end(note, called);
    }

    /// Forgets what was begun, before the operation is noted as one that was issued.
    pub(crate) fn take_back(&self, note: BegunNote) {
        self.brief.take_back(note);
    }

    /// Notes an operation that was issued, on the thread that has called it.
    pub(crate) fn note_issued(&self, mut operation: IssuedNote) {
        if self.notes_calls {
            // Before the lock: it is the program that tells.
            operation.frames = call_frames();
        }
        let mut pending = self.pending();
        if !pending.renames(&operation) {
            pending.add(self.brief.next_number(), operation);
        }
    }

    /// What was called last, in the order of the calls.
    pub(crate) fn operations(&self) -> Vec<RecordedOperation> {
        let mut all = self.pending().operations();
        all.extend(self.brief.operations());
        all.sort_unstable_by_key(|operation| operation.number);
        let first = all.len().saturating_sub(REMEMBERED);
        // What is not done stays, however long ago it was called.
        let mut place = 0;
        all.retain(|operation| {
            place += 1;
            place > first || operation.end.is_none()
        });
        all
    }

    /// The last collective that was called.
    fn last_collective(&self) -> Option<RecordedOperation> {
        let is_collective = |it: &RecordedOperation| it.note.kind == OperationKind::Collective;
        self.operations().into_iter().rfind(is_collective)
    }

    /// The watch has looked: who asked whether something is done may do so no longer.
    fn note_look(&self) {
        self.pending().note_look();
    }

    /// What is not done.
    pub(crate) fn open_operations(&self) -> Vec<RecordedOperation> {
        self.pending().open_operations()
    }

    /// An operation has failed, as its caller learns. Writes what this rank remembers, if that is
    /// wanted: once for these members.
    pub(crate) fn note_failure(&self, error: &Error) {
        if self.is_of_this_process() {
            let released = self.pending().settle_all();
            drop(released);
        }
        // A forked child is not the rank, and may not wait for its locks.
        let folder = files::folder().filter(|_| self.is_of_this_process());
        let Some(folder) = folder else { return };
        let group = self.group();
        // Without members there is no rank whose file it would be.
        if group.members.is_empty() {
            return;
        }
        if self.written.swap(group.epoch + 1, Ordering::Relaxed) == group.epoch + 1 {
            return;
        }
        let rank = group.global_rank();
        // Where the program stands is not asked: this may be its own thread.
        let dump = dump::dump(rank, &format!("an operation failed: {error}"));
        write_rank(&folder, rank, &dump);
    }

    /// For whom operations wait, as far as that is known.
    fn waits(&self) -> Waits {
        let source = self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Outside the lock: it may be the last who knows the backend.
        source.map(|waits| waits()).unwrap_or_default()
    }

    fn is_of_this_process(&self) -> bool {
        self.forks == crate::fork::forks()
    }

    fn pending(&self) -> MutexGuard<'_, PendingOperations> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.notes_calls {
            call_site::want_no_frames();
        }
    }
}

/// Writes what this rank remembers.
fn write_rank(folder: &Path, rank: u32, dump: &serde_json::Value) {
    let path = files::of_rank(folder, rank);
    match whole_file::write(&path, dump) {
        Ok(()) => tracing::info!("what rank {rank} has called is in {}", path.display()),
        Err(error) => tracing::warn!(%error, "cannot write {}", path.display()),
    }
}

/// What was counted in all groups of this process.
pub(crate) fn stats() -> Vec<ProcessGroupStats> {
    let all = all().into_iter().map(|recorder| recorder.stats());
    all.filter(|group| group.size > 0).collect()
}

/// Those of all groups of this process that are not gone. Groups of the process that forked it are
/// not its own.
pub(crate) fn all() -> Vec<Arc<Recorder>> {
    let all = ALL.lock().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
    all.into_iter().filter(|recorder| recorder.is_of_this_process()).collect()
}
