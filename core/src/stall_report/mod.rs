//! What a process has said of what it waits for long, in a file for the launcher, which says it
//! once for all ranks. Knows nothing of how it was found out.

mod call;
mod said;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::env::variable;
use crate::process_mutex::ProcessMutex;
use crate::whole_file;
pub(crate) use call::{AwaitedNames, WaitingCall};
pub(crate) use said::{MAX_STALL, ReportedWait, say_aloud, seconds};
pub use said::{stall_limit, taken_back};

/// How the names of files begin.
const PREFIX: &str = "polyrank_stalls_";
/// Most ranks that a report lists: each of a job's may have one.
pub(crate) const LISTED_RANKS: usize = 128;
/// The longest file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// What a rank has said of something that it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallReport {
    /// What is waited for: "allreduce #17 of group dp".
    pub subject: String,
    /// The name of the group: users may call several the same.
    #[serde(default)]
    pub group: String,
    /// Who waits, as a global rank, unless ranks that call it the same wait for it together.
    pub rank: Option<u32>,
    /// Who waits, and where the others are, in a sentence.
    pub text: String,
    /// The ranks that wait, as global ranks, as far as they are known: the first of them.
    pub waiting: Vec<u32>,
    /// How many they are.
    pub waiting_count: u32,
    /// The ranks of which the sentence tells: the first of them.
    pub concerned: Vec<u32>,
    /// How often it was said: 1 is the first time.
    pub times: u32,
    /// How long this rank had waited then, in milliseconds.
    pub waited_ms: u64,
}

/// What the launcher finds until this is dropped.
pub(crate) struct PublishedStall {
    number: u64,
}

struct Published {
    /// The number of forks before: a child does not wait for what its parent waits for.
    forks: u32,
    next: u64,
    reports: BTreeMap<u64, StallReport>,
}

static PUBLISHED: ProcessMutex<Published> =
    ProcessMutex::new(Published { forks: 0, next: 0, reports: BTreeMap::new() });

impl PublishedStall {
    /// Has the launcher find `report`.
    pub(crate) fn new(report: StallReport) -> PublishedStall {
        let mut published = PUBLISHED.lock();
        let forks = crate::fork::forks();
        if published.forks != forks {
            published.forks = forks;
            published.reports.clear();
        }
        let number = published.next;
        published.next += 1;
        published.reports.insert(number, report);
        write(&published.reports);
        PublishedStall { number }
    }
}

impl Drop for PublishedStall {
    fn drop(&mut self) {
        let mut published = PUBLISHED.lock();
        let is_own = published.forks == crate::fork::forks();
        if is_own && published.reports.remove(&self.number).is_some() {
            write(&published.reports);
        }
    }
}

/// Writes those of this process, if somebody reads them.
fn write(reports: &BTreeMap<u64, StallReport>) {
    let Some(folder) = variable::POLYRANK_STALL_DIR.value() else { return };
    let folder = Path::new(&folder);
    // The folder goes with the launcher; a process that outlives that makes none.
    if !folder.is_dir() {
        return;
    }
    let path = folder.join(format!("{PREFIX}{}.json", crate::clock::process_id()));
    let written = match reports.is_empty() {
        true => fs::remove_file(&path),
        false => whole_file::write(&path, &reports.values().collect::<Vec<_>>()),
    };
    if let Err(error) = written {
        tracing::debug!(%error, "cannot write {}", path.display());
    }
}

/// What processes have written to a folder; files that are not theirs, or cannot be read, count for
/// nothing.
///
/// # Errors
/// The folder cannot be read.
pub fn read_all(folder: &Path) -> io::Result<Vec<StallReport>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let is_short = || entry.metadata().is_ok_and(|it| it.is_file() && it.len() <= MAX_BYTES);
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !is_short() {
            continue;
        }
        let Ok(text) = fs::read(entry.path()) else { continue };
        all.extend(serde_json::from_slice::<Vec<StallReport>>(&text).unwrap_or_default());
    }
    Ok(all)
}
