//! Who comes last to the operations of a group, how often, and by how much. Knows no hang.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::dump::Entry;
use crate::job::Job;

/// When the members of a group came to its collectives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupArrivals {
    /// The group.
    pub group: String,
    /// Collectives to which all members came.
    pub operations: usize,
    /// From the first of these to the last.
    pub span_ns: i64,
    /// The members that came last to some.
    pub ranks: Vec<RankArrivals>,
    /// Whether the clocks of different hosts were compared without knowing how they differ.
    pub uncertain_clocks: bool,
}

/// How often a rank came last, and by how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RankArrivals {
    /// The rank.
    pub rank: u32,
    /// How often it was the last.
    pub times_last: usize,
    /// By how much, together: the others' median to this rank.
    pub late_ns: i64,
    /// The most of one operation.
    pub max_late_ns: i64,
}

impl GroupArrivals {
    /// The rank that most of the others' waiting is due to: last in two of three operations, and a
    /// tenth of the time between them.
    pub(crate) fn slow(&self) -> Option<&RankArrivals> {
        let slowest = self.ranks.iter().max_by_key(|rank| rank.late_ns)?;
        let is_often = slowest.times_last * 3 >= self.operations * 2;
        let is_much = slowest.late_ns >= self.span_ns / 10 && slowest.late_ns > 0;
        (self.operations >= 4 && is_often && is_much).then_some(slowest)
    }
}

impl Job {
    /// Who came last to the collectives of each group, where several members' dumps are there.
    #[must_use]
    pub fn arrivals(&self) -> Vec<GroupArrivals> {
        (0..self.groups.len()).filter_map(|group| self.arrivals_of(group)).collect()
    }

    fn arrivals_of(&self, at: usize) -> Option<GroupArrivals> {
        let group = &self.groups[at];
        let mut ranks: BTreeMap<u32, RankArrivals> = BTreeMap::new();
        let (mut operations, mut first, mut last) = (0, i64::MAX, i64::MIN);
        for operation in self.operations_of(at) {
            if operation.calls.len() != group.ranks.len() || group.ranks.len() < 2 {
                continue;
            }
            // Of what was done at once, a recorder may know the end alone.
            let is_known = |call: &Entry| call.completed_ns != Some(call.created_ns);
            if !self.calls(operation).all(|(_, call)| is_known(call)) {
                continue;
            }
            let calls = self.calls(operation);
            let mut times: Vec<_> =
                calls.map(|(dump, call)| (call.created_ns, dump.rank)).collect();
            times.sort_unstable();
            let Some((late, rank)) = times.pop() else { continue };
            let gap = late - times[times.len() / 2].0;
            operations += 1;
            (first, last) = (first.min(times[0].0), last.max(late));
            let of_rank = ranks.entry(rank).or_insert(RankArrivals { rank, ..Default::default() });
            of_rank.times_last += 1;
            of_rank.late_ns = of_rank.late_ns.saturating_add(gap);
            of_rank.max_late_ns = of_rank.max_late_ns.max(gap);
        }
        let members = group.places.keys().filter_map(|rank| self.dump(*rank));
        let mut hosts: Vec<_> = members.clone().map(|dump| dump.hostname.as_deref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let uncertain_clocks = hosts.len() > 1 && members.into_iter().any(|d| !d.has_clock_offset);
        (operations > 0).then(|| GroupArrivals {
            group: group.title.clone(),
            operations,
            span_ns: last - first,
            ranks: ranks.into_values().collect(),
            uncertain_clocks,
        })
    }
}
