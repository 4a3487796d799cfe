//! Where two ranks that disagree on a collective have called it: at the debug level DETAIL, each
//! asks the other through the store in which they meet. Knows no backend.
//!
//! Who learns of a disagreement tells where it called the collective itself, and asks for the rest;
//! the watch of a rank that has not learned of it answers, whatever its program does. An error
//! waits for that at most for [`LIMIT`], and then says what is known by then: the other rank may be
//! gone, or the store.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OperationKind, RecordedOperation, Recorder, all, watch};
use crate::blocking::WaitMode;
use crate::call_site::CallFrame;
use crate::clock::Instant;
use crate::completion::{Completion, LEAVES};
use crate::generated::error::{Error, Result};
use crate::store::Store;

/// How long an error waits at most for what it could say.
const LIMIT: Duration = Duration::from_secs(1);
/// How often it is looked whether the other rank has told.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often a watch looks whether somebody asks.
pub(super) const ANSWER_INTERVAL: Duration = Duration::from_millis(100);
/// Most bytes of what a rank is asked, and of what it tells: more is not looked at.
const MAX_ASKED: usize = 1 << 20;
const MAX_SITE: usize = 1024;
/// Stands before a site in an error.
const CALLED_AT: &str = ", called at ";

/// A collective of a group, whose members were replaced so often.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Called {
    group: String,
    epoch: u64,
    sequence: u64,
}

/// What a rank is asked: where it has called a collective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Question {
    group: String,
    epoch: u64,
    sequence: u64,
    /// Which of the groups of this name that this rank has made in the store, one after another.
    generation: i64,
}

/// Where a rank called something.
type Site = (u32, String);

/// What is known of the disagreement of a group, and where its ranks ask one another.
#[derive(Default)]
pub(super) struct Sites {
    state: Mutex<State>,
    meeting: Mutex<Option<Meeting>>,
}

/// Where a rank of a group tells the others.
#[derive(Clone)]
struct Meeting {
    /// Whoever watches over the root of the group keeps it, as long as that lives.
    store: Weak<dyn Store>,
    /// As [`Question::generation`], of this rank.
    generation: i64,
}

#[derive(Default)]
struct State {
    /// What was asked for last.
    called: Option<Called>,
    /// Those of the ranks, as ranks of the group, that have told.
    sites: Vec<Site>,
    /// Who waits for the answers, as long as they may come.
    waiting: Option<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Recorder {
    /// Whether it is noted where operations are called.
    #[inline]
    pub(crate) fn notes_calls(&self) -> bool {
        self.notes_calls
    }

    /// The group has these members from now on. Lets the others know in which of the groups of this
    /// name this rank is, where it notes its calls: before it calls anything, so that nobody takes
    /// what was told in an earlier one.
    pub(crate) fn begin_telling(&self) {
        if !self.notes_calls {
            return;
        }
        let group = self.group();
        let root = watch::root_of(&group).filter(|_| group.members.len() > 1);
        let meeting = root.and_then(|(_, store)| {
            let key = generation_key(group.global_rank(), &group.name, group.epoch);
            match store.add(&key, 1) {
                Ok(generation) => Some(Meeting { store: Arc::downgrade(&store), generation }),
                Err(error) => {
                    tracing::debug!(%error, "other ranks are not told where this one calls");
                    None
                }
            }
        });
        *self.meeting() = meeting;
    }

    /// Whether others ask in `store` where operations of this group were called.
    pub(super) fn tells_in(&self, store: &Arc<dyn Store>) -> bool {
        let meeting = self.meeting();
        meeting.as_ref().is_some_and(|it| std::ptr::addr_eq(it.store.as_ptr(), Arc::as_ptr(store)))
    }

    /// Calls `then` once [`Recorder::with_sites`] can say where the ranks are that disagree, if
    /// `error` is about that; at once if it is not, and at the latest after [`LIMIT`]. Does not
    /// block.
    pub(crate) fn find_sites(
        self: &Arc<Self>,
        error: &Error,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some((called, ranks)) = self.disagreement_of(error) else { return then() };
        {
            let mut state = self.sites();
            if state.called.as_ref() == Some(&called) {
                match &mut state.waiting {
                    Some(waiting) => waiting.push(Box::new(then)),
                    None => {
                        drop(state);
                        then();
                    }
                }
                return;
            }
            // A group is asked once: whatever follows is a consequence.
            if state.waiting.is_some() {
                drop(state);
                return then();
            }
            let waiting: Box<dyn FnOnce() + Send> = Box::new(then);
            *state = State {
                called: Some(called.clone()),
                waiting: Some(vec![waiting]),
                ..State::default()
            };
        }
        let recorder = self.clone();
        let thread = std::thread::Builder::new().name("polyrank-sites".to_owned());
        let asking = thread.spawn(move || {
            recorder.collect(called, ranks);
            recorder.end_search();
        });
        if asking.is_err() {
            self.end_search();
        }
    }

    /// As [`Recorder::with_sites`], once the others have told, or it is time.
    pub(crate) async fn located(self: &Arc<Self>, error: Error) -> Error {
        let found = Arc::new(Completion::new());
        let told = found.clone();
        self.find_sites(&error, move || told.complete(Ok(())));
        match WaitMode::current() {
            WaitMode::Block => drop(found.park(None)),
            WaitMode::Await => found.ended().await,
        }
        self.with_sites(error)
    }

    /// `error`, which says where the ranks that disagree have called, as far as that is known.
    pub(crate) fn with_sites(&self, mut error: Error) -> Error {
        let Some((called, _)) = self.disagreement_of(&error) else { return error };
        let state = self.sites();
        if state.called != Some(called) {
            return error;
        }
        if let Error::CollectiveMismatch { rank, ours, other_rank, theirs, .. } = &mut error {
            for (rank, text) in [(rank, ours), (other_rank, theirs)] {
                let site = state.sites.iter().find(|(known, _)| known == rank);
                if let Some((_, site)) = site.filter(|_| !text.contains(CALLED_AT)) {
                    text.push_str(CALLED_AT);
                    text.push_str(site);
                }
            }
        }
        error
    }

    /// What an error says that ranks disagree on, and which ranks of the group have called it.
    fn disagreement_of(&self, error: &Error) -> Option<(Called, Vec<u32>)> {
        if !self.notes_calls {
            return None;
        }
        let Error::CollectiveMismatch {
            group: named,
            sequence,
            rank,
            ours,
            other_rank,
            theirs,
            ..
        } = error
        else {
            return None;
        };
        let group = self.group();
        // Leaving one group may tell of another.
        if *named != group.name {
            return None;
        }
        let it = Called { group: group.name, epoch: group.epoch, sequence: *sequence };
        // A rank that leaves has called nothing.
        let sides = [(*rank, ours), (*other_rank, theirs)];
        let called = sides.into_iter().filter(|(_, text)| *text != LEAVES);
        Some((it, called.map(|(rank, _)| rank).collect()))
    }

    /// Keeps what these ranks tell in time.
    fn collect(self: &Arc<Self>, called: Called, ranks: Vec<u32>) {
        let group = self.group();
        let members =
            ranks.into_iter().filter_map(|rank| Some((rank, *group.members.get(rank as usize)?)));
        let members: Vec<(u32, u32)> = members.collect();
        let until = Instant::now() + LIMIT;
        let (tell, told) = mpsc::channel();
        let meeting = self.meeting().clone();
        let asked_in = meeting.and_then(|it| Some((it.store.upgrade()?, it.generation)));
        // A thread of its own: the store may not answer.
        let (recorder, own) = (self.clone(), group.global_rank());
        let search = Search { recorder, called, own, asked_in, until };
        let thread = std::thread::Builder::new().name("polyrank-sites-ask".to_owned());
        if thread.spawn(move || search.run(members, &tell)).is_err() {
            return;
        }
        loop {
            match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(site) => self.sites().sites.push(site),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn end_search(&self) {
        let waiting = self.sites().waiting.take();
        waiting.into_iter().flatten().for_each(|then| then());
    }

    /// Where collective `sequence` was called.
    fn site_of(&self, sequence: u64) -> Answer {
        if !self.notes_calls {
            return Answer::Nothing;
        }
        let operations = self.operations();
        let is_it = |it: &&RecordedOperation| {
            let numbers = it.sequence..it.sequence + it.parts;
            it.note.kind == OperationKind::Collective && numbers.contains(&sequence)
        };
        // It may be about to be noted.
        let Some(found) = operations.iter().rfind(is_it) else { return Answer::NotYet };
        found.frames.first().map_or(Answer::Nothing, |frame| Answer::Site(shown(frame)))
    }

    fn meeting(&self) -> MutexGuard<'_, Option<Meeting>> {
        self.sites.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sites(&self) -> MutexGuard<'_, State> {
        self.sites.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A search for the sites of ranks.
struct Search {
    recorder: Arc<Recorder>,
    called: Called,
    /// This rank, as a global rank.
    own: u32,
    /// Where the others are asked, and the generation of this rank there.
    asked_in: Option<(Arc<dyn Store>, i64)>,
    until: Instant,
}

impl Search {
    /// Tells what is found of `members`, as ranks of the group and as global ones, until all is or
    /// it is time.
    fn run(self, members: Vec<(u32, u32)>, tell: &Sender<Site>) {
        // Another rank may have found that it disagrees with this one, which may leave before it is
        // asked.
        let _ = self.own_site();
        let mut open = members;
        let mut is_asked = BTreeSet::new();
        while !open.is_empty() && Instant::now() < self.until {
            open.retain(|&(rank, global)| {
                let found = match (global == self.own, &self.asked_in) {
                    (true, _) => Ok(self.own_site()),
                    (false, Some((store, _))) => {
                        self.told_site(&**store, global, is_asked.insert(global))
                    }
                    (false, None) => Ok(Answer::Nothing),
                };
                match found {
                    Ok(Answer::Site(site)) => drop(tell.send((rank, site))),
                    Ok(Answer::NotYet) => return true,
                    Ok(Answer::Nothing) => {}
                    Err(error) => {
                        tracing::debug!(%error, "cannot ask rank {global} where it has called");
                    }
                }
                false
            });
            if !open.is_empty() {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
    }

    /// Where this rank has called it; the others are told before they ask.
    fn own_site(&self) -> Answer {
        let found = self.recorder.site_of(self.called.sequence);
        if let (Some((store, generation)), Some(text)) = (&self.asked_in, found.text()) {
            // What this rank itself says of it does not depend on the store.
            let question = self.called.in_generation(*generation);
            let _ = store.set(&answer_key(self.own, &question), text.as_bytes());
        }
        found
    }

    /// Where another rank has called it, which is asked if that is new and it has not told yet.
    fn told_site(&self, store: &dyn Store, rank: u32, is_new: bool) -> Result<Answer> {
        let key = generation_key(rank, &self.called.group, self.called.epoch);
        // It has said so before it called anything, if it notes its calls.
        if !store.check(&[&key])? {
            return Ok(Answer::Nothing);
        }
        let question = self.called.in_generation(store.add(&key, 0)?);
        let key = answer_key(rank, &question);
        if store.check(&[&key])? {
            return Ok(Answer::of(&store.get(&key)?));
        }
        if is_new {
            // Strings and numbers always have a form.
            let mut line = serde_json::to_vec(&question).unwrap_or_default();
            line.push(b'\n');
            store.append(&questions_key(rank), &line)?;
        }
        Ok(Answer::NotYet)
    }
}

impl Called {
    fn in_generation(&self, generation: i64) -> Question {
        let Called { group, epoch, sequence } = self.clone();
        Question { group, epoch, sequence, generation }
    }
}

/// What a rank has told.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    NotYet,
    /// It was not noted, and will not be.
    Nothing,
    Site(String),
}

impl Answer {
    fn of(site: &[u8]) -> Answer {
        match str::from_utf8(site) {
            Ok(site) if (1..=MAX_SITE).contains(&site.len()) => Answer::Site(site.to_owned()),
            _ => Answer::Nothing,
        }
    }

    /// As others are told it, once it is known.
    fn text(&self) -> Option<&str> {
        match self {
            Answer::NotYet => None,
            Answer::Nothing => Some(""),
            Answer::Site(site) => Some(site),
        }
    }
}

/// Tells those who ask in `store` where `rank` of this process has called; `answered` are the
/// questions that it has answered.
///
/// # Errors
/// Those of the store.
pub(super) fn answer(
    store: &Arc<dyn Store>,
    rank: u32,
    answered: &mut BTreeSet<Question>,
) -> Result<()> {
    let key = questions_key(rank);
    if !store.check(&[&key])? {
        return Ok(());
    }
    let asked = store.get(&key)?;
    for line in asked[..asked.len().min(MAX_ASKED)].split(|&byte| byte == b'\n') {
        let Ok(question) = serde_json::from_slice::<Question>(line) else { continue };
        if answered.contains(&question) {
            continue;
        }
        if let Some(site) = site_here(store, rank, &question).text() {
            store.set(&answer_key(rank, &question), site.as_bytes())?;
            answered.insert(question);
        }
    }
    Ok(())
}

/// Whether others ask in `store` where operations of this process were called.
pub(super) fn is_asked_in(store: &Arc<dyn Store>) -> bool {
    all().iter().any(|recorder| recorder.tells_in(store))
}

/// Where `rank` of this process has called what it is asked for in `store`: in that very group, not
/// in another one of its name that was left, which an operation may keep.
fn site_here(store: &Arc<dyn Store>, rank: u32, question: &Question) -> Answer {
    let is_it = |recorder: &&Arc<Recorder>| {
        let group = recorder.group();
        let generation = recorder.meeting().as_ref().map(|meeting| meeting.generation);
        group.global_rank() == rank
            && group.name == question.group
            && group.epoch == question.epoch
            && generation == Some(question.generation)
            && recorder.tells_in(store)
    };
    // The newest is the last.
    let known = all();
    known.iter().rfind(is_it).map_or(Answer::NotYet, |it| it.site_of(question.sequence))
}

fn questions_key(rank: u32) -> String {
    format!("sites asked of/{rank}")
}

/// Counts the groups of a name that a rank has made in the store, as far as it notes its calls.
fn generation_key(rank: u32, group: &str, epoch: u64) -> String {
    format!("sites told by/{group}/{epoch}/{rank}")
}

fn answer_key(rank: u32, question: &Question) -> String {
    let Question { group, epoch, sequence, generation } = question;
    format!("site/{group}/{epoch}/{sequence}/{rank}/{generation}")
}

/// A line of the program: `train.py:40 in step`.
fn shown(frame: &CallFrame) -> String {
    let folder = std::env::current_dir().ok();
    let path = std::path::Path::new(&frame.filename);
    let path = folder.as_ref().and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path);
    let mut site = match frame.filename.is_empty() {
        true => frame.name.clone(),
        false => format!("{}:{} in {}", path.display(), frame.line, frame.name),
    };
    let mut end = site.len().min(MAX_SITE);
    while !site.is_char_boundary(end) {
        end -= 1;
    }
    site.truncate(end);
    site
}
