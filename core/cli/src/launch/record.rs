//! The record of a job (`--record FILE`): what ran where, how each rank ended, and when. Knows
//! nothing of how it came to that.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::report::{ProcessEnd, signal_name};

/// The version of the format; a field that is new does not change it.
const VERSION: u32 = 1;

/// What one launcher knows of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) run_id: String,
    /// "running", "succeeded", "failed", "interrupted" or "timed out".
    pub(super) state: String,
    pub(super) exit_code: Option<i32>,
    pub(super) world_size: u32,
    pub(super) nodes: u32,
    /// Where the ranks meet: what `polyrank trace`, `inspect` and `top` ask.
    pub(super) store: Option<String>,
    /// The programs, as a person would type them.
    pub(super) programs: Vec<String>,
    pub(super) started: String,
    pub(super) ended: Option<String>,
    /// The signal that the launcher got, if it ended the job.
    pub(super) signal: Option<String>,
    /// How often all ranks were started again, and how often they might have been.
    pub(super) restarts: u32,
    pub(super) max_restarts: u32,
    /// Where the ranks' output is, if it is kept.
    pub(super) logs: Option<String>,
    pub(super) attempts: Vec<Attempt>,
    /// The number of the replica, if this is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replica: Option<u32>,
    /// The lighthouse of the replicas, and what is known of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lighthouse: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replicas: Vec<Record>,
}

/// One start of the ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) restart: u32,
    pub(super) started: String,
    pub(super) ended: Option<String>,
    pub(super) first_failure: Option<Failure>,
    pub(super) ranks: Vec<Rank>,
}

/// What failed first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) rank: Option<u32>,
    pub(super) host: String,
    pub(super) time: String,
    /// How it ended, and what the rank itself said about it, if it did.
    pub(super) what: String,
    pub(super) message: Option<String>,
}

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) local_rank: u32,
    pub(super) host: String,
    pub(super) pid: i32,
    pub(super) program: String,
    pub(super) started: String,
    pub(super) ended: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<String>,
}

impl Record {
    /// A job that begins now.
    pub(super) fn new(run_id: String, programs: Vec<String>) -> Record {
        Record {
            version: VERSION,
            run_id,
            state: "running".to_owned(),
            exit_code: None,
            world_size: 0,
            nodes: 1,
            store: None,
            programs,
            started: now(),
            ended: None,
            signal: None,
            restarts: 0,
            max_restarts: 0,
            logs: None,
            attempts: Vec::new(),
            replica: None,
            lighthouse: None,
            replicas: Vec::new(),
        }
    }

    /// What failed first in the last start of the ranks, in words: which rank, and how.
    pub(super) fn last_failure(&self) -> Option<String> {
        let failure = self.attempts.last()?.first_failure.as_ref()?;
        let what = &failure.what;
        Some(match failure.rank {
            Some(rank) => format!("rank {rank}: {what}"),
            None => what.clone(),
        })
    }

    /// Writes the file whole: a reader sees the earlier one or this one, and no part.
    ///
    /// # Errors
    /// In words: the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("--record {}: cannot be written: {error}", path.display())
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))? + "\n";
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            failed(&error)
        })
    }

    /// Adds what another launcher of the job knows.
    pub(super) fn merge(&mut self, other: Record) {
        self.world_size = self.world_size.max(other.world_size);
        self.restarts = self.restarts.max(other.restarts);
        self.store = self.store.take().or(other.store);
        for attempt in other.attempts {
            match self.attempts.iter_mut().find(|own| own.restart == attempt.restart) {
                Some(own) => own.merge(attempt),
                None => self.attempts.push(attempt),
            }
        }
        self.attempts.sort_by_key(|attempt| attempt.restart);
    }
}

impl Attempt {
    fn merge(&mut self, other: Attempt) {
        self.started = self.started.clone().min(other.started);
        self.ended = self.ended.take().max(other.ended);
        self.ranks.extend(other.ranks);
        self.ranks.sort_by_key(|rank| rank.rank);
        let failures = self.first_failure.take().into_iter().chain(other.first_failure);
        // The launcher of the failed rank knows which it is; the others only that one failed.
        self.first_failure =
            failures.min_by_key(|failure| (failure.rank.is_none(), failure.time.clone()));
    }
}

impl Rank {
    /// Notes how it ended.
    pub(super) fn end(&mut self, ending: ProcessEnd) {
        self.ended = Some(now());
        match ending {
            ProcessEnd::Code(code) => self.exit_code = Some(code),
            ProcessEnd::Signal(signal) => self.signal = Some(signal_name(signal)),
        }
    }
}

/// This moment as records have it.
pub(super) fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The name of this host.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
