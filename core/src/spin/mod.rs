//! How a thread waits before it sleeps: how often it polls, what it does between two polls, whether
//! that has paid lately, and whether the core is contended. Knows neither what is waited for nor
//! which thread waits: how long polling pays was measured for each user, and is its parameter.
//!
//! | file | what it answers |
//! |---|---|
//! | `budget` | how often or how long to poll, and what to do between two polls |
//! | `back_off` | how long to poll, or whether at all, learned from earlier results |
//! | `contention` | whether others compute on this host, so that a core given up comes back late |
//! | `cores` | whether each rank of this host has a core |
//! | `runnable` | whether more threads want to run than there are cores |
//! | `wake_cost` | how long it takes to wake a thread |

#[cfg(feature = "tcp")]
mod back_off;
mod budget;
#[cfg(feature = "tcp")]
mod contention;
mod cores;
#[cfg(feature = "tcp")]
mod runnable;
#[cfg(feature = "tcp")]
mod wake_cost;

#[cfg(feature = "tcp")]
pub(crate) use back_off::{AdaptiveSpin, BackOff};
#[cfg(any(feature = "mpi", feature = "nccl"))]
pub(crate) use budget::PollStages;
pub use budget::{Pause, SpinBudget, SpinLimits, SpinPolicy};
#[cfg(feature = "tcp")]
pub(crate) use contention::BusyPoll;
pub(crate) use cores::cores;
#[cfg(any(feature = "mpi", all(feature = "tcp", target_os = "linux")))]
pub(crate) use cores::is_crowded;
#[cfg(feature = "tcp")]
pub(crate) use wake_cost::WakeCost;
