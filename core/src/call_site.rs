//! Where in the user's program this process stands, as the package for its language can tell. Knows
//! no language.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Tells where the program stands: `train.py:88 in step`. None if that cannot be told.
pub type CallSiteSource = dyn Fn() -> Option<String> + Send + Sync;

/// How long the program may take to answer: it may be busy.
const PATIENCE: Duration = Duration::from_millis(500);

struct Source {
    tell: Option<Arc<CallSiteSource>>,
    /// Whether it is being asked: it is not asked twice at a time.
    is_asked: bool,
}

static SOURCE: Mutex<Source> = Mutex::new(Source { tell: None, is_asked: false });

/// Asks `tell` from now on.
pub fn set_call_site_source(tell: Arc<CallSiteSource>) {
    lock().tell = Some(tell);
}

/// Where the program stands, if it can tell that soon.
pub(crate) fn call_site() -> Option<String> {
    let tell = {
        let mut source = lock();
        if source.is_asked {
            return None;
        }
        let tell = source.tell.clone()?;
        source.is_asked = true;
        tell
    };
    let (answer, inbox) = mpsc::sync_channel(1);
    // A thread of its own: who asks must not wait for a program that does not answer.
    let thread = std::thread::Builder::new().name("polyrank-where".to_owned()).spawn(move || {
        let site = tell();
        lock().is_asked = false;
        // Whoever asked may have gone on.
        let _ = answer.try_send(site);
    });
    if thread.is_err() {
        lock().is_asked = false;
        return None;
    }
    inbox.recv_timeout(PATIENCE).ok().flatten()
}

fn lock() -> std::sync::MutexGuard<'static, Source> {
    SOURCE.lock().unwrap_or_else(PoisonError::into_inner)
}
