//! Groups, and calls of all their ranks, to which somebody has not come, while others wait at the
//! rendezvous. Knows no operation.

use std::collections::BTreeMap;

use super::{Finding, Kind, Severity, whereabouts};
use crate::dump::{Dump, Rendezvous};
use crate::job::Job;
use crate::words;

/// As many ranks are described one by one.
const MAX_DESCRIBED: usize = 8;

/// What a rank has told, and the rendezvous at which it waits.
pub(super) type Waiting<'dump> = (&'dump Dump, &'dump Rendezvous);

/// Those of the job, in the order of the groups' names.
pub(super) fn find(job: &Job) -> Vec<Finding> {
    all(job).iter().filter_map(|waiting| finding(job, waiting)).collect()
}

/// Who waits at each rendezvous.
pub(super) fn all(job: &Job) -> Vec<Vec<Waiting<'_>>> {
    let mut found: BTreeMap<(&str, &[u32]), Vec<Waiting<'_>>> = BTreeMap::new();
    for dump in &job.dumps {
        for meeting in &dump.rendezvous {
            let key = (meeting.group.as_str(), meeting.ranks.as_slice());
            found.entry(key).or_default().push((dump, meeting));
        }
    }
    found.into_values().collect()
}

/// Those who are known not to have come to the rendezvous at which these wait.
pub(super) fn absent(job: &Job, waiting: &[Waiting<'_>]) -> Vec<u32> {
    let Some((_, meeting)) = waiting.first() else { return Vec::new() };
    let waits = |rank: &u32| waiting.iter().any(|(dump, _)| dump.rank == *rank);
    let is_reported =
        |rank: &u32| waiting.iter().any(|(_, meeting)| meeting.missing.contains(rank));
    let has_joined = |rank: u32| {
        let mut groups = job.dump(rank).into_iter().flat_map(|dump| &dump.groups);
        groups.any(|group| group.name == meeting.group)
    };
    // Who has told what it does, and not that it waits there, is elsewhere.
    let is_elsewhere = |rank: u32| job.dump(rank).is_some() && !has_joined(rank);
    let is_absent = |rank: &&u32| !waits(rank) && (is_reported(rank) || is_elsewhere(**rank));
    meeting.ranks.iter().filter(is_absent).copied().collect()
}

fn finding(job: &Job, waiting: &[Waiting<'_>]) -> Option<Finding> {
    let (_, meeting) = waiting.first()?;
    let absent = absent(job, waiting);
    let is_unknown = |rank: &&u32| job.dump(**rank).is_none() && !absent.contains(rank);
    let unknown: Vec<u32> = meeting.ranks.iter().filter(is_unknown).copied().collect();
    let ranks: Vec<u32> = waiting.iter().map(|(dump, _)| dump.rank).collect();
    let subject = &meeting.subject;
    let text = match (absent.as_slice(), unknown.as_slice()) {
        // They were about to go on.
        ([], []) => return None,
        ([], _) => format!(
            "{subject}: {} {}{} for ranks that have not come",
            words::ranks(&ranks),
            words::wait(&ranks),
            if meeting.makes_group { " at the rendezvous" } else { "" }
        ),
        _ => format!(
            "{subject}: {}{} {} not come{}",
            words::ranks(&absent),
            // Ranks of a call are named in it.
            if meeting.call.is_none() {
                format!(" of {}", meeting.ranks.len())
            } else {
                String::new()
            },
            words::have(&absent),
            if meeting.makes_group { " to the rendezvous" } else { "" }
        ),
    };
    let mut finding = Finding::new(Kind::Rendezvous, Severity::Error, text);
    let waited = waiting.iter().map(|(dump, it)| dump.dumped_ns - it.since_ns).max();
    finding.details.push(since(waiting, &ranks, waited.unwrap_or(0)));
    let described = absent.iter().take(MAX_DESCRIBED);
    finding.details.extend(described.map(|rank| match job.dump(*rank) {
        Some(_) => whereabouts(job, *rank),
        None => nothing_from(&[*rank], meeting),
    }));
    if !unknown.is_empty() {
        finding.details.push(nothing_from(&unknown, meeting));
    }
    finding.groups = vec![meeting.group.clone()];
    finding.operation.clone_from(&meeting.call);
    finding.ranks = [absent, unknown].concat();
    finding.ranks.sort_unstable();
    finding.waiting = ranks;
    finding.waited_ns = waited;
    Some(finding)
}

/// "ranks 0 and 1 have waited up to 12 s (train.py:40 in main)".
fn since(waiting: &[(&Dump, &Rendezvous)], ranks: &[u32], waited: i64) -> String {
    let mut places: Vec<String> =
        waiting.iter().filter_map(|(dump, meeting)| place(dump, meeting)).collect();
    places.sort_unstable();
    places.dedup();
    places.truncate(MAX_DESCRIBED);
    let places = match places.as_slice() {
        [] => String::new(),
        places => format!(" ({})", places.join("; ")),
    };
    let (have, to) = (words::have(ranks), if ranks.len() == 1 { "" } else { "up to " });
    format!("{} {have} waited {to}{}{places}", words::ranks(ranks), words::duration(waited))
}

fn nothing_from(ranks: &[u32], meeting: &Rendezvous) -> String {
    // Whoever is in the group was started.
    let causes = match meeting.makes_group {
        true => "not started, not at the rendezvous yet, stopped or killed",
        false => "stopped or killed",
    };
    format!("no file from {}: {causes}, which is not known", words::ranks(ranks))
}

/// Where in its program a rank waits, if that is known.
pub(crate) fn place(dump: &Dump, meeting: &Rendezvous) -> Option<String> {
    let noted = meeting.frames.first().map(words::frame);
    noted.or_else(|| dump.call_site.clone())
}
