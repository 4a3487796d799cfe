//! Processes that run on cores that are named: they inherit the cores of the thread that starts
//! them. Knows nothing of what is started.

use std::io;

/// Starts something that may use `cores` only; none: as this thread.
///
/// # Errors
/// This process may not use one of the cores, or the start fails.
#[cfg(target_os = "linux")]
pub(crate) fn started_on<P>(
    cores: &[usize],
    start: impl FnOnce() -> io::Result<P>,
) -> io::Result<P> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    if cores.is_empty() {
        return start();
    }
    let mut chosen = CpuSet::new();
    for &core in cores {
        // The set has room for so many; more exist on no machine that it knows.
        if core >= CpuSet::MAX_CPU {
            return Err(not_there(core));
        }
        chosen.set(core);
    }
    let usual = sched_getaffinity(None)?;
    if let Some(core) = cores.iter().find(|core| !usual.is_set(**core)) {
        return Err(not_there(*core));
    }
    sched_setaffinity(None, &chosen)?;
    let started = start();
    sched_setaffinity(None, &usual)?;
    started
}

#[cfg(target_os = "linux")]
fn not_there(core: usize) -> io::Error {
    let message = format!("core {core} is not one of those that this process may use");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Starts something; other systems bind no process to a core.
///
/// # Errors
/// Cores are named, or the start fails.
#[cfg(not(target_os = "linux"))]
pub(crate) fn started_on<P>(
    cores: &[usize],
    start: impl FnOnce() -> io::Result<P>,
) -> io::Result<P> {
    match cores.is_empty() {
        true => start(),
        false => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "processes are bound to cores on Linux alone",
        )),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn what_is_started_has_its_cores_and_this_thread_keeps_its_own() {
        let usual = sched_getaffinity(None).unwrap();
        let core = (0..).find(|core| usual.is_set(*core)).unwrap();
        let words = ["Cpus_allowed_list", "/proc/self/status"];
        let output = started_on(&[core], || Command::new("grep").args(words).output()).unwrap();
        let list = String::from_utf8(output.stdout).unwrap();
        assert_eq!(list.split_whitespace().nth(1), Some(core.to_string().as_str()), "{list}");
        assert_eq!(sched_getaffinity(None).unwrap(), usual);
        let refused = started_on(&[usize::MAX], || Ok(())).unwrap_err();
        assert!(refused.to_string().contains("is not one of those"), "{refused}");
    }
}
