//! Who watches over what is called: says who is missing where, when somebody waits long, and tells
//! other ranks of the job what this process has called. Knows no backend.
//!
//! One thread of the process looks once a second. When an operation that somebody waits for has
//! not ended for a while, it publishes where this rank stands, asks the others to do the same, and
//! says what follows from all that. They answer whether they wait or compute, as long as their
//! process runs. All that goes through the store in which the first group of the job met.

mod answers;
mod place;
mod stalls;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::sites::{self, Question};
use super::{GroupFacts, Recorder, dump, files, meetings, snapshot};
use crate::blocking::block_on;
use crate::call_site::{are_frames_wanted, call_site};
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_mutex::ProcessMutex;
use crate::stall_report::{MAX_STALL, WaitingCall, stall_limit};
use crate::store::{PrefixStore, Store, does_not_answer};
pub(crate) use answers::Answers;
use place::Place;
use stalls::Stalls;

/// The time from one look to the next.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long those who are asked may take to answer: they look once a second.
const ANSWER_LIMIT: Duration = Duration::from_millis(2_500);
/// How long one waits for answers before it looks for them again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long a request to a store may take.
const STORE_LIMIT: Duration = Duration::from_secs(2);
/// Where keys of the watch stand in the store of the group.
pub(super) const PREFIX: &str = "watch";
/// The key that is counted up by who asks the others for anything.
pub(super) const ASKED: &str = "asked";

/// A group that was not made out of another, and the store in which its ranks meet.
struct Root {
    recorder: Weak<Recorder>,
    /// It is closed with the group.
    store: Arc<dyn Store>,
    /// What this rank has answered.
    answers: Mutex<Answers>,
    /// Where its operations were called, as far as others have asked for that.
    told_sites: Mutex<BTreeSet<Question>>,
    /// Whether it could not be seen lately who asks for that.
    is_deaf: AtomicBool,
    /// Whether the store did not answer when it was asked last.
    is_silent: AtomicBool,
}

static ROOTS: ProcessMutex<Vec<Arc<Root>>> = ProcessMutex::new(Vec::new());

/// Watches over the operations of this process, and answers in `store`, where all ranks of a group
/// that has this `recorder` meet. Without a store, ranks of other processes stay unknown.
pub(crate) fn watch(recorder: &Arc<Recorder>, store: Option<Arc<dyn Store>>) {
    // Members that come after others meet in a store of their own.
    forget(recorder);
    let recorder = Arc::downgrade(recorder);
    if let Some(store) = store {
        // What does not answer soon must not keep the watch from saying what it knows.
        store.set_timeout(STORE_LIMIT);
        let store = Arc::new(PrefixStore::new(PREFIX, store));
        let (answers, told_sites) = (Mutex::default(), Mutex::default());
        let (is_deaf, is_silent) = (AtomicBool::new(false), AtomicBool::new(false));
        let root = Root { recorder, store, answers, told_sites, is_deaf, is_silent };
        ROOTS.lock().push(Arc::new(root));
    }
    look_after_process();
}

/// Has the groups of this process looked after from now on.
pub(crate) fn look_after_process() {
    // A forked child has none of its parent's threads.
    static WATCHED: AtomicU32 = AtomicU32::new(0);
    let process = crate::fork::forks() + 1;
    if WATCHED.swap(process, Ordering::Relaxed) != process {
        files::listen();
        let limit = stall_limit();
        let thread = std::thread::Builder::new().name("polyrank-watch".to_owned());
        if let Err(error) = thread.spawn(move || look_out(limit)) {
            tracing::warn!(%error, "no thread to watch over operations: stalls are not reported");
        }
    }
}

/// Forgets a group that is gone.
pub(crate) fn forget(recorder: &Arc<Recorder>) {
    let is_its = |root: &mut Arc<Root>| std::ptr::eq(root.recorder.as_ptr(), Arc::as_ptr(recorder));
    let gone: Vec<_> = ROOTS.lock().extract_if(.., is_its).collect();
    // Outside the lock: what it has open may take a moment to close.
    drop(gone);
}

/// Prepares for what a signal asks for, before there is a group.
pub(crate) fn listen() {
    files::listen();
}

fn look_out(limit: Option<Duration>) {
    let mut stalls = Stalls::new(limit.unwrap_or(MAX_STALL));
    for turn in 0.. {
        rest(limit.map_or(LOOK_INTERVAL, |limit| LOOK_INTERVAL.min(limit)));
        // What the program does with logs may panic, and the next look may go well.
        let turn = AssertUnwindSafe(|| WaitingCall::unsaid().run(|| look(&mut stalls, turn)));
        let _ = catch_unwind(turn);
    }
}

/// Waits until it is time for the next look. Whoever asks where operations were called is answered
/// sooner: an error waits for that.
fn rest(interval: Duration) {
    let until = Instant::now() + interval;
    // A store that does not answer is asked once, not again and again.
    let mut is_first = true;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if !are_frames_wanted() {
            return std::thread::sleep(left);
        }
        std::thread::sleep(left.min(sites::ANSWER_INTERVAL));
        for root in roots() {
            // A store of the program may panic, and what that does with logs.
            let _ = catch_unwind(AssertUnwindSafe(|| root.tell_sites_if(is_first)));
        }
        is_first = false;
    }
}

fn look(stalls: &mut Stalls, turn: usize) {
    if files::take_signal() {
        write_all();
    }
    snapshot::write();
    let now = Instant::now();
    let recorders = super::all();
    let due = stalls.due(&recorders, now);
    recorders.iter().for_each(|recorder| recorder.note_look());
    let roots = roots();
    // What is due does not wait for a store that was silent before.
    let was_silent = |root: &&Arc<Root>| root.is_silent.load(Ordering::Relaxed);
    let (silent, others): (Vec<_>, Vec<_>) = roots.iter().partition(was_silent);
    answer_all(others);
    if !due.is_empty() {
        stalls.report(due, &places(&roots));
    }
    // Each of those in its turn: one may stay silent for ever, and another answer again.
    answer_all(silent.get(turn % silent.len().max(1)).copied());
}

/// Tells where these ranks stand, if somebody has asked. Forgets groups that were left. The first
/// store that is silent ends it until the next time: the others may be the same.
fn answer_all<'roots>(roots: impl IntoIterator<Item = &'roots Arc<Root>>) {
    for root in roots {
        let answered = root.answer();
        let is_silent = matches!(answered, Err(Error::StoreTimeout { .. }));
        root.is_silent.store(is_silent, Ordering::Relaxed);
        match answered {
            Ok(()) => {}
            Err(Error::StoreTimeout { .. }) => return,
            Err(Error::InvalidGroup { .. }) => {
                let is_it = |it: &mut Arc<Root>| Arc::ptr_eq(it, root);
                drop(ROOTS.lock().extract_if(.., is_it).collect::<Vec<_>>());
            }
            Err(error) => {
                tracing::debug!(%error, "cannot tell other ranks what this one has called");
            }
        }
    }
}

/// Writes what each rank of this process remembers.
fn write_all() {
    let Some(folder) = files::folder_on_signal() else { return };
    let mut ranks: BTreeSet<u32> =
        super::all().iter().map(|recorder| recorder.group().global_rank()).collect();
    ranks.extend(meetings::all().iter().map(|meeting| meeting.rank));
    for rank in ranks {
        super::write_rank(&folder, rank, &dump::dump_with_call_site(rank, "SIGUSR1"));
    }
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

/// What a rank waits for, or else its oldest operation that has not ended.
pub(super) struct Standing {
    pub(super) title: String,
    pub(super) group: String,
    pub(super) since_ms: u64,
}

/// That of the rank of this process with this global number; none if all has ended.
pub(super) fn standing(rank: u32) -> Option<Standing> {
    let place = Place::of(rank, 0, Instant::now(), None);
    let open = place.groups.iter().flat_map(|it| it.open.iter().map(move |open| (it, open)));
    let oldest = open.max_by_key(|(_, open)| (open.is_awaited, open.since_ms));
    if oldest.is_none_or(|(_, open)| !open.is_awaited)
        && let Some(meeting) = meetings::of_rank(rank).first()
    {
        return Some(Standing {
            title: meeting.function().unwrap_or("rendezvous").to_owned(),
            group: meeting.group_name().to_owned(),
            since_ms: milliseconds(meeting.began.elapsed()),
        });
    }
    let (group, operation) = oldest?;
    let (title, since_ms) = (operation.named(), operation.since_ms);
    Some(Standing { title, group: group.title().to_owned(), since_ms })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Where ranks stand, as far as they answer.
#[derive(Default)]
struct Places {
    /// By global rank.
    known: BTreeMap<u32, Place>,
    /// Why ranks of other processes could not be asked.
    obstacle: Option<String>,
}

/// Where ranks stand: those of this process, and others of these groups.
fn places(roots: &[Arc<Root>]) -> Places {
    let now = Instant::now();
    let own: BTreeSet<u32> =
        super::all().iter().map(|recorder| recorder.group().global_rank()).collect();
    let site = call_site();
    let own = own.into_iter().map(|rank| (rank, Place::of(rank, 0, now, site.clone())));
    let mut places = Places { known: own.collect(), obstacle: None };
    if roots.is_empty() {
        places.obstacle = Some("they meet in no store that this one could ask".to_owned());
    }
    for root in roots {
        let asked = match root.is_silent.load(Ordering::Relaxed) {
            true => Err(root.silence()),
            false => root.ask(roots, &mut places.known).map_err(|error| match error {
                Error::StoreTimeout { .. } => root.silence(),
                other => other.to_string(),
            }),
        };
        if let Err(obstacle) = asked {
            places.obstacle = Some(obstacle);
        }
    }
    places
}

impl Root {
    /// Tells where this rank stands, if somebody has asked since it last told.
    fn answer(&self) -> Result<()> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        block_on(async {
            let Some(question) = answers.question(&*self.store).await? else { return Ok(()) };
            let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
                return Ok(());
            };
            answers.answer(&*self.store, group.global_rank(), question).await
        })
    }

    /// Why ranks cannot be asked whose store is silent.
    fn silence(&self) -> String {
        let at = self.store.server_address().map(|address| format!(" at {address}"));
        does_not_answer(&format!("their store{}", at.unwrap_or_default()))
    }

    /// Asks the ranks that are not `known`, and waits until they have answered, or for
    /// [`ANSWER_LIMIT`]. The `roots` of this process answer meanwhile.
    fn ask(&self, roots: &[Arc<Root>], known: &mut BTreeMap<u32, Place>) -> Result<()> {
        let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
            return Ok(());
        };
        let is_unknown = |rank: &&u32| !known.contains_key(rank);
        let mut open: Vec<u32> = group.members.iter().filter(is_unknown).copied().collect();
        if open.is_empty() {
            return Ok(());
        }
        let question = self.store.add(ASKED, 1)?;
        let until = Instant::now() + ANSWER_LIMIT;
        let mut pause = FIRST_PAUSE;
        loop {
            answer_all(roots);
            let mut still = Vec::new();
            for rank in open {
                let place = match Instant::now() < until {
                    true => self.place_of(rank, question)?,
                    false => None,
                };
                match place {
                    Some(place) => drop(known.insert(rank, place)),
                    None => still.push(rank),
                }
            }
            open = still;
            if open.is_empty() || Instant::now() + pause >= until {
                return Ok(());
            }
            std::thread::sleep(pause);
            // Many ask at the same time, of one store.
            pause *= 2;
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

    /// As [`Root::tell_sites`], where somebody may ask; where that could not be seen lately, only
    /// if `even_deaf`.
    fn tell_sites_if(&self, even_deaf: bool) {
        let was_deaf = self.is_deaf.load(Ordering::Relaxed);
        if was_deaf && !even_deaf || !sites::is_asked_in(&self.store) {
            return;
        }
        // Until it went well: it may panic.
        self.is_deaf.store(true, Ordering::Relaxed);
        match self.tell_sites() {
            Ok(()) => self.is_deaf.store(false, Ordering::Relaxed),
            Err(_) if was_deaf => {}
            Err(error) => {
                tracing::debug!(%error, "cannot tell other ranks where this one has called");
            }
        }
    }

    /// Tells where operations of this rank were called, if somebody asks for that.
    fn tell_sites(&self) -> Result<()> {
        let Some(group) = self.recorder.upgrade().map(|recorder| recorder.group()) else {
            return Ok(());
        };
        let mut told = self.told_sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites::answer(&self.store, group.global_rank(), &mut told)
    }
}

/// Where the rank with this global number tells where it stands.
fn key_of(rank: u32) -> String {
    format!("place/{rank}")
}
