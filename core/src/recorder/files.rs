//! Files of what was called: one of each rank, written when an operation fails, or on SIGUSR1, and
//! one of all ranks, on request. Knows nothing of what is in them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use crate::env::variable;

/// Whether the signal has come since it was last looked for.
static HAS_SIGNAL: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The folder in which each rank writes its own file; none if it is not to.
pub(super) fn folder() -> Option<PathBuf> {
    variable::POLYRANK_TRACE_DIR.value().map(PathBuf::from)
}

/// The folder in which each rank writes its own file on SIGUSR1; none if it is not to.
pub(super) fn folder_on_signal() -> Option<PathBuf> {
    folder().or_else(|| variable::POLYRANK_SIGNAL_DIR.value().map(PathBuf::from))
}

/// Where `rank` writes its own file in `folder`.
pub(super) fn of_rank(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("polyrank_trace_rank_{rank}.json"))
}

/// Notes from now on that SIGUSR1 has come, if something is to be written then; what the program
/// does with it, it still does.
pub(super) fn listen() {
    if folder_on_signal().is_none() {
        return;
    }
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        let flag = HAS_SIGNAL.get_or_init(Arc::default).clone();
        if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGUSR1, flag) {
            tracing::warn!(%error, "nothing is written on SIGUSR1");
        }
    });
}

/// Whether SIGUSR1 has come since this was last asked.
pub(super) fn take_signal() -> bool {
    HAS_SIGNAL.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}
