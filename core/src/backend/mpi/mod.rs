//! The backend over an MPI library, which is found and loaded at run time: one binary for Open MPI,
//! MPICH and every library with the ABI of MPI 5. Knows no schedule and no transport.
//!
//! ```text
//! launcher ─▶ library ─▶ abi + functions ─▶ job (one in a process)
//!                                            │
//!  Call ─▶ collectives, messages ─▶ running operations ─▶ active ─▶ progress ─▶ Completion
//!                                                                      │
//!                                       world: the job, its groups, what is under way
//! ```
//!
//! Every operation is one of MPI's that does not block, so that it can have a deadline. MPI cannot
//! take back what it was given: memory of an operation that failed is kept until MPI releases it.
//! Memory that is only lent, for a call that blocks, is copied if it is small; if it is large, the
//! operation fails and MPI does not release it within half a second, the job is ended with a
//! message (`MPI_Abort`), as nothing else would be safe.

mod abi;
mod active_operations;
mod backend;
mod collectives;
mod comparison;
mod functions;
mod group;
mod heap;
mod job;
mod launcher;
mod layout;
mod library;
mod messages;
mod operators;
mod pieces;
mod place;
mod progress;
mod queued_collective;
#[cfg(feature = "internals")]
mod raw;
mod reductions;
mod running_operation;
mod small;
mod start;
mod world;

use crate::backend::Capabilities;
use crate::backend::debug_level::DebugLevel;
use crate::backend::registration::{Bootstrap, ConnectFuture, Registration};
use crate::generated::error::Result;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use raw::{RawCall, raw_allreduce, raw_allreduce_of};
use world::AnyWorld;

/// The backend's row in the registry.
pub(super) const REGISTRATION: Registration = Registration {
    availability: available,
    capabilities: Some(capabilities),
    initialise: || place().map(drop),
    find_place: Some(start::find_place),
    ..Registration::new("mpi", "cpu", connect)
};

/// Whether there is an MPI library that this process can use.
///
/// # Errors
/// [`Error::BackendUnavailable`](crate::Error::BackendUnavailable) saying what was looked for, and
/// what was wrong with it.
pub fn available() -> Result<()> {
    world::found().map(drop).map_err(world::unavailable)
}

/// What the library that this process uses says of itself, and what it was opened as.
///
/// # Errors
/// As [`available`].
pub fn library() -> Result<String> {
    let found = world::found().map_err(world::unavailable)?;
    Ok(format!("{} ({})", found.version, found.name))
}

/// This process's rank in the MPI job and the number of its ranks. Initialises MPI, if nobody has.
///
/// # Errors
/// As [`available`]; also if the library made another job than the launcher started.
pub fn place() -> Result<(u32, u32)> {
    world::world().map(AnyWorld::place)
}

/// Whether MPI is initialised for groups of this process, as it is when the first of them is made,
/// or by [`place`].
pub fn is_initialised() -> bool {
    world::is_initialised()
}

/// What every MPI library can do, where nothing is checked that costs time.
fn capabilities() -> Capabilities {
    backend::declared(DebugLevel::Off)
}

/// Joins a group of ranks of one MPI job.
///
/// # Errors
/// As [`place`]; [`Error::RendezvousTimeout`] naming the ranks that did not come;
/// [`Error::Rendezvous`] if they are not of one job.
fn connect(bootstrap: Bootstrap<'_>) -> ConnectFuture<'_> {
    Box::pin(async move {
        let Bootstrap { store, rank, size, group, timeout, .. } = bootstrap;
        let ranks = (rank, size);
        match world::world()? {
            AnyWorld::Ints(world) => backend::connect(world, store, ranks, group, timeout).await,
            AnyWorld::Pointers(world) => {
                backend::connect(world, store, ranks, group, timeout).await
            }
        }
    })
}
