//! Ranks that wait for each other in a circle. Each edge is a call that has not ended, from the
//! rank that made it to a rank that has not come to it. Knows no collective's meaning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Finding, Kind, Severity};
use crate::dump::{Dump, Entry};
use crate::job::{Job, Standing};
use crate::messages;
use crate::words;

/// Calls whose edges are followed, of one rank: the first that have not ended.
const MAX_CALLS: usize = 64;

/// A call that waits for a rank.
#[derive(Clone, Copy)]
struct Edge<'a> {
    from: (&'a Dump, &'a Entry),
    to: u32,
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
        if circle.iter().any(|edge| taken.contains(&edge.from.0.rank)) {
            continue;
        }
        taken.extend(circle.iter().map(|edge| edge.from.0.rank));
        found.push(finding(job, &circle));
    }
    found
}

fn edges(job: &Job) -> BTreeMap<u32, Vec<Edge<'_>>> {
    let mut edges: BTreeMap<u32, Vec<Edge<'_>>> = BTreeMap::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    for operation in &job.operations {
        let calls: Vec<_> = job.calls(operation).filter(|(_, call)| !call.is_done()).collect();
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
                of_rank.extend(absent.iter().map(|to| Edge { from: (dump, entry), to: *to }));
            }
        }
    }
    for lonely in messages::lonely(job) {
        if let Some(to) = lonely.peer.filter(|_| !lonely.entry.is_done()) {
            let of_rank = edges.entry(lonely.dump.rank).or_default();
            of_rank.push(Edge { from: (lonely.dump, lonely.entry), to });
        }
    }
    edges
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
        at = edge.from.0.rank;
        if at == start {
            break;
        }
    }
    way.reverse();
    way
}

fn finding(job: &Job, circle: &[Edge<'_>]) -> Finding {
    let title = |edge: &Edge<'_>| job.title_of(edge.from.0, edge.from.1).to_owned();
    let mut groups: Vec<String> = circle.iter().map(title).collect();
    groups.sort_unstable();
    groups.dedup();
    let ranks: Vec<u32> = circle.iter().map(|edge| edge.from.0.rank).collect();
    let between = match groups.as_slice() {
        [one] => format!("in {one}"),
        several => format!("between the groups {}", words::list(several)),
    };
    let text = format!("{} wait for each other {between}: a deadlock", words::ranks(&ranks));
    let mut finding = Finding::new(Kind::Deadlock, Severity::Error, text);
    for edge in circle {
        let (dump, entry) = edge.from;
        let (rank, name, site) =
            (dump.rank, words::operation(entry, &title(edge)), words::site(entry));
        let waited = words::duration(entry.end_ns(dump) - entry.created_ns);
        finding.details.push(format!(
            "rank {rank} is in {name}{site} and has waited {waited} for rank {}",
            edge.to
        ));
    }
    let is_member = |edge: &Edge<'_>, rank: &u32| {
        let group = &job.groups[job.group_of(edge.from.0, edge.from.1)];
        edge.from.1.message.is_none() && group.ranks.contains(rank)
    };
    if groups.len() > 1 && ranks.iter().all(|rank| circle.iter().all(|edge| is_member(edge, rank)))
    {
        finding.details.push(format!(
            "these ranks use the groups {} in different orders; all must use them in the same \
             order",
            words::list(&groups)
        ));
    }
    let first = circle.first().map(|edge| edge.from);
    finding.operation = first.map(|(_, entry)| entry.name.clone());
    finding.waited_ns = super::longest_wait(circle.iter().map(|edge| edge.from));
    finding.groups = groups;
    finding.ranks = ranks;
    finding.ranks.sort_unstable();
    finding
}
