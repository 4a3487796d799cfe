//! Failures, messages with one end, ranks without a file, and ranks that come last. Knows no
//! collective that hangs.

use std::collections::BTreeMap;

use super::{Finding, Kind, Severity, whereabouts};
use crate::dump::{Dump, Entry};
use crate::job::Job;
use crate::messages::{self, LonelyMessage};
use crate::words;

/// As many messages are described one by one.
const MAX_MESSAGES: usize = 8;

/// Messages that nobody sends, and that nobody receives. Those of a circle are told there.
pub(super) fn lonely_messages(job: &Job, findings: &[Finding]) -> Vec<Finding> {
    let is_told = |lonely: &LonelyMessage<'_>| {
        let circles = findings.iter().filter(|finding| finding.kind == Kind::Deadlock);
        let ends = [Some(lonely.dump.rank), lonely.peer];
        circles.into_iter().any(|it| ends.iter().flatten().all(|rank| it.ranks.contains(rank)))
    };
    let lonely = messages::lonely(job);
    let untold = lonely.iter().filter(|it| !is_told(it));
    untold.take(MAX_MESSAGES).map(|it| lonely_message(job, it)).collect()
}

fn lonely_message(job: &Job, lonely: &LonelyMessage<'_>) -> Finding {
    let LonelyMessage { dump, entry, group, peer, counted } = lonely;
    let title = &job.groups[*group].title;
    let name = words::operation(entry, title);
    let is_send = matches!(entry.message, Some(crate::dump::Message::SendTo(_)));
    let kind = if is_send { Kind::NotReceived } else { Kind::NotSent };
    let severity = if entry.is_done() { Severity::Note } else { Severity::Error };
    let (rank, site) = (dump.rank, words::site(entry));
    let what = match (is_send, peer) {
        (true, Some(peer)) => format!("rank {peer} has not received it"),
        (_, Some(peer)) => format!("rank {peer} has not sent it"),
        (_, None) => "no rank has sent it".to_owned(),
    };
    let text = if entry.is_done() {
        format!("rank {rank} has ended {name}{site}, and {what}")
    } else {
        format!("rank {rank} waits in {name}{site}, and {what}")
    };
    let mut finding = Finding::new(kind, severity, text);
    if !entry.is_done() {
        let waited = entry.end_ns(dump) - entry.created_ns;
        finding.waited_ns = Some(waited);
        finding.details.push(format!("it has waited {}", words::duration(waited)));
    }
    if let Some((sends, receives)) = counted {
        let (sends, receives) = (words::count(*sends, "send"), words::count(*receives, "receive"));
        finding.details.push(format!("from the one to the other were {sends} and {receives}"));
    }
    finding.details.extend(peer.map(|peer| whereabouts(job, peer)));
    finding.groups = vec![title.clone()];
    finding.operation = Some(entry.operation.clone());
    finding.ranks = peer.map_or_else(|| vec![rank], |peer| vec![peer]);
    finding.waiting = if entry.is_done() { Vec::new() } else { vec![rank] };
    finding
}

/// Per group, the first operation that failed with each text, and why the group failed.
pub(super) fn failures(job: &Job) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, group) in job.groups.iter().enumerate() {
        let mut first: Option<(&Dump, &Entry)> = None;
        let mut texts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (rank, place) in &group.places {
            let Some(dump) = job.dump(*rank) else { continue };
            let of_group = dump.entries.iter().filter(|entry| entry.group == *place);
            let failed = of_group.filter(|entry| entry.failed.is_some());
            let earliest = failed.min_by_key(|entry| entry.end_ns(dump));
            if let Some(entry) = earliest {
                let is_first =
                    first.is_none_or(|(with, known)| entry.end_ns(dump) < known.end_ns(with));
                first = if is_first { Some((dump, entry)) } else { first };
                texts.entry(entry.failed.as_deref().unwrap_or("")).or_default().push(*rank);
            }
            if let Some(failure) = &dump.groups[*place].failure {
                let ranks = texts.entry(failure).or_default();
                if !ranks.contains(rank) {
                    ranks.push(*rank);
                }
            }
        }
        if !texts.is_empty() {
            found.push(failure(job, at, first, &texts));
        }
    }
    found
}

fn failure(
    job: &Job,
    group: usize,
    first: Option<(&Dump, &Entry)>,
    texts: &BTreeMap<&str, Vec<u32>>,
) -> Finding {
    let title = &job.groups[group].title;
    let text = match first {
        Some((dump, entry)) => format!(
            "{} failed, first on rank {}{}",
            words::operation(entry, title),
            dump.rank,
            words::site(entry)
        ),
        None => format!("the group {title} failed"),
    };
    let mut finding = Finding::new(Kind::Failed, Severity::Error, text);
    finding.details =
        texts.iter().map(|(text, ranks)| format!("{}: {text}", words::ranks(ranks))).collect();
    finding.groups = vec![title.clone()];
    finding.operation = first.map(|(_, entry)| entry.name.clone());
    finding.sequence = first.map(|(_, entry)| entry.sequence);
    finding.ranks = texts.values().flatten().copied().collect();
    finding.ranks.sort_unstable();
    finding.ranks.dedup();
    finding
}

/// Ranks without a file that no finding names yet.
pub(super) fn missing_files(job: &Job, findings: &[Finding]) -> Option<Finding> {
    let is_named = |rank: &u32| findings.iter().any(|finding| finding.ranks.contains(rank));
    let missing: Vec<u32> = job.missing.iter().copied().filter(|rank| !is_named(rank)).collect();
    if missing.is_empty() {
        return None;
    }
    let text = format!(
        "no file from {}: killed, stopped, not reachable or never started, which is not \
         known",
        words::ranks(&missing)
    );
    // Where ranks can still fail for it, that is told by their own findings.
    let mut finding = Finding::new(Kind::NoFile, Severity::Note, text);
    finding.ranks = missing;
    Some(finding)
}

/// The rank of each group that comes last, again and again.
pub(super) fn slow_ranks(job: &Job) -> Vec<Finding> {
    let mut found = Vec::new();
    for arrivals in job.arrivals() {
        let Some(slow) = arrivals.slow() else { continue };
        let of = words::count(arrivals.operations, "collective");
        let text = format!(
            "rank {} came last to {} of {of} of {}, by {} together",
            slow.rank,
            slow.times_last,
            arrivals.group,
            words::duration(slow.late_ns)
        );
        let mut finding = Finding::new(Kind::SlowRank, Severity::Note, text);
        finding.details.push(format!(
            "the others waited for it {} of the {} between the first and the last of these, and \
             at most {} in one",
            share(slow.late_ns, arrivals.span_ns),
            words::duration(arrivals.span_ns),
            words::duration(slow.max_late_ns)
        ));
        if arrivals.uncertain_clocks {
            finding.details.push(
                "its ranks are on several hosts, and the files do not say how their clocks differ"
                    .to_owned(),
            );
        }
        finding.groups = vec![arrivals.group.clone()];
        finding.ranks = vec![slow.rank];
        found.push(finding);
    }
    found
}

fn share(part: i64, whole: i64) -> String {
    if whole <= 0 {
        return "all".to_owned();
    }
    format!("{:.0} %", 100.0 * part as f64 / whole as f64)
}
