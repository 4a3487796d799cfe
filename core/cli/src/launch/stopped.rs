//! Which ranks of this host are stopped, and how they go on. Knows nothing of who waits for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

use super::listeners::Listeners;

/// The processes of ranks that run, by rank.
#[derive(Clone, Default)]
pub(crate) struct RankProcesses(Arc<Mutex<BTreeMap<u32, Pid>>>);

impl RankProcesses {
    /// A rank was started as this process, or as something that this will start.
    pub(super) fn note(&self, rank: u32, process: Pid) {
        self.lock().insert(rank, process);
    }

    /// Its process has ended.
    pub(super) fn forget(&self, rank: u32) {
        self.lock().remove(&rank);
    }

    /// What is said of each that is stopped.
    pub(crate) fn stopped(&self) -> Vec<String> {
        let processes = self.lock().clone();
        // A rank that has begun to join a group has a handler for this one.
        let all = Listeners::now(Signal::USR1);
        let said = |(rank, process): (u32, Pid)| all.stopped_below(process).map(|it| it.said(rank));
        processes.into_iter().filter_map(said).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoppedProcess {
    pub(super) pid: i32,
    /// Whether it is the rank, and not something beside it.
    pub(super) is_rank: bool,
}

impl StoppedProcess {
    fn said(self, rank: u32) -> String {
        let StoppedProcess { pid, is_rank } = self;
        let who = match is_rank {
            true => format!("rank {rank}"),
            false => format!("a process of rank {rank}"),
        };
        format!("{who} is stopped (`kill -CONT {pid}` lets it go on)")
    }
}
