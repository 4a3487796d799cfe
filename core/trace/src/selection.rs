//! What of a job is shown. What is found is found in all of it.

use crate::dump::{Dump, Entry};
use crate::findings::Finding;
use crate::job::{Job, JobGroup};

/// What is shown: all where nothing is chosen.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// These ranks.
    pub ranks: Vec<u32>,
    /// The groups of these names.
    pub groups: Vec<String>,
    /// As many of a rank's last operations.
    pub last: Option<usize>,
}

impl Selection {
    pub(crate) fn has_rank(&self, rank: u32) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    pub(crate) fn has_group(&self, group: &JobGroup) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|name| group.is_called(name))
    }

    /// Whether something that was found is about what is shown.
    pub(crate) fn has_finding(&self, job: &Job, finding: &Finding) -> bool {
        let mut ranks = finding.ranks.iter().chain(&finding.waiting);
        let has_rank = self.ranks.is_empty() || ranks.any(|rank| self.ranks.contains(rank));
        let is_known = |title: &String| {
            job.groups.iter().any(|group| group.title == *title && self.has_group(group))
        };
        // A group that is not made yet is known by its name.
        let has_group = |title: &String| self.groups.contains(title) || is_known(title);
        let no_group = self.groups.is_empty() || finding.groups.is_empty();
        has_rank && (no_group || finding.groups.iter().any(has_group))
    }

    /// The entries of a rank that are shown, each with its group's place in the job.
    pub(crate) fn entries<'a>(&self, job: &Job, dump: &'a Dump) -> Vec<(usize, &'a Entry)> {
        if !self.has_rank(dump.rank) {
            return Vec::new();
        }
        let places: Vec<usize> = (0..dump.groups.len())
            .map(|at| {
                let is_it = |group: &JobGroup| group.places.get(&dump.rank) == Some(&at);
                job.groups.iter().position(is_it).unwrap_or(0)
            })
            .collect();
        let all = dump.entries.iter().map(|entry| (places[entry.group], entry));
        let chosen: Vec<_> = all.filter(|(at, _)| self.has_group(&job.groups[*at])).collect();
        let left_out = self.last.map_or(0, |last| chosen.len().saturating_sub(last));
        chosen[left_out..].to_vec()
    }
}
