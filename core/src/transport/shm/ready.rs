//! A descriptor that is always ready, for a rank to wait for that has something to do. Knows
//! nothing of what that is.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// Nobody reads it, so that a forked child may have the same.
static READY: OnceLock<Arc<OwnedFd>> = OnceLock::new();

/// That descriptor, one for all groups of a process.
///
/// # Errors
/// The system's error if the process has no descriptor left.
pub(super) fn descriptor() -> Result<Arc<OwnedFd>, Errno> {
    if let Some(known) = READY.get() {
        return Ok(known.clone());
    }
    let new = Arc::new(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    Ok(READY.get_or_init(|| new).clone())
}
