//! What the groups of a process have called, counted, in a file that is written again and again,
//! and read by who serves it. Knows nothing of how it is counted.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::all;
use super::statistics::ProcessGroupStats;
use crate::env::variable;
use crate::whole_file;

/// A process that has not written for so long is taken for one that does not run: it writes once a
/// second.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How the names of files begin.
const PREFIX: &str = "polyrank_metrics_";

/// What a process has written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its ranks, as global ranks.
    pub ranks: Vec<u32>,
    /// What was counted in each of its groups.
    pub groups: Vec<ProcessGroupStats>,
    /// Whether it was written lately.
    #[serde(skip)]
    pub is_recent: bool,
}

impl Snapshot {
    /// That of this process.
    fn now() -> Snapshot {
        let groups = super::stats();
        let mut ranks: Vec<u32> = groups.iter().map(|group| group.global_rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Snapshot { ranks, groups, is_recent: true }
    }
}

/// Whether somebody reads what processes write.
pub(super) fn is_wanted() -> bool {
    variable::POLYRANK_METRICS_DIR.value().is_some()
}

/// Writes that of this process, if somebody reads it. Groups that are gone are not in it, but a
/// process without any leaves what it has written last.
pub(super) fn write() {
    let Some(folder) = variable::POLYRANK_METRICS_DIR.value() else { return };
    let folder = Path::new(&folder);
    // The folder goes with who serves it; a process that outlives that makes none.
    if all().is_empty() || !folder.is_dir() {
        return;
    }
    let path = folder.join(format!("{PREFIX}{}.json", crate::clock::process_id()));
    if let Err(error) = whole_file::write(&path, &Snapshot::now()) {
        tracing::debug!(%error, "cannot write {}", path.display());
    }
}

/// What processes have written to a folder, by rank; files that are not theirs, or cannot be read,
/// count for nothing.
///
/// # Errors
/// The folder cannot be read.
pub fn read_all(folder: &Path) -> io::Result<Vec<Snapshot>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(text) = fs::read(entry.path()) else { continue };
        let Ok(mut snapshot) = serde_json::from_slice::<Snapshot>(&text) else { continue };
        let written = entry.metadata().and_then(|it| it.modified());
        let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        snapshot.is_recent = age.is_none_or(|age| age <= MAX_AGE);
        all.push(snapshot);
    }
    all.sort_by(|one, other| one.ranks.cmp(&other.ranks));
    Ok(all)
}
