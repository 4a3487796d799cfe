//! Files of what was called: one of each rank, written when an operation fails, or on SIGUSR1, and
//! one of all ranks, on request. Knows nothing of what is in them.

#![allow(unsafe_code)]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::env::variable;

/// Whether the signal has come since it was last looked for.
static HAS_SIGNAL: AtomicBool = AtomicBool::new(false);

/// The folder in which each rank writes its own file; none if it is not to.
pub(super) fn folder() -> Option<PathBuf> {
    variable::POLYRANK_TRACE_DIR.value().map(PathBuf::from)
}

/// Where `rank` writes its own file in `folder`.
pub(super) fn of_rank(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("polyrank_trace_rank_{rank}.json"))
}

/// Writes `dump`; whoever reads the file finds all of it, or what was there before.
pub(super) fn write(path: &Path, dump: &Value) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = folder.join(format!(".{name}.{}", crate::clock::process_id()));
    let written = (|| {
        let mut file = io::BufWriter::new(std::fs::File::create(&unfinished)?);
        serde_json::to_writer(&mut file, dump)?;
        file.write_all(b"\n")?;
        file.flush()?;
        std::fs::rename(&unfinished, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Notes from now on that SIGUSR1 has come, if nobody else does anything with it.
pub(super) fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        // SAFETY: `sigaction` is called with valid pointers, and the handler only stores an
        // atomic, which signal handlers may do (POSIX, "async-signal-safe").
        unsafe {
            let mut known: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut known) != 0
                || known.sa_sigaction != libc::SIG_DFL
            {
                return;
            }
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = note_signal as *const () as libc::sighandler_t;
            ours.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &raw const ours, std::ptr::null_mut());
        }
    });
}

/// Whether SIGUSR1 has come since this was last asked.
pub(super) fn take_signal() -> bool {
    HAS_SIGNAL.swap(false, Ordering::Relaxed)
}

extern "C" fn note_signal(_: libc::c_int) {
    HAS_SIGNAL.store(true, Ordering::Relaxed);
}
