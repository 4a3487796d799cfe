//! What each rank of a job does and has counted, asked through the store by who takes no part.
//! Knows nothing of how it is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::questions::Topic;
use super::statistics::ProcessGroupStats;
use super::watch::{self, Standing};
use crate::blocking::block_on;
use crate::generated::error::Result;
use crate::store::{PrefixStore, Store};
use crate::whole_file::host_name;

const REPORTS: Topic = Topic { questions: "report requests", answers: "report" };
/// How the key ends under which a group's ranks note how many they are. What stands before it is
/// twice what begins the keys of the group: where it is, and where its ranks join.
const SIZE: &str = "/join/world_size";
/// What begins the keys of a group in its store.
const JOINS: &str = "/polyrank/";
/// Most ranks of a job.
const MAX_RANKS: u32 = 1 << 20;

/// What a rank does, and what it has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// The rank, as a global rank.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// What it waits for, or else its oldest operation that has not ended: what that is called, in
    /// which group, and for how many milliseconds.
    pub operation: Option<(String, String, u64)>,
    /// What was counted in each of its groups.
    pub groups: Vec<ProcessGroupStats>,
}

/// A group that was not made out of another, as the store knows it.
pub struct JobGroup {
    /// Its name.
    pub name: String,
    /// What its keys in the store begin with: of two jobs there, groups may have one name.
    pub place: String,
    /// Its ranks.
    pub ranks: Vec<u32>,
    pub(super) store: PrefixStore,
}

impl RankReport {
    /// That of the rank of this process with this global number.
    fn of(rank: u32) -> RankReport {
        let operation = watch::standing(rank)
            .map(|Standing { title, group, since_ms }| (title, group, since_ms));
        let mut groups = super::stats();
        groups.retain(|group| group.global_rank == rank);
        let (host, pid) = (host_name(), crate::clock::process_id());
        RankReport { rank, host, pid, operation, groups }
    }
}

impl JobGroup {
    /// Those of the jobs that meet in `store`.
    ///
    /// # Errors
    /// Those of the store.
    pub fn all(store: &std::sync::Arc<dyn Store>) -> Result<Vec<JobGroup>> {
        let mut found = BTreeMap::<String, String>::new();
        for key in store.list_keys()? {
            let Some((prefix, name)) = key.strip_suffix(SIZE).and_then(|it| it.rsplit_once(JOINS))
            else {
                continue;
            };
            if format!("/{prefix}").ends_with(&format!("{JOINS}{name}")) {
                found.insert(prefix.to_owned(), name.to_owned());
            }
        }
        let prefixes: Vec<String> = found.keys().cloned().collect();
        // Groups that were made out of another have their keys below its.
        let is_made =
            |prefix: &String| prefixes.iter().any(|other| prefix.starts_with(&format!("{other}/")));
        found.retain(|prefix, _| !is_made(prefix));
        let mut groups = Vec::new();
        for (prefix, name) in found {
            let size = store.get(&format!("{prefix}{JOINS}{name}{SIZE}"))?;
            // Whatever lies there is no job if it is not a number, or one of ranks that no job has.
            let size = String::from_utf8_lossy(&size).parse().unwrap_or(0);
            if !(1..=MAX_RANKS).contains(&size) {
                continue;
            }
            let store = PrefixStore::new(format!("{prefix}/{}", watch::PREFIX), store.clone());
            groups.push(JobGroup { name, place: prefix, ranks: (0..size).collect(), store });
        }
        Ok(groups)
    }

    /// The reports of the ranks that answer within `limit`, by rank.
    ///
    /// # Errors
    /// Those of the store.
    pub fn ask(&self, limit: Duration) -> Result<Vec<RankReport>> {
        let (answers, _) = block_on(REPORTS.ask(&self.store, &self.ranks, limit))?;
        let mut reports: Vec<RankReport> = answers.into_iter().map(|(_, report)| report).collect();
        reports.sort_by_key(|report| report.rank);
        Ok(reports)
    }
}

/// Answers the questions after `answered` as `rank`; the last of them.
///
/// # Errors
/// Those of the store.
pub(super) async fn answer(place: (&dyn Store, &str), rank: u32, answered: i64) -> Result<i64> {
    REPORTS.answer(place, (rank, answered), async { RankReport::of(rank) }).await
}
