//! The cores that this process may use, and whether they are enough for the ranks of this host.

/// The cores that this process may use.
pub(crate) fn cores() -> usize {
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
