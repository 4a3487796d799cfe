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
            Standing::Elsewhere(place) => others.add(rank, place),
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
        let site = site_of(rank).map(|site| Whereabouts::Is(format!("at {site}")));
        site.into_iter().for_each(|site| sites.add(rank, site));
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
    Elsewhere(Whereabouts),
}

/// Where a rank is that does not wait in the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// Nobody could ask it.
    Unknown,
    /// It was asked.
    Silent,
    /// A debugger holds it at this line.
    Held(String),
    /// "in barrier #4 of group tp for 12 s", "at train.py:4".
    Is(String),
    /// It waits for nothing.
    Idle {
        last: LastCall,
        /// Where in its program it is, if that is known.
        site: Option<String>,
    },
}

/// The last collective of a rank in the group of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LastCall {
    /// It has called none of this group.
    None(String),
    /// The operation, or a later one.
    Later(String),
    /// An earlier one, which it called so long ago.
    Earlier { name: String, ago: String },
}

impl Whereabouts {
    /// What is said of one rank, or of several: "is in barrier #4 of group tp for 12 s".
    fn said_of(&self, are_several: bool) -> String {
        let of = |one: &'static str, several: &'static str| match are_several {
            true => several,
            false => one,
        };
        match self {
            Whereabouts::Unknown => "may be anywhere".to_owned(),
            Whereabouts::Silent => {
                "did not answer: stopped, gone, or cut off from the store".to_owned()
            }
            Whereabouts::Held(line) => {
                format!("{} breakpoint, {line}", of("is at its", "are at their"))
            }
            Whereabouts::Is(place) => format!("{} {place}", of("is", "are")),
            Whereabouts::Idle { last, site } => {
                let called = match last {
                    LastCall::None(group) => {
                        format!("{} called no collective of group {group}", of("has", "have"))
                    }
                    LastCall::Later(name) => {
                        let did = of("has done its part", "have done their part");
                        format!("{did}, and called {name}")
                    }
                    LastCall::Earlier { name, ago } => {
                        let waits = of("waits for nothing; it", "wait for nothing; they");
                        format!("{waits} last called {name}, {ago} ago")
                    }
                };
                let site = site.as_ref().map(|site| format!(", and {} at {site}", of("is", "are")));
                called + &site.unwrap_or_default()
            }
        }
    }
}

fn where_is(
    group: &GroupFacts,
    operation: &CalledOperation,
    places: &Places,
    rank: u32,
) -> Standing {
    let Some(place) = places.known.get(&rank) else {
        return Standing::Elsewhere(match places.obstacle {
            None => Whereabouts::Silent,
            Some(_) => Whereabouts::Unknown,
        });
    };
    if let Some(held) = &place.held {
        return Standing::Elsewhere(Whereabouts::Held(held.clone()));
    }
    let here = place.group(&group.name);
    if operation.is_collective && here.is_some_and(|here| here.has_open(operation.sequence)) {
        return Standing::Waits;
    }
    if let Some((other, awaited)) = place.awaited() {
        let title = match other.title() == group.shown() && other.group != group.name {
            true => with_name(other.title(), &other.group),
            false => other.title().to_owned(),
        };
        let what = format!("{} of group {title}", awaited.named());
        let site = place.site.as_ref().or(awaited.site.as_ref());
        return Standing::Elsewhere(within(&what, awaited.since_ms, site));
    }
    if let Some((what, since_ms)) = &place.meeting {
        return Standing::Elsewhere(within(what, *since_ms, place.site.as_ref()));
    }
    let last = match here.and_then(|here| here.last.as_ref()) {
        None => LastCall::None(group.shown()),
        Some(last) if operation.is_collective && last.sequence >= operation.sequence => {
            LastCall::Later(last.named())
        }
        Some(last) => LastCall::Earlier {
            name: last.named(),
            ago: seconds(Duration::from_millis(last.since_ms)),
        },
    };
    Standing::Elsewhere(Whereabouts::Idle { last, site: place.site.clone() })
}

/// That a rank is in `what` for so long.
fn within(what: &str, since_ms: u64, site: Option<&String>) -> Whereabouts {
    let since = seconds(Duration::from_millis(since_ms));
    let site = site.map(|site| format!(", at {site}")).unwrap_or_default();
    Whereabouts::Is(format!("in {what} for {since}{site}"))
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

/// Ranks that stand elsewhere, those together that stand at the same place.
#[derive(Default)]
struct Others(Vec<(Whereabouts, Vec<u32>)>);

impl Others {
    fn add(&mut self, rank: u32, place: Whereabouts) {
        match self.0.iter_mut().find(|(known, _)| *known == place) {
            Some((_, ranks)) => ranks.push(rank),
            None => self.0.push((place, vec![rank])),
        }
    }

    fn text(&self) -> String {
        let part = |(place, who): &(Whereabouts, Vec<u32>)| {
            format!("; {} {}", rank_names(who, 0), place.said_of(who.len() > 1))
        };
        self.0.iter().map(part).collect()
    }
}
