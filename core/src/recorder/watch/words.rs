//! What is said of an operation that waits long. Knows neither stores nor clocks.

use std::sync::Arc;
use std::time::Duration;

use super::Places;
use super::place::{CalledOperation, Place};
use crate::completion::rank_names;
use crate::recorder::{GroupFacts, with_name};
use crate::stall_report::{LISTED_RANKS, StallReport, say_aloud, seconds};

/// The operation of which something is said, and the group that it is of.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) group: String,
    /// This rank in the group.
    pub(crate) rank: u32,
    /// The method that was called.
    pub(crate) operation: &'static str,
    pub(crate) sequence: u64,
    /// What the user calls it.
    pub(crate) comm_name: Option<Arc<str>>,
}

/// As [`say`], of an operation, with which the text begins.
pub(super) fn say_of(subject: &Subject, text: &str) {
    let Subject { group, rank, operation, sequence, comm_name } = subject;
    tracing::warn!(
        target: "polyrank::stall",
        group = group.as_str(),
        rank = u64::from(*rank),
        operation,
        sequence,
        comm_name = comm_name.as_deref(),
        "{text}"
    );
    say_aloud(text);
}

/// What is known of an operation that waits.
pub(super) struct Explanation {
    /// What it is, and of which group.
    pub(super) subject: String,
    /// The name of the group.
    group: String,
    /// This rank, if others that call the same wait for something else.
    rank: Option<u32>,
    /// The ranks that wait for it.
    waiting: Vec<u32>,
    /// The ranks on which it depends, this one included.
    concerned: Vec<u32>,
    /// Who waits, and where the others are.
    sentence: String,
    /// Where in its program this rank is, if that is known.
    own_site: Option<String>,
    /// Where in their programs those are that wait, as far as that is known.
    sites: String,
}

impl Explanation {
    /// As this rank says it.
    pub(super) fn for_rank(&self) -> String {
        let site = self.own_site.as_ref().map(|site| format!("; this rank is at {site}"));
        format!("{}{}", self.sentence, site.unwrap_or_default())
    }

    /// As it is said once for all ranks, after it was said for the `times`th time.
    pub(super) fn report(self, times: u32, waited: Duration) -> StallReport {
        let Explanation { mut waiting, mut concerned, .. } = self;
        let waiting_count = waiting.len() as u32;
        waiting.truncate(LISTED_RANKS);
        concerned.truncate(LISTED_RANKS);
        StallReport {
            subject: self.subject,
            group: self.group,
            rank: self.rank,
            text: self.sentence + &self.sites,
            waiting,
            waiting_count,
            concerned,
            times,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// That `operation` of this rank has `waited` in `group`, and where the others stand: "allreduce
/// #17 of group dp: ranks 0, 1, 3 have waited for 10 s; rank 2 is in broadcast #4 of group tp".
pub(super) fn stalled(
    group: &GroupFacts,
    operation: &CalledOperation,
    waited: Duration,
    places: &Places,
) -> Explanation {
    let own = group.global_rank();
    let (mut waiting, mut others) = (vec![own], Others::default());
    let mut all = vec![own];
    for rank in concerned(group, operation).filter(|&rank| rank != own) {
        all.push(rank);
        match where_is(group, operation, places, rank) {
            Standing::Waits => waiting.push(rank),
            Standing::Elsewhere(text) => others.add(rank, text),
        }
    }
    waiting.sort_unstable();
    all.sort_unstable();
    let waited = seconds(waited);
    let has = if waiting.len() == 1 { "has" } else { "have" };
    let mut others = others.text();
    if let Some(obstacle) = &places.obstacle {
        others.push_str(&format!(" (ranks cannot be asked where they are: {obstacle})"));
    }
    let site_of = |rank: u32| {
        let place = places.known.get(&rank)?;
        place.site.clone().or_else(|| called_at(group, operation, place))
    };
    let mut sites = Others::default();
    for &rank in &waiting {
        site_of(rank).into_iter().for_each(|site| sites.add(rank, format!("at {site}")));
    }
    let subject = format!("{} of group {}", operation.named(), group.shown());
    let who = rank_names(&waiting, 0);
    let sentence = format!("{subject}: {who} {has} waited for {waited}{others}");
    let (own_site, sites) = (site_of(own), sites.text());
    let rank = (!operation.is_collective).then_some(own);
    let group = group.name.clone();
    Explanation { subject, group, rank, waiting, concerned: all, sentence, own_site, sites }
}

/// The ranks, as global ranks, on which the operation depends.
fn concerned(group: &GroupFacts, operation: &CalledOperation) -> impl Iterator<Item = u32> {
    let peer = operation.peer.filter(|_| !operation.is_collective);
    let members = group.members.iter().copied();
    members.filter(move |rank| peer.is_none_or(|peer| peer == *rank))
}

/// Where a rank stands, as seen from an operation.
enum Standing {
    /// It waits in the same operation.
    Waits,
    Elsewhere(String),
}

fn where_is(
    group: &GroupFacts,
    operation: &CalledOperation,
    places: &Places,
    rank: u32,
) -> Standing {
    let Some(place) = places.known.get(&rank) else {
        let text = match places.obstacle {
            None => "did not answer: stopped, gone, or cut off from the store",
            Some(_) => "may be anywhere",
        };
        return Standing::Elsewhere(text.to_owned());
    };
    if let Some(held) = &place.held {
        return Standing::Elsewhere(format!("at its breakpoint, {held}"));
    }
    let here = place.group(&group.name);
    if operation.is_collective && here.is_some_and(|here| here.has_open(operation.sequence)) {
        return Standing::Waits;
    }
    if let Some((other, awaited)) = place.awaited() {
        let since = seconds(Duration::from_millis(awaited.since_ms));
        let what = awaited.named();
        let site = place.site.as_ref().or(awaited.site.as_ref());
        let site = site.map(|site| format!(", at {site}")).unwrap_or_default();
        let title = match other.title() == group.shown() && other.group != group.name {
            true => with_name(other.title(), &other.group),
            false => other.title().to_owned(),
        };
        return Standing::Elsewhere(format!("in {what} of group {title} for {since}{site}"));
    }
    if let Some((what, since_ms)) = &place.meeting {
        let since = seconds(Duration::from_millis(*since_ms));
        let site = site_of(place, ", at ");
        return Standing::Elsewhere(format!("in {what} for {since}{site}"));
    }
    let called = match here.and_then(|here| here.last.as_ref()) {
        None => format!("has called no collective of group {}", group.shown()),
        Some(last) if operation.is_collective && last.sequence >= operation.sequence => {
            format!("has done its part, and called {}", last.named())
        }
        Some(last) => {
            let since = seconds(Duration::from_millis(last.since_ms));
            format!("waits for nothing; it last called {}, {since} ago", last.named())
        }
    };
    Standing::Elsewhere(called + &site_of(place, ", and is at "))
}

/// Where a rank has called the operation, if it notes that: programs whose language cannot tell
/// where they are.
fn called_at(group: &GroupFacts, operation: &CalledOperation, place: &Place) -> Option<String> {
    let is_it = |it: &&CalledOperation| {
        let same = (it.is_collective, it.sequence) == (operation.is_collective, operation.sequence);
        same && (it.peer, it.tag) == (operation.peer, operation.tag)
    };
    place.group(&group.name)?.open.iter().find(is_it)?.site.clone()
}

/// Where in its program a rank is, if that is known, after these words.
fn site_of(place: &Place, words: &str) -> String {
    place.site.as_ref().map(|site| format!("{words}{site}")).unwrap_or_default()
}

/// Ranks that stand elsewhere, those together that stand at the same place.
#[derive(Default)]
struct Others(Vec<(String, Vec<u32>)>);

impl Others {
    fn add(&mut self, rank: u32, text: String) {
        match self.0.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => self.0.push((text, vec![rank])),
        }
    }

    fn text(&self) -> String {
        let part = |(text, who): &(String, Vec<u32>)| {
            let text = if who.len() == 1 { text.clone() } else { of_several(text) };
            let is = match text.starts_with("in ") || text.starts_with("at ") {
                true if who.len() == 1 => " is",
                true => " are",
                false => "",
            };
            format!("; {}{is} {text}", rank_names(who, 0))
        };
        self.0.iter().map(part).collect()
    }
}

/// What is said of one rank, as it is said of several.
fn of_several(text: &str) -> String {
    const BEGINNINGS: [(&str, &str); 3] = [
        ("has called", "have called"),
        ("has done its part", "have done their part"),
        ("waits for nothing; it last", "wait for nothing; they last"),
    ];
    let begin = BEGINNINGS.iter().find(|(of_one, _)| text.starts_with(of_one));
    let text = begin.map_or(text.to_owned(), |(one, several)| text.replacen(one, several, 1));
    text.replacen(", and is at ", ", and are at ", 1)
}
