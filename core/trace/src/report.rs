//! The report: what was found, for people and as JSON. Knows no file and no terminal.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::arrivals::GroupArrivals;
use crate::dump::{Dump, Entry, Rendezvous};
use crate::findings::{Finding, Severity, place_of_rendezvous};
use crate::job::Job;
use crate::selection::Selection;
use crate::words;

/// As many ranks have their line in the report.
const MAX_RANKS_SHOWN: usize = 64;
/// As many operations of a rank are shown where some are asked for.
const INDENT: &str = "  ";

/// All that is known, as data.
#[derive(Serialize)]
struct Report<'a> {
    run_id: Option<&'a str>,
    world_size: u32,
    missing: &'a [u32],
    obstacles: &'a [String],
    ok: bool,
    operations: usize,
    span_ns: i64,
    findings: Vec<Finding>,
    groups: Vec<GroupFacts<'a>>,
    ranks: Vec<RankFacts<'a>>,
    arrivals: Vec<GroupArrivals>,
}

#[derive(Serialize)]
struct GroupFacts<'a> {
    name: &'a str,
    title: &'a str,
    epoch: u64,
    ranks: &'a [u32],
    operations: usize,
}

#[derive(Serialize)]
struct RankFacts<'a> {
    rank: u32,
    hostname: Option<&'a str>,
    pid: Option<u64>,
    reason: Option<&'a str>,
    call_site: Option<&'a str>,
    breakpoint: Option<&'a str>,
    dumped_at_ns: i64,
    entries: usize,
    in_flight: usize,
    rendezvous: Vec<WaitingAt>,
    last: Vec<LastOperation<'a>>,
}

/// Where a rank waits for others to join a group.
#[derive(Serialize)]
struct WaitingAt {
    rendezvous: String,
    waited_ns: i64,
    place: Option<String>,
}

#[derive(Serialize)]
struct LastOperation<'a> {
    operation: String,
    group: &'a str,
    sequence: u64,
    state: &'a str,
    failed: Option<&'a str>,
    waited_ns: i64,
    place: Option<String>,
}

impl Job {
    /// What went wrong, in words, as lines of text.
    #[must_use]
    pub fn report(&self, selection: &Selection) -> String {
        let mut text = format!("{}\n", self.summary());
        for (reason, ranks) in self.reasons() {
            text.push_str(&format!("written by {}: {reason}\n", words::ranks(&ranks)));
        }
        for obstacle in &self.obstacles {
            text.push_str(&format!("not all ranks could be asked: {obstacle}\n"));
        }
        let mut findings = self.findings();
        findings.retain(|finding| selection.has_finding(self, finding));
        let (follows, causes): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.is_consequence);
        let (errors, notes): (Vec<_>, Vec<_>) =
            causes.into_iter().partition(|finding| finding.severity == Severity::Error);
        if errors.is_empty() && follows.is_empty() {
            text.push_str("\nNothing is wrong: nobody waits for anybody, and nothing failed.\n");
        }
        section(&mut text, "", &errors);
        section(&mut text, "This follows from it:", &follows);
        section(&mut text, "Also:", &notes);
        text.push_str(&self.last_of_ranks(selection));
        text
    }

    /// The same as JSON.
    #[must_use]
    pub fn report_json(&self, selection: &Selection) -> Value {
        let mut findings = self.findings();
        findings.retain(|finding| selection.has_finding(self, finding));
        let (first, last) = self.span();
        let group = |(at, group)| {
            let group: &crate::job::JobGroup = group;
            GroupFacts {
                name: &group.name,
                title: &group.title,
                epoch: group.epoch,
                ranks: &group.ranks,
                operations: self.operations_of(at).len(),
            }
        };
        let report = Report {
            run_id: self.run_id.as_deref(),
            world_size: self.world_size,
            missing: &self.missing,
            obstacles: &self.obstacles,
            ok: findings.iter().all(|finding| finding.severity != Severity::Error),
            operations: self.operations.len(),
            span_ns: last - first,
            findings,
            groups: self.groups.iter().enumerate().map(group).collect(),
            ranks: self.shown(selection).map(|dump| self.rank_facts(dump, selection)).collect(),
            arrivals: self.arrivals(),
        };
        // Strings and numbers cannot fail.
        serde_json::to_value(report).unwrap_or(Value::Null)
    }

    fn shown<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Dump> {
        self.dumps.iter().filter(|dump| selection.has_rank(dump.rank))
    }

    /// "4 ranks, files of 3 (none of rank 2); 2 groups, 68 collectives in 12 s".
    fn summary(&self) -> String {
        let run = self.run_id.as_ref().map(|run| format!("run {run}: ")).unwrap_or_default();
        let ranks = words::count(self.world_size as usize, "rank");
        let files = if self.missing.is_empty() {
            "files of all".to_owned()
        } else {
            format!("files of {}, none of {}", self.dumps.len(), words::ranks(&self.missing))
        };
        let (first, last) = self.span();
        format!(
            "{run}{ranks}, {files}; {}, {} in {}",
            words::count(self.groups.len(), "group"),
            words::count(self.operations.len(), "collective"),
            words::duration(last - first)
        )
    }

    fn reasons(&self) -> BTreeMap<&str, Vec<u32>> {
        let mut reasons: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for dump in &self.dumps {
            if let Some(reason) = &dump.reason {
                reasons.entry(reason).or_default().push(dump.rank);
            }
        }
        reasons
    }

    /// A line for each rank, or as many as are asked for.
    fn last_of_ranks(&self, selection: &Selection) -> String {
        let mut rows = Vec::new();
        let of_rank = |dump: &Dump| {
            let facts = self.rank_facts(dump, selection);
            let mut rows = Vec::new();
            for (at, last) in facts.last.iter().enumerate() {
                let rank = if at == 0 { format!("rank {}", dump.rank) } else { String::new() };
                let place = last.place.clone().unwrap_or_default();
                rows.push([rank, last.operation.clone(), state_words(last), place]);
            }
            for waiting in &facts.rendezvous {
                let rank =
                    if rows.is_empty() { format!("rank {}", dump.rank) } else { String::new() };
                let time = format!("waits for {}", words::duration(waiting.waited_ns));
                let place = waiting.place.clone().unwrap_or_default();
                rows.push([rank, waiting.rendezvous.clone(), time, place]);
            }
            if rows.is_empty() {
                let nothing = "nothing".to_owned();
                rows.push([format!("rank {}", dump.rank), nothing, String::new(), String::new()]);
            }
            rows
        };
        let shown: Vec<&Dump> = self.shown(selection).collect();
        shown.iter().take(MAX_RANKS_SHOWN).for_each(|dump| rows.extend(of_rank(dump)));
        let mut text = String::from("\nThe last operations of each rank:\n");
        text.push_str(&aligned(&rows));
        if shown.len() > MAX_RANKS_SHOWN {
            let more = shown.len() - MAX_RANKS_SHOWN;
            text.push_str(&format!("{INDENT}and {more} more ranks; --rank chooses\n"));
        }
        text
    }

    fn rank_facts<'a>(&'a self, dump: &'a Dump, selection: &Selection) -> RankFacts<'a> {
        let one = Selection { last: selection.last.or(Some(1)), ..selection.clone() };
        let chosen = one.entries(self, dump);
        let last = chosen.iter().map(|(group, entry)| self.last_operation(dump, *group, entry));
        RankFacts {
            rank: dump.rank,
            hostname: dump.hostname.as_deref(),
            pid: dump.pid,
            reason: dump.reason.as_deref(),
            call_site: dump.call_site.as_deref(),
            breakpoint: dump.breakpoint.as_deref(),
            dumped_at_ns: dump.dumped_ns,
            entries: dump.entries.len(),
            in_flight: dump.entries.iter().filter(|entry| entry.is_in_flight()).count(),
            rendezvous: dump.rendezvous.iter().map(|it| waiting_at(dump, it)).collect(),
            last: last.collect(),
        }
    }

    fn last_operation<'a>(
        &'a self,
        dump: &Dump,
        group: usize,
        entry: &'a Entry,
    ) -> LastOperation<'a> {
        let title = &self.groups[group].title;
        LastOperation {
            operation: words::operation(entry, title),
            group: title,
            sequence: entry.sequence,
            state: entry.state.name(),
            failed: entry.failed.as_deref(),
            waited_ns: entry.end_ns(dump) - entry.created_ns,
            place: words::place(entry),
        }
    }
}

fn waiting_at(dump: &Dump, meeting: &Rendezvous) -> WaitingAt {
    WaitingAt {
        rendezvous: meeting.what(),
        waited_ns: dump.dumped_ns - meeting.since_ns,
        place: place_of_rendezvous(dump, meeting),
    }
}

/// The findings under one heading, each with its details indented.
fn section(text: &mut String, heading: &str, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    if !heading.is_empty() {
        text.push_str(&format!("\n{heading}\n"));
    }
    for finding in findings {
        text.push_str(&format!("\n{}.\n", capitalised(&finding.text)));
        for detail in &finding.details {
            text.push_str(&format!("{INDENT}- {detail}\n"));
        }
    }
}

/// As a sentence begins; the name of a call stays as it is.
fn capitalised(text: &str) -> String {
    let is_call = text.split(' ').next().is_some_and(|word| word.contains('_'));
    let mut letters = text.chars();
    let first = letters.next().filter(|_| !is_call);
    match first {
        Some(first) => format!("{}{}", first.to_uppercase(), letters.as_str()),
        None => text.to_owned(),
    }
}

fn state_words(last: &LastOperation<'_>) -> String {
    let time = words::duration(last.waited_ns);
    match (last.failed, last.state) {
        (Some(_), _) => format!("failed after {time}"),
        // When it ended was noted nowhere.
        (None, "completed") if last.waited_ns == 0 => "ended".to_owned(),
        (None, "completed") => format!("ended after {time}"),
        (None, "started") => format!("runs for {time}"),
        (None, _) => format!("waits for {time}"),
    }
}

/// Rows with their columns one below the other.
fn aligned(rows: &[[String; 4]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), 0];
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let blanks = width.saturating_sub(cell.chars().count());
            format!("{cell}{}", " ".repeat(blanks))
        });
        let cells: Vec<String> = cells.collect();
        text.push_str(&format!("{INDENT}{}\n", cells.join("  ").trim_end()));
    }
    text
}
