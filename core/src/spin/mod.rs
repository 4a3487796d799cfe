//! How a thread waits before it sleeps: how often it looks again, what it does between two looks,
//! whether that has paid lately, and whether others want the core. Knows neither what is waited for
//! nor who waits: how long it pays was measured for each user, and is that user's parameter.
//!
//! | file | what it answers |
//! |---|---|
//! | `budget` | how often or how long to look, and what to do between two looks |
//! | `back_off` | how long to look, or whether at all, learned from what came of it |
//! | `contention` | whether others compute on this host, so that a core given up comes back late |
//! | `cores` | whether each rank of this host has a core |

#[cfg(feature = "tcp")]
mod back_off;
mod budget;
#[cfg(feature = "tcp")]
mod contention;
mod cores;

#[cfg(feature = "tcp")]
pub(crate) use back_off::{AdaptiveSpin, BackOff};
#[cfg(any(feature = "mpi", feature = "nccl"))]
pub(crate) use budget::PollStages;
pub use budget::{Pause, SpinBudget, SpinLimits, SpinPolicy};
#[cfg(feature = "tcp")]
pub(crate) use contention::BusyPoll;
pub(crate) use cores::cores;
#[cfg(feature = "mpi")]
pub(crate) use cores::is_crowded;
