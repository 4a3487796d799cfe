//! What there is to say, once for all ranks, of what they have said of stalls. Knows neither files
//! nor screens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use polyrank::stall_report::{StallReport, taken_back};

/// How long the others may take to say theirs, once one rank has: they look once a second.
const SETTLE: Duration = Duration::from_secs(1);
/// Most stalls that are told at a time, each with the ranks that it concerns.
const MAX_TOLD: usize = 4;

/// What was said.
#[derive(Default)]
pub(super) struct StallSummary {
    known: BTreeMap<StallKey, KnownStall>,
    /// Since when there is something to say.
    news_since: Option<Instant>,
    /// How often there was.
    told: u32,
}

/// A stall: what is waited for; the name of its group, of which several may be called the same; and
/// who waits, unless ranks wait for it together.
pub(super) type StallKey = (String, String, Option<u32>);

struct KnownStall {
    /// How often its ranks had said it when it was last said here, or left out.
    times: u32,
    /// Whether it was said here.
    is_said: bool,
    /// When it was first seen, and how long its ranks had waited then.
    seen: (Instant, Duration),
}

impl StallSummary {
    /// The lines to be said now, if these are all reports of stalls that last.
    pub(super) fn look(&mut self, reports: &[&StallReport], now: Instant) -> Vec<String> {
        let mut best = best_of_each(reports);
        with_own_words(&mut best, reports);
        let reports = best;
        let mut lines = self.take_back(&reports, now);
        for (key, report) in &reports {
            let waited = Duration::from_millis(report.waited_ms);
            let new = KnownStall { times: 0, is_said: false, seen: (now, waited) };
            let known = self.known.entry(key.clone()).or_insert(new);
            // Who had said it more often waits no longer.
            known.times = known.times.min(report.times);
        }
        let is_news = |(key, report): &(&StallKey, &StallReport)| {
            self.known.get(key).is_some_and(|known| known.times < report.times)
        };
        let news: Vec<_> = reports.iter().filter(is_news).collect();
        if news.is_empty() {
            self.news_since = None;
        } else if now.saturating_duration_since(*self.news_since.get_or_insert(now)) >= SETTLE {
            self.news_since = None;
            self.told += 1;
            lines.extend(self.say(news));
        }
        lines
    }

    /// How often it was said who waits.
    pub(super) fn told(&self) -> u32 {
        self.told
    }

    /// Says of what is over that it is.
    fn take_back(
        &mut self,
        reports: &BTreeMap<StallKey, StallReport>,
        now: Instant,
    ) -> Vec<String> {
        let over = self.known.extract_if(.., |key, _| !reports.contains_key(key));
        let lines = over.filter(|(_, known)| known.is_said).map(|((subject, _, rank), known)| {
            let (at, waited) = known.seen;
            let said = taken_back(&subject, waited + now.saturating_duration_since(at));
            rank.map_or(said.clone(), |rank| format!("rank {rank}: {said}"))
        });
        lines.collect()
    }

    /// Says those first for which most ranks wait, and leaves out whoever was named with them.
    fn say(&mut self, mut news: Vec<(&StallKey, &StallReport)>) -> Vec<String> {
        news.sort_by_key(|(_, it)| (Reverse(it.waiting_count), it.waiting.first().copied()));
        let (mut named, mut left_out) = (BTreeSet::<u32>::new(), BTreeSet::<u32>::new());
        let mut lines = Vec::new();
        for (key, report) in news {
            let Some(known) = self.known.get_mut(key) else { continue };
            known.times = report.times;
            let is_named = |rank: &u32| named.contains(rank);
            if !report.waiting.is_empty() && report.waiting.iter().all(is_named) {
                continue;
            }
            if lines.len() == MAX_TOLD {
                left_out.extend(&report.waiting);
                continue;
            }
            lines.push(report.text.clone());
            known.is_said = true;
            named.extend(report.concerned.iter().chain(&report.waiting));
        }
        match left_out.difference(&named).count() {
            0 => {}
            1 => lines.push("1 more rank waits; its own log says for what".to_owned()),
            more => lines.push(format!("{more} more ranks wait; their own logs say for what")),
        }
        lines
    }
}

/// Of each stall the report that knows of most ranks that wait for it, with the greatest number of
/// times.
pub(super) fn best_of_each(reports: &[&StallReport]) -> BTreeMap<StallKey, StallReport> {
    let mut all = BTreeMap::<StallKey, StallReport>::new();
    for &report in reports {
        match all.get_mut(&key_of(report)) {
            None => drop(all.insert(key_of(report), report.clone())),
            Some(known) => {
                let times = known.times.max(report.times);
                // Of two that know of as many, the one that says more: where a rank is.
                let worth = |it: &StallReport| (it.waiting_count, it.times, it.text.len());
                if worth(known) < worth(report) {
                    known.clone_from(report);
                }
                known.times = times;
            }
        }
    }
    all
}

fn key_of(report: &StallReport) -> StallKey {
    (report.subject.clone(), report.group.clone(), report.rank)
}

/// Adds to what is said of each stall the ranks that have said themselves that they wait for it:
/// whoever knows of most could not ask them.
fn with_own_words(best: &mut BTreeMap<StallKey, StallReport>, reports: &[&StallReport]) {
    for (key, report) in best {
        let of_it = reports.iter().filter(|it| key_of(it) == *key);
        let all: BTreeSet<u32> = of_it.flat_map(|it| it.waiting.iter().copied()).collect();
        let others: Vec<u32> = all.into_iter().filter(|it| !report.waiting.contains(it)).collect();
        // Of many, a report names the first only.
        let are_all_named = report.waiting.len() as u32 == report.waiting_count;
        if others.is_empty() || !are_all_named {
            continue;
        }
        let names = others.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        report.text += &match others.len() {
            1 => format!("; rank {names} waits for it, too"),
            _ => format!("; ranks {names} wait for it, too"),
        };
        report.concerned.extend(others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(subject: &str, waiting: &[u32], concerned: &[u32], times: u32) -> StallReport {
        StallReport {
            subject: subject.to_owned(),
            group: String::new(),
            rank: None,
            text: format!("{subject}: {waiting:?}"),
            waiting: waiting.to_vec(),
            waiting_count: waiting.len() as u32,
            concerned: concerned.to_vec(),
            times,
            waited_ms: 10_000 << (times - 1),
        }
    }

    /// A receive of `rank` from rank 9.
    fn receive(rank: u32, times: u32) -> StallReport {
        let subject = "recv from rank 9";
        let text = format!("{subject}: rank {rank}");
        StallReport { rank: Some(rank), text, ..report(subject, &[rank], &[rank, 9], times) }
    }

    /// What is said of these, each a second after the one before.
    fn said(all: &[&[StallReport]]) -> Vec<Vec<String>> {
        let (mut summary, begin) = (StallSummary::default(), Instant::now());
        let look = |(second, reports): (u64, &&[StallReport])| {
            let reports: Vec<_> = reports.iter().collect();
            summary.look(&reports, begin + Duration::from_secs(second))
        };
        (0..).zip(all).map(look).collect()
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn what_all_ranks_say_is_said_once_by_the_one_that_knows_most() {
        let one = report("allreduce #1", &[0], &[0, 1, 2], 1);
        let two = report("allreduce #1", &[0, 1], &[0, 1, 2], 1);
        let expected = [vec![], lines(&["allreduce #1: [0, 1]"]), vec![], vec![]];
        let both = [one.clone(), two.clone()];
        let first = [one.clone()];
        assert_eq!(said(&[&first, &both, &both, &[two, one]]), expected);
    }

    #[test]
    fn ranks_that_nobody_could_ask_say_themselves_that_they_wait() {
        let [one, two, three] = [0, 1, 3].map(|rank| report("barrier #1", &[rank], &[rank], 1));
        let all = [one, two, three];
        let expected = lines(&["barrier #1: [0]; ranks 1, 3 wait for it, too"]);
        assert_eq!(said(&[&all, &all, &all]), [vec![], expected, vec![]]);
        let both = [all[1].clone(), all[0].clone()];
        assert_eq!(said(&[&both, &both])[1], lines(&["barrier #1: [1]; rank 0 waits for it, too"]));
    }

    #[test]
    fn it_is_said_again_when_a_rank_has_said_it_again_and_taken_back_when_it_is_over() {
        let [first, second] = [1, 2].map(|times| [report("barrier #1", &[0], &[0, 1], times)]);
        let line = || lines(&["barrier #1: [0]"]);
        let over = lines(&["barrier #1 waits no longer, after 16 s"]);
        let looks: [&[StallReport]; 7] = [&first, &first, &second, &second, &second, &second, &[]];
        let expected = [vec![], line(), vec![], line(), vec![], vec![], over];
        assert_eq!(said(&looks), expected);
        // A stall that comes after it is another one.
        let looks: [&[StallReport]; 5] = [&first, &first, &[], &first, &first];
        let over = lines(&["barrier #1 waits no longer, after 12 s"]);
        assert_eq!(said(&looks), [vec![], line(), over, vec![], line()]);
    }

    #[test]
    fn ranks_that_were_named_with_it_are_not_named_again() {
        let most = report("allreduce #17", &[0, 1, 3], &[0, 1, 2, 3], 1);
        let other = |times| report("broadcast #17", &[2], &[0, 1, 2, 3], times);
        let elsewhere = || report("recv", &[5], &[4, 5], 1);
        let all = [other(1), elsewhere(), most];
        let expected = lines(&["allreduce #17: [0, 1, 3]", "recv: [5]"]);
        assert_eq!(said(&[&all, &all, &all]), [vec![], expected, vec![]]);
        // What was left out is said if its rank says it again, and the other is over.
        let over = lines(&["allreduce #17 waits no longer, after 12 s"]);
        let rest = [other(2), elsewhere()];
        let looks: [&[StallReport]; 4] = [&all, &all, &rest, &rest];
        assert_eq!(said(&looks)[2..], [over, lines(&["broadcast #17: [2]"])]);
    }

    #[test]
    fn a_stall_that_lasts_hides_no_later_one() {
        let old = report("recv", &[0, 1, 2], &[0, 1, 2, 3], 7);
        let hang = |times| report("barrier #4", &[0, 1], &[0, 1, 2, 3], times);
        let (before, both) = ([old.clone()], [old.clone(), hang(1)]);
        let again = [old, hang(2)];
        let looks: [&[StallReport]; 6] = [&before, &before, &both, &both, &again, &again];
        let line = || lines(&["barrier #4: [0, 1]"]);
        assert_eq!(said(&looks)[2..], [vec![], line(), vec![], line()]);
    }

    #[test]
    fn ranks_that_wait_for_the_same_sender_are_told_apart() {
        let both = [receive(0, 1), receive(1, 1)];
        let told = lines(&["recv from rank 9: rank 0", "recv from rank 9: rank 1"]);
        let over = lines(&["rank 0: recv from rank 9 waits no longer, after 12 s"]);
        let looks: [&[StallReport]; 3] = [&both, &both, &[receive(1, 1)]];
        assert_eq!(said(&looks), [vec![], told, over]);
    }

    #[test]
    fn groups_that_are_called_the_same_are_told_apart() {
        let of = |group: &str, ranks: &[u32]| {
            let group = group.to_owned();
            StallReport { group, ..report("allreduce #1 of group tp", ranks, ranks, 1) }
        };
        let both = [of("split:1", &[0]), of("split:2", &[2])];
        let told = ["allreduce #1 of group tp: [0]", "allreduce #1 of group tp: [2]"];
        assert_eq!(said(&[&both, &both]), [vec![], lines(&told)]);
    }

    #[test]
    fn many_stalls_are_counted_once() {
        let ring: Vec<_> = (0..9)
            .map(|rank| report(&format!("recv {rank}"), &[rank], &[rank, (rank + 1) % 9], 1))
            .collect();
        let told = ["recv 0: [0]", "recv 2: [2]", "recv 4: [4]", "recv 6: [6]"];
        let more = lines(&["1 more rank waits; its own log says for what"]);
        let expected = [lines(&told), more].concat();
        assert_eq!(said(&[&ring, &ring, &ring, &ring]), [vec![], expected, vec![], vec![]]);
    }
}
