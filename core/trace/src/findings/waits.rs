//! Ranks that wait for each other in a circle. Each edge is a call that has not ended, from the
//! rank that waits in it to a rank that has not come to it: an operation, or one that makes a
//! group. Knows no collective's meaning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Finding, Kind, Severity, rendezvous};
use crate::dump::{Dump, Entry, Rendezvous};
use crate::job::{Job, Standing};
use crate::messages;
use crate::words;

/// Calls whose edges are followed, of one rank: the first that have not ended.
const MAX_CALLS: usize = 64;

/// A call that waits for a rank.
#[derive(Clone, Copy)]
struct Edge<'a> {
    dump: &'a Dump,
    call: Call<'a>,
    to: u32,
}

/// What a rank waits in.
#[derive(Clone, Copy)]
enum Call<'a> {
    Operation(&'a Entry),
    Rendezvous(&'a Rendezvous),
}

/// The circles in which ranks wait, each by its shortest path; no rank is in two.
pub(super) fn circles(job: &Job) -> Vec<Finding> {
    let edges = edges(job);
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    let mut found = Vec::new();
    for rank in edges.keys() {
        if taken.contains(rank) {
            continue;
        }
        let Some(circle) = shortest(&edges, *rank) else { continue };
        if circle.iter().any(|edge| taken.contains(&edge.dump.rank)) {
            continue;
        }
        taken.extend(circle.iter().map(|edge| edge.dump.rank));
        found.push(finding(job, &circle));
    }
    found
}

fn edges(job: &Job) -> BTreeMap<u32, Vec<Edge<'_>>> {
    let mut edges: BTreeMap<u32, Vec<Edge<'_>>> = BTreeMap::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for operation in &job.operations {
        let calls: Vec<_> = job.calls(operation).filter(|(_, call)| waits(call)).collect();
        if calls.is_empty() {
            continue;
        }
        let ranks = &job.groups[operation.group].ranks;
        let not_come = |rank: &&u32| job.standing(operation, **rank) == Standing::NotCome;
        let absent: Vec<u32> = ranks.iter().filter(not_come).copied().collect();
        for (dump, entry) in calls {
            let count = open.entry(dump.rank).or_default();
            *count += 1;
            if *count <= MAX_CALLS {
                let of_rank = edges.entry(dump.rank).or_default();
                let call = Call::Operation(entry);
                of_rank.extend(absent.iter().map(|to| Edge { dump, call, to: *to }));
            }
        }
    }
    for lonely in messages::lonely(job) {
        if let Some(to) = lonely.peer.filter(|_| waits(lonely.entry)) {
            let of_rank = edges.entry(lonely.dump.rank).or_default();
            of_rank.push(Edge { dump: lonely.dump, call: Call::Operation(lonely.entry), to });
        }
    }
    for waiting in rendezvous::all(job) {
        let absent = rendezvous::absent(job, &waiting);
        for (dump, meeting) in waiting {
            let of_rank = edges.entry(dump.rank).or_default();
            let call = Call::Rendezvous(meeting);
            of_rank.extend(absent.iter().map(|to| Edge { dump, call, to: *to }));
        }
    }
    edges
}

/// Whether its rank waits for the end of an operation, or has until that failed.
fn waits(entry: &Entry) -> bool {
    !entry.is_done() && (entry.is_awaited || !entry.is_in_flight())
}

/// The shortest way from a rank to itself.
fn shortest<'a>(edges: &BTreeMap<u32, Vec<Edge<'a>>>, start: u32) -> Option<Vec<Edge<'a>>> {
    let mut came_by: BTreeMap<u32, Edge<'a>> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(rank) = queue.pop_front() {
        for edge in edges.get(&rank).into_iter().flatten() {
            if came_by.contains_key(&edge.to) {
                continue;
            }
            came_by.insert(edge.to, *edge);
            if edge.to == start {
                return Some(way_back(&came_by, start));
            }
            queue.push_back(edge.to);
        }
    }
    None
}

fn way_back<'a>(came_by: &BTreeMap<u32, Edge<'a>>, start: u32) -> Vec<Edge<'a>> {
    let mut way = Vec::new();
    let mut at = start;
    while let Some(edge) = came_by.get(&at) {
        way.push(*edge);
        at = edge.dump.rank;
        if at == start {
            break;
        }
    }
    way.reverse();
    way
}

fn finding(job: &Job, circle: &[Edge<'_>]) -> Finding {
    let mut groups: Vec<String> = circle.iter().map(|edge| edge.group(job).to_owned()).collect();
    groups.sort_unstable();
    groups.dedup();
    let ranks: Vec<u32> = circle.iter().map(|edge| edge.dump.rank).collect();
    let between = match groups.as_slice() {
        [one] => format!("in {one}"),
        several => format!("between the groups {}", words::list(several)),
    };
    let text = format!("{} wait for each other {between}: a deadlock", words::ranks(&ranks));
    let mut finding = Finding::new(Kind::Deadlock, Severity::Error, text);
    for edge in circle {
        finding.details.push(format!(
            "rank {} is in {} and has waited {} for rank {}",
            edge.dump.rank,
            edge.what(job),
            words::duration(edge.waited_ns()),
            edge.to
        ));
    }
    if groups.len() > 1 && ranks.iter().all(|rank| circle.iter().all(|it| it.is_for(job, *rank))) {
        finding.details.push(format!(
            "these ranks use the groups {} in different orders; all must use them in the same \
             order",
            words::list(&groups)
        ));
    }
    finding.operation = circle.first().and_then(|edge| edge.name());
    finding.waited_ns = circle.iter().map(Edge::waited_ns).max();
    finding.groups = groups;
    finding.ranks = ranks;
    finding.ranks.sort_unstable();
    finding
}

impl Edge<'_> {
    /// What the group is called that the call uses, or makes.
    fn group<'job>(&'job self, job: &'job Job) -> &'job str {
        match self.call {
            Call::Operation(entry) => job.title_of(self.dump, entry),
            Call::Rendezvous(meeting) => &meeting.title,
        }
    }

    /// "barrier #3 of dp (train.py:41 in step)".
    fn what(&self, job: &Job) -> String {
        match self.call {
            Call::Operation(entry) => {
                words::operation(entry, self.group(job)) + &words::site(entry)
            }
            Call::Rendezvous(meeting) => {
                let place = rendezvous::place(self.dump, meeting);
                meeting.what() + &place.map(|place| format!(" ({place})")).unwrap_or_default()
            }
        }
    }

    fn waited_ns(&self) -> i64 {
        match self.call {
            Call::Operation(entry) => entry.end_ns(self.dump) - entry.created_ns,
            Call::Rendezvous(meeting) => self.dump.dumped_ns - meeting.since_ns,
        }
    }

    /// What was called.
    fn name(&self) -> Option<String> {
        match self.call {
            Call::Operation(entry) => Some(entry.name.clone()),
            Call::Rendezvous(meeting) => meeting.call.clone(),
        }
    }

    /// Whether all of its group are to make the call, this rank among them.
    fn is_for(&self, job: &Job, rank: u32) -> bool {
        match self.call {
            Call::Operation(entry) => {
                let group = &job.groups[job.group_of(self.dump, entry)];
                entry.message.is_none() && group.ranks.contains(&rank)
            }
            Call::Rendezvous(meeting) => meeting.ranks.contains(&rank),
        }
    }
}
