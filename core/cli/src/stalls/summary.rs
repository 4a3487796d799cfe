//! What there is to say, once for all ranks, of what they have said of stalls. Knows neither files
//! nor screens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use polyrank::recorder::stall_report::StallReport;

/// How long the others may take to say theirs, once one rank has: they look once a second.
const SETTLE: Duration = Duration::from_secs(1);
/// Most stalls that are told at a time, each with the ranks that it concerns.
const MAX_TOLD: usize = 4;

/// What was said.
#[derive(Default)]
pub(super) struct StallSummary {
    said: Vec<SaidStall>,
    /// How often what was said most often was said.
    times: u32,
    /// Since when there is something to say.
    news_since: Option<Instant>,
}

struct SaidStall {
    subject: String,
    /// Of whom it told.
    concerned: BTreeSet<u32>,
    /// When it was said, and how long the ranks had waited then.
    at: Instant,
    waited: Duration,
}

impl StallSummary {
    /// The lines to be said now, if these are all reports of stalls that last.
    pub(super) fn look(&mut self, reports: Vec<StallReport>, now: Instant) -> Vec<String> {
        let reports = by_subject(reports);
        let mut lines = self.take_back(&reports, now);
        let again = reports.values().any(|report| report.times > self.times);
        let news: Vec<_> =
            reports.into_values().filter(|report| again || !self.tells_of(report)).collect();
        if news.is_empty() {
            self.news_since = None;
        } else if now.saturating_duration_since(*self.news_since.get_or_insert(now)) >= SETTLE {
            self.news_since = None;
            if again {
                self.said.clear();
            }
            lines.extend(self.say(news, now));
        }
        lines
    }

    /// Says of what is over that it is.
    fn take_back(&mut self, reports: &BTreeMap<String, StallReport>, now: Instant) -> Vec<String> {
        let over = self.said.extract_if(.., |said| !reports.contains_key(&said.subject));
        let lines = over.map(|SaidStall { subject, at, waited, .. }| {
            StallReport::taken_back(&subject, waited + now.saturating_duration_since(at))
        });
        let lines = lines.collect();
        if reports.is_empty() {
            self.times = 0;
        }
        lines
    }

    /// Whether it was said what this report tells.
    fn tells_of(&self, report: &StallReport) -> bool {
        let is_concerned = |rank| self.said.iter().any(|said| said.concerned.contains(rank));
        self.said.iter().any(|said| said.subject == report.subject)
            || report.waiting.iter().all(is_concerned)
    }

    /// Says those first for which most ranks wait, and leaves out whoever was named with them.
    fn say(&mut self, mut news: Vec<StallReport>, now: Instant) -> Vec<String> {
        news.sort_by_key(|it| (Reverse(it.waiting.len()), it.waiting.first().copied()));
        let (mut lines, mut left_out) = (Vec::new(), BTreeSet::new());
        for report in news {
            self.times = self.times.max(report.times);
            if self.tells_of(&report) {
                continue;
            }
            if lines.len() == MAX_TOLD {
                left_out.extend(report.waiting);
                continue;
            }
            lines.push(report.text);
            let waited = Duration::from_millis(report.waited_ms);
            let concerned = report.concerned.into_iter().chain(report.waiting).collect();
            self.said.push(SaidStall { subject: report.subject, concerned, at: now, waited });
        }
        left_out.retain(|rank| !self.said.iter().any(|said| said.concerned.contains(rank)));
        match left_out.len() {
            0 => {}
            1 => lines.push("1 more rank waits; its own log says for what".to_owned()),
            more => lines.push(format!("{more} more ranks wait; their own logs say for what")),
        }
        lines
    }
}

/// Of each subject the report that knows of most ranks that wait for it, with the greatest number
/// of times.
fn by_subject(reports: Vec<StallReport>) -> BTreeMap<String, StallReport> {
    let mut all = BTreeMap::<String, StallReport>::new();
    for report in reports {
        match all.get_mut(&report.subject) {
            None => drop(all.insert(report.subject.clone(), report)),
            Some(known) => {
                let times = known.times.max(report.times);
                if (known.waiting.len(), known.times) < (report.waiting.len(), report.times) {
                    *known = report;
                }
                known.times = times;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(subject: &str, waiting: &[u32], concerned: &[u32], times: u32) -> StallReport {
        StallReport {
            subject: subject.to_owned(),
            text: format!("{subject}: {waiting:?}"),
            waiting: waiting.to_vec(),
            concerned: concerned.to_vec(),
            times,
            waited_ms: 10_000 << (times - 1),
        }
    }

    /// What is said of these, each a second after the one before.
    fn said(all: &[&[StallReport]]) -> Vec<Vec<String>> {
        let (mut summary, begin) = (StallSummary::default(), Instant::now());
        let look = |(second, reports): (u64, &&[StallReport])| {
            summary.look(reports.to_vec(), begin + Duration::from_secs(second))
        };
        (0..).zip(all).map(look).collect()
    }

    #[test]
    fn what_all_ranks_say_is_said_once_by_the_one_that_knows_most() {
        let one = report("allreduce #1", &[0], &[0, 1, 2], 1);
        let two = report("allreduce #1", &[0, 1], &[0, 1, 2], 1);
        let expected = [vec![], vec!["allreduce #1: [0, 1]".to_owned()], vec![], vec![]];
        let both = [one.clone(), two.clone()];
        let first = [one.clone()];
        assert_eq!(said(&[&first, &both, &both, &[two, one]]), expected);
    }

    #[test]
    fn it_is_said_again_when_a_rank_has_said_it_again_and_taken_back_when_it_is_over() {
        let [first, second] = [1, 2].map(|times| report("barrier #1", &[0], &[0, 1], times));
        let other = report("barrier #9", &[1], &[0, 1], 2);
        let first = [first];
        let again = [second, other];
        let line = || vec!["barrier #1: [0]".to_owned()];
        let over = vec!["barrier #1 waits no longer, after 24 s".to_owned()];
        let looks: [&[StallReport]; 8] =
            [&first, &first, &again, &again, &again, &again, &again, &[]];
        let expected = [vec![], line(), vec![], line(), vec![], vec![], vec![], over];
        assert_eq!(said(&looks), expected);
        // A stall that comes after it is another one.
        let looks: [&[StallReport]; 5] = [&first, &first, &[], &first, &first];
        let over = vec!["barrier #1 waits no longer, after 11 s".to_owned()];
        assert_eq!(said(&looks), [vec![], line(), over, vec![], line()]);
    }

    #[test]
    fn ranks_that_were_named_are_not_named_again() {
        let most = report("allreduce #17", &[0, 1, 3], &[0, 1, 2, 3], 1);
        let other = report("broadcast #17", &[2], &[0, 1, 2, 3], 1);
        let elsewhere = report("recv", &[5], &[4, 5], 1);
        let reports = [other.clone(), elsewhere, most];
        let expected = vec!["allreduce #17: [0, 1, 3]".to_owned(), "recv: [5]".to_owned()];
        assert_eq!(said(&[&reports, &reports, &reports]), [vec![], expected, vec![]]);
        // What was left out is said if it outlasts that for which it was left out.
        let over = vec!["allreduce #17 waits no longer, after 11 s".to_owned()];
        let rest = [reports[0].clone(), reports[1].clone()];
        let left = vec!["broadcast #17: [2]".to_owned()];
        let looks: [&[StallReport]; 4] = [&reports, &reports, &rest, &rest];
        assert_eq!(said(&looks)[2..], [over, left]);
    }

    #[test]
    fn many_stalls_are_counted() {
        let ring: Vec<_> = (0..9)
            .map(|rank| report(&format!("recv {rank}"), &[rank], &[rank, (rank + 1) % 9], 1))
            .collect();
        let told = |rank: u32| format!("recv {rank}: [{rank}]");
        let expected = [told(0), told(2), told(4), told(6)].to_vec();
        let more = "1 more rank waits; its own log says for what".to_owned();
        assert_eq!(said(&[&ring, &ring])[1], [expected, vec![more]].concat());
    }
}
