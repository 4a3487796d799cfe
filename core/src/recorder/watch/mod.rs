//! Who watches over what is called: says who is missing where, when somebody waits long, and tells
//! other ranks of the job what this process has called. Knows no backend.
//!
//! One thread of the process looks once a second. When an operation that somebody waits for has
//! not ended for a while, it publishes where this rank stands, asks the others to do the same, and
//! says what follows from all that. They answer whether they wait or compute, as long as their
//! process runs. All that goes through the store in which the first group of the job met.

mod place;
mod stalls;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{GroupFacts, Recorder, files, gather};
use crate::clock::Instant;
use crate::env::variable;
use crate::generated::error::{Error, Result};
use crate::process_mutex::ProcessMutex;
use crate::store::{PrefixStore, Store};
use place::Place;
use stalls::Stalls;
pub(crate) use words::{say, seconds};

/// How long an operation may take until it is reported, unless told otherwise.
const STALL: Duration = Duration::from_secs(10);
/// The time from one look to the next.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long those who are asked may take to answer: they look once a second.
const ANSWER_LIMIT: Duration = Duration::from_millis(2_500);
/// Where keys of the watch stand in the store of the group.
const PREFIX: &str = "watch";
/// The key that is counted up by who asks the others for anything.
pub(super) const ASKED: &str = "asked";

/// A group that was not made out of another, and the store in which its ranks meet.
struct Root {
    recorder: Weak<Recorder>,
    /// It is closed with the group.
    store: Arc<dyn Store>,
    /// What stood at [`ASKED`] when this rank last answered.
    answered: AtomicI64,
    /// The last request for all that it remembers that this rank has answered.
    dumped: AtomicI64,
}

static ROOTS: ProcessMutex<Vec<Arc<Root>>> = ProcessMutex::new(Vec::new());

/// Watches over the operations of this process, and answers in `store`, where all ranks of a group
/// that has this `recorder` meet. Without a store, ranks of other processes stay unknown.
pub(crate) fn watch(recorder: &Arc<Recorder>, store: Option<Arc<dyn Store>>) {
    let recorder = Arc::downgrade(recorder);
    if let Some(store) = store {
        let store = Arc::new(PrefixStore::new(PREFIX, store));
        let (answered, dumped) = (AtomicI64::new(0), AtomicI64::new(0));
        ROOTS.lock().push(Arc::new(Root { recorder, store, answered, dumped }));
    }
    // A forked child has none of its parent's threads.
    static WATCHED: AtomicU32 = AtomicU32::new(0);
    let process = crate::fork::forks() + 1;
    if WATCHED.swap(process, Ordering::Relaxed) != process {
        if files::folder().is_some() {
            files::listen();
        }
        let limit = stall_limit();
        let thread = std::thread::Builder::new().name("polyrank-watch".to_owned());
        if let Err(error) = thread.spawn(move || look_out(limit)) {
            tracing::warn!(%error, "no thread to watch over operations: stalls are not reported");
        }
    }
}

/// After how long an operation is reported; none if none is.
pub(crate) fn stall_limit() -> Option<Duration> {
    let text = variable::POLYRANK_STALL_REPORT.text();
    let seconds = match text.as_deref().map(str::parse::<f64>) {
        None => return Some(STALL),
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => {
            let name = variable::POLYRANK_STALL_REPORT;
            tracing::warn!("{name} is not a number of seconds: stalls are reported after 10 s");
            return Some(STALL);
        }
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero())
}

fn look_out(limit: Option<Duration>) {
    let mut stalls = Stalls::new(limit.unwrap_or(Duration::MAX));
    loop {
        std::thread::sleep(limit.map_or(LOOK_INTERVAL, |limit| LOOK_INTERVAL.min(limit)));
        if files::take_signal() {
            write_all();
        }
        let now = Instant::now();
        let due = stalls.due(&super::all(), now);
        let roots = roots();
        for root in &roots {
            match root.answer() {
                Ok(()) => {}
                // The group was left.
                Err(Error::InvalidGroup { .. }) => ROOTS.lock().retain(|it| !Arc::ptr_eq(it, root)),
                Err(error) => {
                    tracing::debug!(%error, "cannot tell other ranks what this one has called");
                }
            }
        }
        if !due.is_empty() {
            stalls.report(due, &places(&roots), now);
        }
    }
}

/// Writes what each rank of this process remembers.
fn write_all() {
    let Some(folder) = files::folder() else { return };
    let ranks: BTreeSet<u32> =
        super::all().iter().map(|recorder| recorder.group().global_rank()).collect();
    ranks.into_iter().for_each(|rank| super::write_rank(&folder, rank, "SIGUSR1"));
}

/// The groups that live.
fn roots() -> Vec<Arc<Root>> {
    let mut roots = ROOTS.lock();
    roots.retain(|root| root.recorder.upgrade().is_some_and(|it| it.is_of_this_process()));
    roots.clone()
}

/// Of the groups that have all of `members`, as this rank, the one with the most; and where their
/// ranks are asked.
pub(super) fn root_of(group: &GroupFacts) -> Option<(GroupFacts, Arc<dyn Store>)> {
    let known = roots().into_iter().filter_map(|root| {
        let facts = root.recorder.upgrade()?.group();
        let has_all = group.members.iter().all(|rank| facts.members.contains(rank));
        (has_all && facts.global_rank() == group.global_rank()).then(|| (facts, root.store.clone()))
    });
    known.max_by_key(|(facts, _)| facts.members.len())
}

/// Where ranks stand, as far as they answer.
#[derive(Default)]
struct Places {
    /// By global rank.
    known: BTreeMap<u32, Place>,
    /// Why a store could not be asked.
    obstacle: Option<Error>,
}

/// Where ranks stand: those of this process, and others of these groups.
fn places(roots: &[Arc<Root>]) -> Places {
    let now = Instant::now();
    let own = super::all().into_iter().map(|recorder| recorder.group().global_rank());
    let own = own.map(|rank| (rank, Place::of(rank, 0, now)));
    let mut places = Places { known: own.collect(), obstacle: None };
    for root in roots {
        match root.ask() {
            Ok(known) => places.known.extend(known),
            Err(error) => places.obstacle = Some(error),
        }
    }
    places
}

impl Root {
    /// Tells where this rank stands, if somebody has asked since it last told.
    fn answer(&self) -> Result<()> {
        // Looking makes no key.
        if !self.store.check(&[ASKED])? {
            return Ok(());
        }
        let asked = self.store.add(ASKED, 0)?;
        if asked == self.answered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
            return Ok(());
        };
        self.publish(asked)?;
        self.answered.store(asked, Ordering::Relaxed);
        let dumped = self.dumped.load(Ordering::Relaxed);
        let dumped = gather::answer(&*self.store, group.global_rank(), dumped)?;
        self.dumped.store(dumped, Ordering::Relaxed);
        Ok(())
    }

    /// Asks the others, and waits until they have answered, or for [`ANSWER_LIMIT`].
    fn ask(&self) -> Result<BTreeMap<u32, Place>> {
        let mut places = BTreeMap::new();
        let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
            return Ok(places);
        };
        let question = self.store.add(ASKED, 1)?;
        let until = Instant::now() + ANSWER_LIMIT;
        loop {
            // Others ask meanwhile.
            self.answer()?;
            for &rank in &group.members {
                if !places.contains_key(&rank)
                    && let Some(place) = self.place_of(rank, question)?
                {
                    places.insert(rank, place);
                }
            }
            if places.len() == group.members.len() || Instant::now() >= until {
                return Ok(places);
            }
            std::thread::sleep(LOOK_INTERVAL / 10);
        }
    }

    /// Where a rank stands, if it has answered this `question`, or a later one.
    fn place_of(&self, rank: u32, question: i64) -> Result<Option<Place>> {
        let key = key_of(rank);
        if !self.store.check(&[&key])? {
            return Ok(None);
        }
        let told = Place::decode(&self.store.get(&key)?);
        Ok(told.filter(|place| place.answers >= question))
    }

    fn publish(&self, answers: i64) -> Result<()> {
        let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
            return Ok(());
        };
        let rank = group.global_rank();
        self.store.set(&key_of(rank), &Place::of(rank, answers, Instant::now()).encode())
    }
}

/// Where the rank with this global number tells where it stands.
fn key_of(rank: u32) -> String {
    format!("place/{rank}")
}
