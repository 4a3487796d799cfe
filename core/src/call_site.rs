//! Where in the user's program this process stands, and what of it called, as the package for its
//! language can tell. Knows no language.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::clock;
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
    /// Its file.
    pub filename: String,
    /// The line, from 1.
    pub line: u32,
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

/// Asks `tell` from now on where calls come from.
pub fn set_call_frame_source(tell: Arc<CallFrameSource>) {
    let former = FRAMES.lock().replace(tell);
    drop(former);
}

/// Which lines of the program have led to the call that this thread is in, as far as can be told.
pub(crate) fn call_frames() -> Box<[CallFrame]> {
    let tell = FRAMES.lock().clone();
    tell.map(|tell| tell().into()).unwrap_or_default()
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
