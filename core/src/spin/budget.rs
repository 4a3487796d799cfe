//! How often, or how long, a waiting thread polls before it sleeps, and what it does between two
//! polls.

use std::time::Duration;

use super::cores;

/// What a thread does between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nothing: a poll takes long enough.
    Nothing,
    /// Tells the processor that it waits, and keeps the core.
    Spin,
    /// Lets other threads have the core.
    Yield,
}

impl Pause {
    /// Makes the pause.
    #[inline]
    pub fn take(self) {
        match self {
            Pause::Nothing => {}
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
        }
    }
}

/// What a waiting thread does before it sleeps in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Polls, for at most this long without progress.
    Spin(Duration),
    /// Polls, and lets other processes run in between, for at most this long without progress.
    Yield(Duration),
    /// Sleeps immediately.
    Sleep,
}

/// How long one user of [`SpinPolicy::for_host`] polls.
#[derive(Clone, Copy, Debug)]
pub struct SpinLimits {
    /// If each rank has a core.
    pub spin: Duration,
    /// If ranks share cores.
    pub yielding: Duration,
}

impl SpinPolicy {
    /// The policy for `ranks_on_host` ranks on this host's cores. With a core for each, a rank may
    /// spin; otherwise it would take the core from the rank that it waits for.
    pub fn for_host(ranks_on_host: usize, limits: SpinLimits) -> SpinPolicy {
        if cores::is_crowded(ranks_on_host) {
            SpinPolicy::Yield(limits.yielding)
        } else {
            SpinPolicy::Spin(limits.spin)
        }
    }

    /// How long it polls.
    pub fn limit(self) -> Duration {
        match self {
            SpinPolicy::Spin(limit) | SpinPolicy::Yield(limit) => limit,
            SpinPolicy::Sleep => Duration::ZERO,
        }
    }

    /// What it does between two looks.
    #[inline]
    pub fn pause(self) -> Pause {
        match self {
            SpinPolicy::Spin(_) => Pause::Spin,
            SpinPolicy::Yield(_) | SpinPolicy::Sleep => Pause::Yield,
        }
    }
}

/// Polls of memory that take about 0.1 µs together.
const POLLS_WITHOUT_PAUSE: u32 = 20;

/// How often a thread polls for what is expected soon, before it gives way to others.
#[derive(Clone, Copy, Debug)]
pub struct SpinBudget {
    /// How often it looks.
    pub spins: u32,
    /// What it does between two polls.
    pub pause: Pause,
}

impl SpinBudget {
    /// For callers that poll only once.
    pub const NONE: SpinBudget = SpinBudget { spins: 0, pause: Pause::Nothing };

    /// Makes the pause after so many polls in vain. The first polls of a thread that keeps its core
    /// come without one: what is on its way is often there within 0.1 µs, which is as long as one
    /// pause takes on some processors.
    #[inline]
    pub fn pause_after(&self, polls: u32) {
        if self.pause != Pause::Spin || polls > POLLS_WITHOUT_PAUSE {
            self.pause.take();
        }
    }
}

/// How a thread waits for an event that no signal reports: it polls, at first without a sleep, and
/// with sleeps in between when that takes longer.
#[cfg(any(feature = "mpi", feature = "nccl"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollStages {
    /// How long it keeps the core, if each rank has one.
    pub(crate) spin: Duration,
    /// How long, from the start, it lets others have the core between two polls.
    pub(crate) yielding: Duration,
    /// The sleep between two polls after that.
    pub(crate) nap: Duration,
}

#[cfg(any(feature = "mpi", feature = "nccl"))]
impl PollStages {
    /// Makes the pause of a thread that has polled in vain for `idle`.
    pub(crate) fn pause(&self, idle: Duration, is_crowded: bool) {
        match self.pause_after(idle, is_crowded) {
            Some(pause) => pause.take(),
            None => std::thread::sleep(self.nap),
        }
    }

    /// The pause after `idle` in vain; none if it is a sleep.
    fn pause_after(&self, idle: Duration, is_crowded: bool) -> Option<Pause> {
        if idle < self.spin && !is_crowded {
            Some(Pause::Spin)
        } else if idle < self.yielding {
            Some(Pause::Yield)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn ranks_spin_where_each_has_a_core() {
        let limits = SpinLimits { spin: us(100), yielding: us(50) };
        let policy = SpinPolicy::for_host(1, limits);
        assert_eq!((policy, policy.limit()), (SpinPolicy::Spin(us(100)), us(100)));
        assert_eq!(policy.pause(), Pause::Spin);
        let policy = SpinPolicy::for_host(cores::cores() + 1, limits);
        assert_eq!((policy, policy.limit()), (SpinPolicy::Yield(us(50)), us(50)));
        assert_eq!(policy.pause(), Pause::Yield);
        assert_eq!(SpinPolicy::Sleep.limit(), us(0));
    }

    #[cfg(any(feature = "mpi", feature = "nccl"))]
    #[test]
    fn who_polls_for_long_sleeps_between_looks() {
        let stages = PollStages { spin: us(10), yielding: us(30), nap: us(5) };
        let pauses =
            |is_crowded| [0, 9, 10, 29, 30].map(|at| stages.pause_after(us(at), is_crowded));
        let [spin, yielding] = [Some(Pause::Spin), Some(Pause::Yield)];
        assert_eq!(pauses(false), [spin, spin, yielding, yielding, None]);
        assert_eq!(pauses(true), [yielding, yielding, yielding, yielding, None]);
    }
}
