//! Operations to which somebody has not come, and those that do not end although all came. Those
//! whose ranks call different things are `mismatch`'s.

use std::collections::BTreeMap;

use super::{Finding, Kind, Severity, longest_wait, whereabouts};
use crate::dump::{Dump, Entry};
use crate::job::{Job, Operation, Standing};
use crate::words;

/// As many ranks are described one by one.
const MAX_DESCRIBED: usize = 8;

/// The first operation of each group that does not end.
pub(super) fn find(job: &Job, mismatches: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, group) in job.groups.iter().enumerate() {
        let title = &group.title;
        let mismatch = mismatches
            .iter()
            .find(|finding| finding.kind == Kind::Mismatch && finding.groups.contains(title));
        let end = mismatch.and_then(|finding| finding.sequence);
        let of_group = job.operations_of(at).iter();
        let before = of_group.take_while(|it| end.is_none_or(|end| it.sequence < end));
        let mut unfinished = None;
        let mut hang = None;
        for operation in before.filter(|it| job.calls(it).any(|(_, call)| !call.is_done())) {
            match hang_of(job, operation) {
                Some(finding) => {
                    hang = Some(finding);
                    break;
                }
                None if unfinished.is_none() => unfinished = unfinished_of(job, operation),
                None => {}
            }
        }
        found.extend(unfinished);
        found.extend(hang);
    }
    found
}

/// Who waits in an operation, and for whom; none if all have come.
fn hang_of(job: &Job, operation: &Operation) -> Option<Finding> {
    let group = &job.groups[operation.group];
    let with = |standing| -> Vec<u32> {
        let is_it = |rank: &&u32| job.standing(operation, **rank) == standing;
        group.ranks.iter().filter(is_it).copied().collect()
    };
    let (absent, unknown) = (with(Standing::NotCome), with(Standing::Unknown));
    if absent.is_empty() && unknown.is_empty() {
        return None;
    }
    let open: Vec<_> = job.calls(operation).filter(|(_, call)| !call.is_done()).collect();
    let entry = open.first()?.1;
    let name = words::operation(entry, &group.title);
    let waiting: Vec<u32> = open.iter().map(|(dump, _)| dump.rank).collect();
    let waited = longest_wait(open.iter().copied());
    let is_over = open.iter().all(|(_, call)| !call.is_in_flight());
    let wait = if is_over { "waited" } else { words::wait(&waiting) };
    let who = words::ranks(&waiting);
    let whom = words::ranks(if absent.is_empty() { &unknown } else { &absent });
    let text = format!("{who} {wait} in {name} for {whom}");
    let mut finding =
        Finding::new(Kind::Hang, Severity::Error, text).of(job, operation, &entry.name);
    finding.details.push(since(&open, &waiting));
    for rank in absent.iter().take(MAX_DESCRIBED) {
        finding.details.push(whereabouts(job, *rank));
    }
    if absent.len() > MAX_DESCRIBED {
        let more = words::ranks(&absent[MAX_DESCRIBED..]);
        finding.details.push(format!("{more} have not come either"));
    }
    finding.details.extend(without_file(&open, &unknown));
    finding.details.extend(behind(job, operation));
    finding.ranks = absent;
    finding.ranks.extend(unknown);
    finding.ranks.sort_unstable();
    finding.waiting = waiting;
    finding.waited_ns = waited;
    Some(finding)
}

/// All have come, and it has not ended everywhere: it runs, or what runs it is stuck.
fn unfinished_of(job: &Job, operation: &Operation) -> Option<Finding> {
    let calls: Vec<_> = job.calls(operation).collect();
    let in_flight: Vec<_> = calls.iter().filter(|(_, it)| it.is_in_flight()).copied().collect();
    let entry = in_flight.first()?.1;
    let name = words::operation(entry, &job.groups[operation.group].title);
    let ranks: Vec<u32> = in_flight.iter().map(|(dump, _)| dump.rank).collect();
    let waited = longest_wait(in_flight.iter().copied());
    let text = format!(
        "all ranks have come to {name}, and it has not ended on {}{}",
        words::ranks(&ranks),
        words::site(entry)
    );
    let mut finding =
        Finding::new(Kind::Unfinished, Severity::Note, text).of(job, operation, &entry.name);
    finding.details.push(since(&in_flight, &ranks));
    finding.details.push(
        "it was running when the files were written, or the data do not get through".to_owned(),
    );
    finding.ranks = ranks;
    finding.waited_ns = waited;
    Some(finding)
}

/// "they have waited up to 12 s (train.py:40 in step)", with who has come and when it failed.
fn since(open: &[(&Dump, &Entry)], ranks: &[u32]) -> String {
    let waited = words::duration(longest_wait(open.iter().copied()).unwrap_or(0));
    let mut sites: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (dump, entry) in open {
        if let Some(place) = words::place(entry) {
            sites.entry(place).or_default().push(dump.rank);
        }
    }
    let all = sites.len() == 1 && sites.values().all(|at| at.len() == ranks.len());
    let places: Vec<String> = sites
        .iter()
        .take(MAX_DESCRIBED)
        .map(
            |(place, at)| {
                if all { place.clone() } else { format!("{}: {place}", words::ranks(at)) }
            },
        )
        .collect();
    let places = match places.as_slice() {
        [] => String::new(),
        places => format!(" ({})", places.join("; ")),
    };
    let to = if ranks.len() == 1 { "" } else { "up to " };
    format!("{} {} waited {to}{waited}{places}", words::ranks(ranks), words::have(ranks))
}

/// What is known of the ranks of which there is no file.
fn without_file(open: &[(&Dump, &Entry)], unknown: &[u32]) -> Option<String> {
    if unknown.is_empty() {
        return None;
    }
    let reports =
        |(_, entry): &&(&Dump, &Entry)| unknown.iter().any(|rank| entry.waits_for.contains(rank));
    let by: Vec<u32> = open.iter().filter(reports).map(|(dump, _)| dump.rank).collect();
    let came = if by.is_empty() {
        "whether it came is not known".to_owned()
    } else {
        format!("{} {} for its data", words::ranks(&by), words::wait(&by))
    };
    Some(format!(
        "no file from {}: killed, stopped, not reachable or never started, which is not \
         known; {came}",
        words::ranks(unknown)
    ))
}

/// How many operations of the group wait behind it.
fn behind(job: &Job, operation: &Operation) -> Option<String> {
    let later = job.operations_of(operation.group).iter();
    let later = later.filter(|it| it.sequence > operation.sequence);
    let open = later.filter(|it| job.calls(it).any(|(_, call)| !call.is_done())).count();
    (open > 0).then(|| {
        let what = words::count(open, "later operation");
        let has = if open == 1 { "has" } else { "have" };
        format!("{what} of the group {has} not ended either")
    })
}
