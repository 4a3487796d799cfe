//! A running job as its store and its ranks tell of it, from one look to the next. Knows nothing of
//! how it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polyrank::recorder::ProcessGroupStats;
use polyrank::recorder::report::{JobGroup, RankReport};

use crate::job_store::{JobStore, generation};

/// A job.
pub(super) struct Job {
    store: JobStore,
    /// The last reports, by the group's place in the store and rank.
    last: BTreeMap<(String, u32), RankReport>,
    /// The places of groups that were made again: of those before, the store still tells.
    replaced: BTreeSet<String>,
}

/// The ranks of a group that was not made out of another.
pub(super) struct GroupRows {
    pub(super) name: String,
    pub(super) rows: Vec<Row>,
}

/// A rank; without an answer nothing else of it is known.
pub(super) struct Row {
    pub(super) rank: u32,
    pub(super) answer: Option<Answer>,
}

/// What a rank has answered, and what has happened since its last answer.
pub(super) struct Answer {
    pub(super) report: RankReport,
    pub(super) operations_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// For whom it has waited longest, as a global rank, and which share of the time.
    pub(super) slowest_peer: Option<(u32, f64)>,
}

impl Job {
    /// The job whose ranks meet in the store at `url`.
    ///
    /// # Errors
    /// There is no store, in words.
    pub(super) fn open(url: &str) -> Result<Job, String> {
        Ok(Job { store: JobStore::open(url)?, last: BTreeMap::new(), replaced: BTreeSet::new() })
    }

    /// What it is called.
    pub(super) fn url(&self) -> &str {
        self.store.url()
    }

    /// Asks all ranks, which may take `limit` to answer. A group that was made again, so that
    /// nobody answers in the one before, is there once.
    ///
    /// # Errors
    /// The store cannot be asked, or nobody meets in it, in words.
    pub(super) fn look(&mut self, limit: Duration) -> Result<Vec<GroupRows>, String> {
        let mut groups = self.store.groups()?;
        groups.retain(|group| !self.replaced.contains(&group.place));
        let rows = groups.iter().map(|group| self.look_at(group, limit));
        let rows: Vec<GroupRows> = rows.collect::<Result<_, _>>()?;
        let generations: Vec<u64> = groups.iter().map(|it| generation(&it.place)).collect();
        let replaced = replaced(&rows, &generations);
        let mut shown = Vec::new();
        for ((group, rows), is_replaced) in groups.into_iter().zip(rows).zip(replaced) {
            match is_replaced {
                true => drop(self.replaced.insert(group.place)),
                false => shown.push(rows),
            }
        }
        Ok(shown)
    }

    fn look_at(&mut self, group: &JobGroup, limit: Duration) -> Result<GroupRows, String> {
        let reports = group.ask(limit).map_err(|error| error.to_string())?;
        let mut answers: BTreeMap<u32, Answer> = BTreeMap::new();
        for report in reports {
            let key = (group.place.clone(), report.rank);
            let before = self.last.insert(key, report.clone());
            answers.insert(report.rank, Answer::between(before.as_ref(), report));
        }
        let row = |&rank: &u32| Row { rank, answer: answers.remove(&rank) };
        Ok(GroupRows { name: group.name.clone(), rows: group.ranks.iter().map(row).collect() })
    }
}

/// Of each group, whether nobody answers in it, and somebody does in a later one of its name.
fn replaced(groups: &[GroupRows], generations: &[u64]) -> Vec<bool> {
    let is_there = |group: &GroupRows| group.rows.iter().any(|row| row.answer.is_some());
    let all = || groups.iter().zip(generations);
    let is_replaced = |(group, generation): (&GroupRows, &u64)| {
        let mut later = all().filter(|(it, later)| it.name == group.name && *later > generation);
        !is_there(group) && later.any(|(later, _)| is_there(later))
    };
    all().map(is_replaced).collect()
}

impl Answer {
    /// What has happened since `before`; since the groups were made, where there is none.
    fn between(before: Option<&RankReport>, report: RankReport) -> Answer {
        let mut answer = Answer {
            operations_per_second: 0.0,
            bytes_per_second: 0.0,
            slowest_peer: None,
            report: RankReport::default(),
        };
        let mut waits = BTreeMap::<u32, f64>::new();
        for group in &report.groups {
            let is_it = |known: &&ProcessGroupStats| {
                known.group == group.group && known.seconds <= group.seconds
            };
            let earlier = before.and_then(|before| before.groups.iter().find(is_it));
            let seconds = group.seconds - earlier.map_or(0.0, |it| it.seconds);
            if seconds <= 0.0 {
                continue;
            }
            let since = |of: fn(&ProcessGroupStats) -> u64| {
                of(group).saturating_sub(earlier.map_or(0, of)) as f64 / seconds
            };
            answer.operations_per_second += since(operations);
            answer.bytes_per_second += since(bytes);
            for peer in &group.peers {
                let known = earlier.and_then(|it| it.peers.iter().find(|it| it.rank == peer.rank));
                let waited = peer.waited_seconds - known.map_or(0.0, |it| it.waited_seconds);
                // Groups of one process wait beside one another, and looks are not exact.
                let share = waits.entry(peer.global_rank).or_default();
                *share = (*share + waited / seconds).min(1.0);
            }
        }
        let longest = waits.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        answer.slowest_peer = longest.filter(|(_, share)| *share > 0.0);
        answer.report = report;
        answer
    }
}

fn operations(group: &ProcessGroupStats) -> u64 {
    group.operations.iter().map(|operation| operation.count).sum()
}

fn bytes(group: &ProcessGroupStats) -> u64 {
    group.operations.iter().map(|operation| operation.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_were_made_again_are_not_shown_but_those_whose_ranks_are_all_gone() {
        let group = |name: &str, answers: &[bool]| {
            let answer = || Answer::between(None, RankReport::default());
            let row = |&there: &bool| Row { rank: 0, answer: there.then(answer) };
            GroupRows { name: name.to_owned(), rows: answers.iter().map(row).collect() }
        };
        let groups = [
            group("world", &[false, false]),
            group("world", &[false, true]),
            // It may answer soon.
            group("world", &[false]),
            group("other", &[false]),
            group("other", &[false]),
        ];
        assert_eq!(replaced(&groups, &[0, 1, 2, 0, 1]), [true, false, false, false, false]);
    }
}
