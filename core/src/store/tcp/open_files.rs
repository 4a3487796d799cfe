//! How many files a process may have open, sockets among them. Most systems start programs with
//! 1,024 and let them have more for the asking, which only happens where it is needed: what a
//! program starts inherits its limits. Knows nothing of stores.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

/// The limit, `None` if there is none.
pub(in crate::store) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How many files this process may have open, and what to do where they are not enough.
pub(crate) fn advice() -> String {
    let limit = limit().map_or("no more".to_owned(), |limit| limit.to_string());
    format!(
        "This process may have {limit} files open at a time (ulimit -n), sockets among them: raise \
         the limit, or close what is not needed"
    )
}

/// Raises the limit to `wanted`, or as far as the system lets it; whether it is higher now.
pub(in crate::store) fn raise(wanted: Option<u64>) -> bool {
    let mut limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current else { return false };
    let target = match (wanted, limits.maximum) {
        (Some(wanted), Some(maximum)) => Some(wanted.min(maximum)),
        (wanted, maximum) => wanted.or(maximum),
    };
    if target.is_some_and(|target| target <= current) {
        return false;
    }
    limits.current = target;
    setrlimit(Resource::Nofile, limits).is_ok()
}

/// Makes room for `needed` open files.
///
/// # Errors
/// The limit, if the system does not let the process have so many.
#[cfg(all(feature = "internals", target_os = "linux"))]
pub fn make_room(needed: u64) -> Result<(), u64> {
    let is_enough = || limit().is_none_or(|limit| limit >= needed);
    if is_enough() || (raise(Some(needed)) && is_enough()) {
        return Ok(());
    }
    Err(limit().unwrap_or_default())
}

/// Whether `error` says that no more files can be opened.
pub(in crate::store) fn is_exhausted(error: &std::io::Error) -> bool {
    let known = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    known.contains(&error.raw_os_error())
}
