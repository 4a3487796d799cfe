//! The cores that this process may use, and whether they are enough for the ranks of this host.

/// The cores that this process may use.
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(crate) fn cores() -> usize {
    use std::sync::OnceLock;

    use rustix::thread::sched_getaffinity;

    /// How many the quota of the process's control group leaves, as it was at first: to read it
    /// takes a dozen system calls, and each group that is made asks for it several times.
    static QUOTA: OnceLock<usize> = OnceLock::new();
    // Which cores they are may be changed at any time.
    let Ok(allowed) = sched_getaffinity(None) else { return available() };
    let allowed = allowed.count() as usize;
    let found = || Some(available()).filter(|found| *found < allowed).unwrap_or(usize::MAX);
    allowed.min(*QUOTA.get_or_init(found)).max(1)
}

/// The cores that this process may use.
#[cfg(not(all(feature = "tcp", target_os = "linux")))]
pub(crate) fn cores() -> usize {
    available()
}

fn available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Whether `ranks_on_host` ranks share fewer cores, so that a rank that polls may take the core
/// from the rank that it waits for.
pub(crate) fn is_crowded(ranks_on_host: usize) -> bool {
    ranks_on_host > cores()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_for_each_rank_is_enough() {
        assert!(!is_crowded(1));
        assert!(!is_crowded(cores()));
        assert!(is_crowded(cores() + 1));
    }
}
