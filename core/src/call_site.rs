//! Where in the user's program this process stands, as the package for its language can tell. Knows
//! no language.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::clock;
use crate::process_mutex::ProcessMutex;

/// Tells where the program stands: `train.py:88 in step`. None if that cannot be told.
pub type CallSiteSource = dyn Fn() -> Option<String> + Send + Sync;

/// How long the program may take to answer: it may be busy.
const PATIENCE: Duration = Duration::from_millis(500);

struct Source {
    tell: Option<Arc<CallSiteSource>>,
    /// The process whose thread asks it, if one does: it is not asked twice at a time.
    asked_by: Option<u32>,
}

static SOURCE: ProcessMutex<Source> = ProcessMutex::new(Source { tell: None, asked_by: None });

/// Asks `tell` from now on.
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
