//! Whether more threads want to run on this machine than it has cores. Knows nothing of who asks.

use std::cmp::Ordering;

use super::cores::cores;

/// Whether more threads run or want to at this moment than there are cores, or fewer. None if
/// nobody says, or if this process may not use all cores: how many threads want to run on those
/// that it may use, the system does not tell.
#[cfg(target_os = "linux")]
pub(super) fn compared_with_cores() -> Option<Ordering> {
    use std::fs::read_to_string;
    use std::sync::OnceLock;

    static ONLINE: OnceLock<Option<usize>> = OnceLock::new();
    let online =
        *ONLINE.get_or_init(|| listed(&read_to_string("/sys/devices/system/cpu/online").ok()?));
    let online = online.filter(|online| *online == cores())?;
    Some(runnable(&read_to_string("/proc/loadavg").ok()?)?.cmp(&online))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn compared_with_cores() -> Option<Ordering> {
    let _ = cores;
    None
}

/// The threads that run or want to, in the text of `/proc/loadavg`, proc_loadavg(5).
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has these files"))]
fn runnable(text: &str) -> Option<usize> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// How many there are in a list of numbers and ranges, as in `0-3,6`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has these files"))]
fn listed(text: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    text.trim().split(',').map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_as_they_are_written() {
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        for other in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 many/80 1", "a b c d e"] {
            assert_eq!(runnable(other), None, "{other}");
        }
        for (text, cores) in [("0\n", 1), ("0-1\n", 2), ("0-3,6,8-9\n", 7)] {
            assert_eq!(listed(text), Some(cores), "{text}");
        }
        for other in ["", "3-1", "all", "0-"] {
            assert_eq!(listed(other), None, "{other}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_asks_wants_to_run() {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        assert!(runnable(&text).is_none_or(|threads| threads >= 1), "{text}");
    }
}
