//! What a waiting thread does before it sleeps. Knows nothing of what it waits for.

use std::time::Duration;

/// What a waiting thread does before it sleeps in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Looks again and again, for at most this long without progress.
    Spin(Duration),
    /// Lets other processes run between looks, for at most this long without progress.
    Yield(Duration),
    /// Sleeps immediately.
    Sleep,
}

impl SpinPolicy {
    /// The policy where `ranks_on_host` ranks share this host's cores: with a core for each, a rank
    /// may spin; otherwise it would take the core from the rank that it waits for.
    pub fn for_host(ranks_on_host: usize) -> SpinPolicy {
        if ranks_on_host <= cores() {
            SpinPolicy::Spin(Duration::from_micros(100))
        } else {
            SpinPolicy::Yield(Duration::from_micros(50))
        }
    }

    #[cfg(feature = "tcp")]
    pub(super) fn limit(self) -> Duration {
        match self {
            SpinPolicy::Spin(limit) | SpinPolicy::Yield(limit) => limit,
            SpinPolicy::Sleep => Duration::ZERO,
        }
    }
}

/// How often a thread looks for what is expected soon, before it gives way to others.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    /// How often it looks.
    pub spins: u32,
    /// What it does between two looks.
    pub relax: fn(),
}

impl SpinBudget {
    /// For those who never look twice.
    pub const NONE: SpinBudget = SpinBudget { spins: 0, relax: std::hint::spin_loop };
}

/// The cores that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
