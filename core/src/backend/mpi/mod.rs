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
//! Every operation uses a nonblocking MPI call, so that it can have a deadline. MPI cannot return
//! a buffer early: memory of an operation that failed is kept until MPI releases it. Memory that is
//! borrowed for a blocking call is copied if it is small. Large memory is not copied: if such an
//! operation fails and MPI has not released the memory within half a second, the job is aborted
//! with a message (`MPI_Abort`), since nothing else would be safe.

mod abi;
mod active_operations;
mod backend;
mod collectives;
mod comparison;
mod cuda_support;
mod functions;
mod group;
mod heap;
mod host_cores;
mod job;
mod launcher;
mod layout;
mod library;
mod messages;
mod operators;
mod pieces;
mod progress;
mod queued_collective;
#[cfg(feature = "internals")]
mod raw;
mod reductions;
mod running_operation;
mod small;
mod start;
mod world;

use crate::backend::registration::{Bootstrap, ConnectFuture, Registration};
use crate::backend::{Capabilities, CudaMemory};
use crate::debug_level::DebugLevel;
use crate::generated::error::Result;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use raw::{RawCall, raw_allreduce, raw_allreduce_of};
use world::AnyWorld;

/// The backend's row in the registry.
pub(super) const REGISTRATION: Registration = Registration {
    availability: available,
    capabilities: Some(capabilities),
    initialise: || rank_and_size().map(drop),
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

/// The version string of the MPI library in use, and the file name it was loaded under.
///
/// # Errors
/// As [`available`].
pub fn library_version() -> Result<String> {
    let found = world::found().map_err(world::unavailable)?;
    Ok(format!("{} ({})", found.version, found.name))
}

/// This process's rank in the MPI job and the number of its ranks. Initialises MPI, if nobody has.
///
/// # Errors
/// As [`available`]; also if the library's job differs from the one the launcher started.
pub fn rank_and_size() -> Result<(u32, u32)> {
    world::world().map(AnyWorld::rank_and_size)
}

/// Whether MPI is initialised for groups of this process, as it is when the first of them is made,
/// or by [`rank_and_size`].
pub fn is_initialised() -> bool {
    world::is_initialised()
}

/// Whether the library takes memory of CUDA devices, as it answers itself. Initialises MPI, if
/// nobody has: before that, libraries do not know.
///
/// Groups do not depend on it: tensors of devices go by way of memory of the host, over any
/// library.
///
/// # Errors
/// As [`rank_and_size`].
pub fn takes_cuda_memory() -> Result<CudaMemory> {
    let world = world::world()?;
    let found = world::found().map_err(world::unavailable)?;
    Ok(world.takes_cuda_memory(found))
}

/// Whether the launcher of an MPI library started this process as one of several ranks.
pub fn is_in_job() -> bool {
    launcher::Launcher::read().size.is_some_and(|size| size > 1)
}

/// What every MPI library supports, with checks that cost time switched off.
fn capabilities() -> Capabilities {
    backend::declared(DebugLevel::Off)
}

/// Joins a group of ranks of one MPI job.
///
/// # Errors
/// As [`rank_and_size`]; [`Error::RendezvousTimeout`] naming the ranks that did not come;
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
