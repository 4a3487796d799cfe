//! What went wrong in a job: from its operations to sentences, the cause before what follows from
//! it.
//!
//! | Looks for                                            | Module       |
//! |------------------------------------------------------|--------------|
//! | ranks that call different things with one number     | `mismatch`   |
//! | ranks that wait in a circle                          | `waits`      |
//! | an operation to which somebody has not come          | `hangs`      |
//! | a group to which somebody has not come               | `rendezvous` |
//! | failures, slow ranks, ranks without a file, messages | `others`     |
//!
//! Knows no terminal and no drawing.

mod hangs;
mod mismatch;
mod others;
mod rendezvous;
mod waits;

pub(crate) use rendezvous::place as place_of_rendezvous;
use serde::Serialize;

use crate::dump::{Dump, Entry};
use crate::job::{Job, Operation};
use crate::words;

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Ranks call different things.
    Mismatch,
    /// Ranks wait for each other in a circle.
    Deadlock,
    /// Ranks wait in an operation to which others have not come.
    Hang,
    /// Ranks wait for others to join a group.
    Rendezvous,
    /// All have come to an operation, and it has not ended everywhere.
    Unfinished,
    /// Nobody sends what a rank receives.
    NotSent,
    /// Nobody receives what a rank sends.
    NotReceived,
    /// An operation or a group failed.
    Failed,
    /// A rank has left no file.
    NoFile,
    /// A rank comes last, again and again.
    SlowRank,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job cannot go on.
    Error,
    /// Worth to know.
    Note,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What kind of thing it is.
    pub kind: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// Whether it follows from another that is an error.
    pub is_consequence: bool,
    /// The groups that it is about.
    pub groups: Vec<String>,
    /// The operation, by its name.
    pub operation: Option<String>,
    /// The number of the collective.
    pub sequence: Option<u64>,
    /// The ranks to look at.
    pub ranks: Vec<u32>,
    /// The ranks that wait for them.
    pub waiting: Vec<u32>,
    /// For how long the first of those has waited when its dump was written.
    pub waited_ns: Option<i64>,
    /// What it is, in a sentence.
    pub text: String,
    /// What more is known, a sentence each.
    pub details: Vec<String>,
}

impl Finding {
    fn new(kind: Kind, severity: Severity, text: String) -> Finding {
        Finding {
            kind,
            severity,
            is_consequence: false,
            groups: Vec::new(),
            operation: None,
            sequence: None,
            ranks: Vec::new(),
            waiting: Vec::new(),
            waited_ns: None,
            text,
            details: Vec::new(),
        }
    }

    fn of(mut self, job: &Job, operation: &Operation, name: &str) -> Finding {
        self.groups = vec![job.groups[operation.group].title.clone()];
        self.operation = Some(name.to_owned());
        self.sequence = Some(operation.sequence);
        self
    }
}

impl Job {
    /// What went wrong, the cause before what follows from it; nothing if nothing did.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = mismatch::find(self);
        findings.extend(waits::circles(self));
        let hangs = hangs::find(self, &findings);
        let untold: Vec<_> =
            hangs.into_iter().filter(|hang| !is_of_a_circle(hang, &findings)).collect();
        findings.extend(untold);
        let late = rendezvous::find(self);
        let untold: Vec<_> =
            late.into_iter().filter(|late| !is_of_a_circle(late, &findings)).collect();
        findings.extend(untold);
        findings.extend(others::lonely_messages(self, &findings));
        findings.extend(others::failures(self));
        findings.extend(others::missing_files(self, &findings));
        findings.extend(others::slow_ranks(self));
        mark_consequences(self, &mut findings);
        let order = |finding: &Finding| {
            let severity = finding.severity != Severity::Error;
            // Failures tell how it ended; what the other findings say is why.
            (severity, finding.is_consequence, finding.kind == Kind::Failed)
        };
        findings.sort_by_key(order);
        findings
    }
}

/// Whether a circle has told all that a hang, or a rendezvous, would.
fn is_of_a_circle(hang: &Finding, circles: &[Finding]) -> bool {
    let mut circles = circles.iter().filter(|finding| finding.kind == Kind::Deadlock);
    circles.any(|circle| {
        matches!(hang.kind, Kind::Hang | Kind::Rendezvous)
            && hang.ranks.iter().chain(&hang.waiting).all(|rank| circle.ranks.contains(rank))
    })
}

/// A hang whose ranks are themselves held up in what another finding is about follows from it.
fn mark_consequences(job: &Job, findings: &mut [Finding]) {
    let held: Vec<(usize, Vec<u32>)> = findings
        .iter()
        .enumerate()
        .filter(|(_, it)| !matches!(it.kind, Kind::SlowRank | Kind::NoFile | Kind::Failed))
        .map(|(at, finding)| {
            let own = matches!(finding.kind, Kind::Mismatch | Kind::Deadlock | Kind::Unfinished);
            let ranks = if own {
                finding.ranks.iter().chain(&finding.waiting)
            } else {
                [].iter().chain(&finding.waiting)
            };
            (at, ranks.copied().collect())
        })
        .collect();
    let mut followed = Vec::new();
    for (at, finding) in findings.iter().enumerate() {
        let waits_for_ranks = matches!(
            finding.kind,
            Kind::Hang | Kind::NotSent | Kind::NotReceived | Kind::Rendezvous
        );
        if !waits_for_ranks {
            continue;
        }
        let known: Vec<_> = finding.ranks.iter().filter(|r| job.dump(**r).is_some()).collect();
        let causes: Vec<usize> = held
            .iter()
            .filter(|(other, ranks)| *other != at && known.iter().any(|rank| ranks.contains(rank)))
            .map(|(other, _)| *other)
            .collect();
        let is_held =
            |rank: &&&u32| held.iter().any(|(other, ranks)| *other != at && ranks.contains(rank));
        if !known.is_empty() && known.iter().all(|rank| is_held(&rank)) {
            followed.push((at, causes));
        }
    }
    // Two that follow from each other are both causes: circles have their own finding.
    let all: Vec<usize> = followed.iter().map(|(at, _)| *at).collect();
    for (at, causes) in &followed {
        let is_rooted = causes.iter().any(|cause| {
            !all.contains(cause) || followed.iter().any(|(it, of)| it == cause && !of.contains(at))
        });
        findings[*at].is_consequence = is_rooted;
        for cause in causes.iter().filter(|_| is_rooted) {
            findings[*cause].severity = Severity::Error;
        }
    }
}

/// The last operation of a rank that has not ended, and how many more there are.
fn open(dump: &Dump) -> Option<(&Entry, usize)> {
    let mut open = dump.entries.iter().rev().filter(|entry| entry.is_in_flight());
    let last = open.next()?;
    Some((last, open.count()))
}

/// "rank 2 is in broadcast #17 of default_pg (train.py:41 in step)", or what it did last.
fn whereabouts(job: &Job, rank: u32) -> String {
    let Some(dump) = job.dump(rank) else {
        return format!(
            "no file from rank {rank}: it was killed, is stopped, cannot be reached, or \
             never started; which of these is not known"
        );
    };
    let stands = match (&dump.breakpoint, &dump.call_site) {
        (Some(site), _) => format!("; it is at its breakpoint, {site}"),
        (None, Some(site)) => format!("; its program is at {site}"),
        (None, None) => String::new(),
    };
    let name = |entry: &Entry| words::operation(entry, job.title_of(dump, entry));
    if let Some((entry, more)) = open(dump) {
        let more = match more {
            0 => String::new(),
            more => format!(", and {} more in flight", words::count(more, "operation")),
        };
        let waited = words::duration(dump.dumped_ns - entry.created_ns);
        let (name, site) = (name(entry), words::site(entry));
        return format!("rank {rank} is in {name}{site}, for {waited}{more}{stands}");
    }
    if let Some(meeting) = dump.rendezvous.first() {
        let waited = words::duration(dump.dumped_ns - meeting.since_ns);
        let site = meeting.frames.first().map(|frame| format!(" ({})", words::frame(frame)));
        let (what, site) = (meeting.what(), site.unwrap_or_default());
        return format!("rank {rank} is in {what}{site}, for {waited}{stands}");
    }
    let Some(entry) = dump.entries.last() else {
        return format!("rank {rank} has issued nothing at all{stands}");
    };
    let (name, site) = (name(entry), words::site(entry));
    let ago = words::duration(dump.dumped_ns - entry.end_ns(dump));
    match &entry.failed {
        Some(why) => format!(
            "rank {rank} has issued nothing since {name}{site} failed {ago} before its file was \
             written: {why}{stands}"
        ),
        None => format!(
            "rank {rank} has issued nothing since {name}{site}, which ended {ago} before its file \
             was written{stands}"
        ),
    }
}

/// The longest that one of these calls waits: until it failed, or until the dump was written.
fn longest_wait<'a>(calls: impl Iterator<Item = (&'a Dump, &'a Entry)>) -> Option<i64> {
    calls.map(|(dump, entry)| entry.end_ns(dump) - entry.created_ns).max()
}
