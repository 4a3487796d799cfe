//! Where in the user's program this process stands, and what of it called, as the package for its
//! language can tell. Knows no language.

mod backtrace;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::clock;
use crate::context;
use crate::process_mutex::ProcessMutex;

/// Tells where the program stands: `train.py:88 in step`. None if that cannot be told.
pub type CallSiteSource = dyn Fn() -> Option<String> + Send + Sync;

/// Tells which lines of the program have led to the call that this thread is in, the innermost
/// first.
pub type CallFrameSource = dyn Fn() -> Vec<CallFrame> + Send + Sync;

/// A line of the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFrame {
    /// The function.
    pub name: String,
    /// Its file; empty if that is not known.
    pub filename: String,
    /// The line, from 1; 0 if that is not known.
    pub line: u32,
}

impl CallFrame {
    /// "train.py:41 in step".
    pub(crate) fn place(&self) -> String {
        let CallFrame { name, filename, line } = self;
        let file = filename.rsplit(['/', '\\']).next().unwrap_or(filename);
        match file {
            "" => name.clone(),
            file => format!("{file}:{line} in {name}"),
        }
    }
}

/// How long the program may take to answer: it may be busy.
const PATIENCE: Duration = Duration::from_millis(500);

struct Source {
    tell: Option<Arc<CallSiteSource>>,
    /// The process whose thread asks it, if one does: it is not asked twice at a time.
    asked_by: Option<u32>,
}

static SOURCE: ProcessMutex<Source> = ProcessMutex::new(Source { tell: None, asked_by: None });

static FRAMES: ProcessMutex<Option<Arc<CallFrameSource>>> = ProcessMutex::new(None);

/// How many note which lines have called.
static WANTED_BY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Those of calls whose operations are issued now.
    static CAPTURED: RefCell<Vec<Arc<[CallFrame]>>> = const { RefCell::new(Vec::new()) };
}

/// The lines that have led to a call, for operations that it issues later, or on another thread.
/// Nothing is kept where nobody notes such lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOrigin(Option<Arc<[CallFrame]>>);

impl CallOrigin {
    /// That of the call that this thread is in.
    pub(crate) fn here() -> CallOrigin {
        CallOrigin(are_frames_wanted().then(call_frames))
    }

    /// Runs `f`, whose operations come from there.
    pub(crate) fn apply<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(frames) => context::within(&CAPTURED, frames.clone(), f),
            None => f(),
        }
    }

    /// `future`, whose operations come from there; none where nothing is kept.
    pub(crate) fn apply_to<F: Future>(
        self,
        future: F,
    ) -> std::result::Result<impl Future<Output = F::Output>, F> {
        match self.0 {
            Some(frames) => Ok(context::within_async(&CAPTURED, frames, future)),
            None => Err(future),
        }
    }
}

/// One more notes from now on which lines have called, until [`want_no_frames`].
pub(crate) fn want_frames() {
    WANTED_BY.fetch_add(1, Ordering::Relaxed);
}

/// One of those who have called [`want_frames`] is gone.
pub(crate) fn want_no_frames() {
    WANTED_BY.fetch_sub(1, Ordering::Relaxed);
}

/// Whether somebody notes which lines have called.
pub(crate) fn are_frames_wanted() -> bool {
    WANTED_BY.load(Ordering::Relaxed) > 0
}

/// Asks `tell` from now on where calls come from.
pub fn set_call_frame_source(tell: Arc<CallFrameSource>) {
    let former = FRAMES.lock().replace(tell);
    drop(former);
}

/// Which lines of the program have led to the call that this thread is in, as far as can be told.
pub(crate) fn call_frames() -> Arc<[CallFrame]> {
    if let Some(captured) = context::innermost(&CAPTURED) {
        return captured;
    }
    let tell = FRAMES.lock().clone();
    // Where nobody tells, the program is one of Rust.
    tell.map_or_else(backtrace::frames, |tell| tell()).into()
}

/// Asks `tell` from now on where the program stands.
pub fn set_call_site_source(tell: Arc<CallSiteSource>) {
    let former = SOURCE.lock().tell.replace(tell);
    // Outside the lock: it belongs to the program.
    drop(former);
}

/// Where the program stands, if it can tell that soon.
pub(crate) fn call_site() -> Option<String> {
    let tell = {
        let mut source = SOURCE.lock();
        let process = clock::process_id();
        if source.asked_by == Some(process) {
            return None;
        }
        let tell = source.tell.clone()?;
        source.asked_by = Some(process);
        tell
    };
    let (answer, inbox) = mpsc::sync_channel(1);
    // A thread of its own: who asks must not wait for a program that does not answer.
    let thread = std::thread::Builder::new().name("polyrank-where".to_owned()).spawn(move || {
        let site = tell();
        SOURCE.lock().asked_by = None;
        // Whoever asked may have gone on.
        let _ = answer.try_send(site);
    });
    if thread.is_err() {
        SOURCE.lock().asked_by = None;
        return None;
    }
    inbox.recv_timeout(PATIENCE).ok().flatten()
}
