//! Where two ranks that disagree on a collective have called it: at the debug level DETAIL, each
//! asks the other through the store in which they meet. Knows no backend.
//!
//! Who learns of a disagreement tells where it called the collective itself, and asks for the rest;
//! the watch of a rank that has not learned of it answers, whatever its program does. An error
//! waits for that at most for [`LIMIT`], and then says what is known by then: the other rank may be
//! gone, or the store.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Question {
    group: String,
    epoch: u64,
    sequence: u64,
}

/// Where a rank called something.
type Site = (u32, String);

/// What is known of the disagreement of a group.
#[derive(Default)]
pub(super) struct Sites(Mutex<State>);

#[derive(Default)]
struct State {
    /// What was asked for last.
    question: Option<Question>,
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

    /// Calls `then` once [`Recorder::with_sites`] can say where the ranks are that disagree, if
    /// `error` is about that; at once if it is not, and at the latest after [`LIMIT`]. Does not
    /// block.
    pub(crate) fn find_sites(
        self: &Arc<Self>,
        error: &Error,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some((question, ranks)) = self.question_of(error) else { return then() };
        {
            let mut state = self.sites();
            if state.question.as_ref() == Some(&question) {
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
                question: Some(question.clone()),
                waiting: Some(vec![waiting]),
                ..State::default()
            };
        }
        let recorder = self.clone();
        let thread = std::thread::Builder::new().name("polyrank-sites".to_owned());
        let asking = thread.spawn(move || {
            recorder.collect(question, ranks);
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
        let Some((question, _)) = self.question_of(&error) else { return error };
        let state = self.sites();
        if state.question != Some(question) {
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

    /// What is asked because of an error, and of which ranks of the group.
    fn question_of(&self, error: &Error) -> Option<(Question, Vec<u32>)> {
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
        let question = Question { group: group.name, epoch: group.epoch, sequence: *sequence };
        // A rank that leaves has called nothing.
        let sides = [(*rank, ours), (*other_rank, theirs)];
        let called = sides.into_iter().filter(|(_, text)| *text != LEAVES);
        Some((question, called.map(|(rank, _)| rank).collect()))
    }

    /// Keeps what these ranks tell in time.
    fn collect(&self, question: Question, ranks: Vec<u32>) {
        let group = self.group();
        let members =
            ranks.into_iter().filter_map(|rank| Some((rank, *group.members.get(rank as usize)?)));
        let members: Vec<(u32, u32)> = members.collect();
        let until = Instant::now() + LIMIT;
        let (tell, told) = mpsc::channel();
        let store = watch::root_of(&group).map(|(_, store)| store);
        // A thread of its own: the store may not answer.
        let own = group.global_rank();
        let search = Search { question, own, members, until };
        let thread = std::thread::Builder::new().name("polyrank-sites-ask".to_owned());
        if thread.spawn(move || search.run(store, &tell)).is_err() {
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

    /// Where collective `sequence` was called: none if it was not, or not yet.
    fn site_of(&self, sequence: u64) -> Option<String> {
        let operations = self.operations();
        let is_it = |it: &&RecordedOperation| {
            let numbers = it.sequence..it.sequence + it.parts;
            it.note.kind == OperationKind::Collective && numbers.contains(&sequence)
        };
        let found = operations.iter().rfind(is_it)?;
        found.frames.first().map(shown)
    }

    fn sites(&self) -> MutexGuard<'_, State> {
        self.sites.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A search for the sites of ranks.
struct Search {
    question: Question,
    /// This rank, as a global rank.
    own: u32,
    /// Those that are asked, as ranks of the group and as global ones.
    members: Vec<(u32, u32)>,
    until: Instant,
}

impl Search {
    /// Tells what is found, until all is or it is time.
    fn run(self, store: Option<Arc<dyn Store>>, tell: &Sender<Site>) {
        let Search { question, own, members, until } = self;
        // Another rank may have found that it disagrees with this one, which may leave before it is
        // asked.
        let _ = own_site(own, &question, store.as_deref());
        let mut open = members;
        let mut is_asked = BTreeSet::new();
        while !open.is_empty() && Instant::now() < until {
            open.retain(|&(rank, global)| {
                let found = match (global == own, &store) {
                    (true, store) => own_site(own, &question, store.as_deref()),
                    (false, Some(store)) => {
                        let is_new = is_asked.insert(global);
                        told_site(&**store, global, &question, is_new)
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
}

/// What a rank has told.
enum Answer {
    NotYet,
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
}

/// Where this rank has called it; the others are told before they ask.
fn own_site(rank: u32, question: &Question, store: Option<&dyn Store>) -> Result<Answer> {
    let Some(site) = site_here(rank, question) else { return Ok(Answer::NotYet) };
    if let Some(store) = store {
        // What this rank itself says of it does not depend on the store.
        let _ = store.set(&answer_key(rank, question), site.as_bytes());
    }
    Ok(Answer::of(site.as_bytes()))
}

/// Where another rank has called it, which is asked if that is new and it has not told yet.
fn told_site(store: &dyn Store, rank: u32, question: &Question, is_new: bool) -> Result<Answer> {
    let key = answer_key(rank, question);
    if store.check(&[&key])? {
        return Ok(Answer::of(&store.get(&key)?));
    }
    if is_new {
        // Strings and numbers always have a form.
        let mut line = serde_json::to_vec(question).unwrap_or_default();
        line.push(b'\n');
        store.append(&questions_key(rank), &line)?;
    }
    Ok(Answer::NotYet)
}

/// Tells those who ask in `store` where `rank` of this process has called; `answered` are the
/// questions that it has answered.
///
/// # Errors
/// Those of the store.
pub(super) fn answer(
    store: &dyn Store,
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
        // It may be about to be noted.
        if let Some(site) = site_here(rank, &question) {
            store.set(&answer_key(rank, &question), site.as_bytes())?;
            answered.insert(question);
        }
    }
    Ok(())
}

/// Where `rank` of this process has called it; empty if that was not noted.
fn site_here(rank: u32, question: &Question) -> Option<String> {
    let known = all().into_iter().find_map(|recorder| {
        let group = recorder.group();
        let is_it = group.global_rank() == rank
            && group.name == question.group
            && group.epoch == question.epoch;
        is_it.then_some(recorder)
    });
    known?.site_of(question.sequence)
}

fn questions_key(rank: u32) -> String {
    format!("sites asked of/{rank}")
}

fn answer_key(rank: u32, question: &Question) -> String {
    let Question { group, epoch, sequence } = question;
    format!("site/{group}/{epoch}/{sequence}/{rank}")
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
