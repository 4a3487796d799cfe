//! Ranks that call different things with one number: another collective, another size, dtype,
//! reduction or root. Only of operations that did not end well: what ended on all ranks was right.

use std::collections::BTreeMap;

use super::{Finding, Kind, Severity, longest_wait};
use crate::dump::{Dump, Entry};
use crate::job::{Job, Operation};
use crate::words;

/// What all members of a group must agree on, in the order in which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Agreement {
    operation: String,
    root: Option<u32>,
    reduce_op: Option<String>,
    dtypes: Option<Vec<String>>,
    elements: Option<u64>,
}

/// The first mismatch of each group.
pub(super) fn find(job: &Job) -> Vec<Finding> {
    let first = |group| job.operations_of(group).iter().find_map(|it| mismatch(job, it));
    (0..job.groups.len()).filter_map(first).collect()
}

fn mismatch(job: &Job, operation: &Operation) -> Option<Finding> {
    let calls: Vec<_> = job.calls(operation).collect();
    if calls.iter().all(|(_, entry)| entry.is_done()) {
        return None;
    }
    let mut kinds: BTreeMap<Agreement, Vec<(&Dump, &Entry)>> = BTreeMap::new();
    for (dump, entry) in &calls {
        kinds.entry(agreement(entry)).or_default().push((*dump, *entry));
    }
    let mut sides: Vec<_> = kinds.into_iter().collect();
    // The majority first; of two sides alike, that of the lowest rank.
    sides.sort_by_key(|(_, calls)| (std::cmp::Reverse(calls.len()), calls[0].0.rank));
    let (usual, others) = sides.split_first()?;
    let other = others.first()?;
    let differs = difference(&usual.0, &other.0);
    let group = &job.groups[operation.group].title;
    let name = usual.1[0].1.name.clone();
    let ranks_of = |calls: &[(&Dump, &Entry)]| -> Vec<u32> {
        calls.iter().map(|(dump, _)| dump.rank).collect()
    };
    let is_clear = usual.1.len() > other.1.len() && others.len() == 1;
    let sequence = operation.sequence;
    let text = if usual.0.operation == other.0.operation {
        format!("the ranks do not agree on {name} #{sequence} of {group}: {differs}")
    } else if is_clear {
        format!(
            "{}, and {} instead",
            who_calls(&usual.1, &words::operation(usual.1[0].1, group)),
            who_calls(&other.1, &format!("{} #{sequence}", other.1[0].1.name))
        )
    } else {
        format!("the ranks do not call the same as operation #{sequence} of {group}")
    };
    let mut finding = Finding::new(Kind::Mismatch, Severity::Error, text).of(job, operation, &name);
    for (_, calls) in &sides {
        finding.details.push(side(calls, group));
    }
    finding.details.extend(skipped(job, operation, &usual.1, &other.1));
    let odd = others.iter().flat_map(|(_, calls)| ranks_of(calls));
    finding.ranks = if is_clear { odd.collect() } else { ranks_of(&calls) };
    finding.ranks.sort_unstable();
    finding.waiting = if is_clear { ranks_of(&usual.1) } else { Vec::new() };
    finding.waited_ns = longest_wait(calls.iter().copied());
    let came = |rank: &&u32| !operation.calls.contains_key(rank);
    let absent: Vec<u32> = job.groups[operation.group].ranks.iter().filter(came).copied().collect();
    finding.details.extend(absent.into_iter().map(|rank| super::whereabouts(job, rank)));
    Some(finding)
}

/// "ranks 0, 1 and 3 are in allreduce #17 of default_pg (train.py:40 in step), for 12 s: SUM, …".
fn side(calls: &[(&Dump, &Entry)], group: &str) -> String {
    let entry = calls[0].1;
    let (sizes, dtypes) = if entry.input_sizes.is_empty() {
        (&entry.output_sizes, &entry.output_dtypes)
    } else {
        (&entry.input_sizes, &entry.input_dtypes)
    };
    let mut what = Vec::new();
    if let Some(op) = &entry.reduce_op {
        what.push(op.clone());
    }
    if !sizes.is_empty() {
        what.push(words::tensors(sizes, dtypes));
    }
    if let Some(root) = entry.root {
        what.push(format!("root {root}"));
    }
    let what = if what.is_empty() { String::new() } else { format!(": {}", what.join(", ")) };
    let waited = words::duration(longest_wait(calls.iter().copied()).unwrap_or(0));
    let calls = who_calls(calls, &words::operation(entry, group));
    format!("{calls}{}, for {waited}{what}", words::site(entry))
}

/// "ranks 0, 1 and 3 are in allreduce #17", or "called" it, if it has ended.
fn who_calls(calls: &[(&Dump, &Entry)], name: &str) -> String {
    let ranks: Vec<u32> = calls.iter().map(|(dump, _)| dump.rank).collect();
    let is_there = calls.iter().any(|(_, entry)| entry.is_in_flight());
    let verb = if is_there { format!("{} in", words::are(&ranks)) } else { "called".to_owned() };
    format!("{} {verb} {name}", words::ranks(&ranks))
}

/// If what the other side calls has followed before on what this side calls, it has left that out.
fn skipped(
    job: &Job,
    operation: &Operation,
    usual: &[(&Dump, &Entry)],
    other: &[(&Dump, &Entry)],
) -> Option<String> {
    let (here, there) = (usual.first()?.1, other.first()?.1);
    let is_like = |a: &Entry, b: &Entry| agreement(a) == agreement(b) && a.frames == b.frames;
    let dump = usual.first()?.0;
    let call = |it: &Operation| it.calls.get(&dump.rank).and_then(|at| dump.entries.get(*at));
    let before = job.operations_of(operation.group).windows(2).any(|pair| {
        let (first, second) = (call(&pair[0]), call(&pair[1]));
        let is_before = pair[1].sequence < operation.sequence;
        is_before
            && first.is_some_and(|first| is_like(first, here))
            && second.is_some_and(|second| is_like(second, there))
    });
    let ranks: Vec<u32> = other.iter().map(|(dump, _)| dump.rank).collect();
    (before && !is_like(here, there)).then(|| {
        format!(
            "it looks as if {} {} left out {}{}: before, {}{} followed on it",
            words::ranks(&ranks),
            words::have(&ranks),
            here.name,
            words::site(here),
            there.name,
            words::site(there),
        )
    })
}

fn agreement(entry: &Entry) -> Agreement {
    let operation = words::canonical(&entry.operation);
    let (reads, writes) = compared(&operation);
    // A recorder may have noted shapes or sizes, of tensors one by one or together. A product that
    // does not fit is as good as any other.
    let elements = |shapes: &[Vec<u64>]| -> u64 {
        let product = |shape: &Vec<u64>| shape.iter().fold(1u64, |all, n| all.wrapping_mul(*n));
        shapes.iter().map(product).fold(0, u64::wrapping_add)
    };
    let input = (reads && !entry.input_sizes.is_empty()).then(|| elements(&entry.input_sizes));
    let output = (writes && !entry.output_sizes.is_empty()).then(|| elements(&entry.output_sizes));
    let dtypes = [&entry.input_dtypes, &entry.output_dtypes].into_iter().find(|it| !it.is_empty());
    let mut dtypes = dtypes.cloned();
    if let Some(dtypes) = &mut dtypes {
        dtypes.sort_unstable();
        dtypes.dedup();
    }
    Agreement {
        operation,
        root: entry.root,
        reduce_op: entry.reduce_op.clone(),
        dtypes,
        elements: input.or(output),
    }
}

/// Whether the sizes of what an operation reads, and of what it writes, are alike on all ranks.
fn compared(operation: &str) -> (bool, bool) {
    let uneven = ["vsingle", "alltoall", "object", "permute", "neighbor", "sparse"];
    if operation.ends_with('v') || uneven.iter().any(|it| operation.contains(it)) {
        return (false, false);
    }
    if operation.contains("scatter") && !operation.contains("reduce") {
        return (false, true);
    }
    (true, !operation.contains("gather") || operation.contains("all"))
}

fn difference(a: &Agreement, b: &Agreement) -> &'static str {
    if a.root != b.root {
        "their roots differ"
    } else if a.reduce_op != b.reduce_op {
        "their reductions differ"
    } else if a.dtypes != b.dtypes {
        "their dtypes differ"
    } else {
        "their sizes differ"
    }
}
