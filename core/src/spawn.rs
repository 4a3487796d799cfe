//! Ranks as processes that a program starts of itself: `spawn`. They meet in a store that this
//! process serves on the loopback interface. Knows no group.

mod child;
mod error;
mod family;

use std::fmt::Display;
use std::panic::Location;
use std::time::Duration;

use self::child::{Place, RankOfSpawn};
use self::family::Family;
use crate::generated::error::Error;
use crate::store::{TcpStore, TcpStoreOptions};

pub use self::error::SpawnError;

/// Where the ranks meet.
const HOST: &str = "127.0.0.1";

/// How long a rank tries to reach the store of the process that started it.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts this program `nprocs` times, as ranks 0 to `nprocs - 1`, each of which calls `f` with its
/// rank, and waits until all have ended. In them
/// [`init_process_group`](crate::distributed::init_process_group) needs no settings. If one fails
/// the others are ended, by SIGTERM and 30 seconds later by SIGKILL, and this returns why; on
/// Linux they are ended, too, if this process dies, or the thread that called.
///
/// A function cannot be sent to another process: **each rank runs the program from its beginning**,
/// with the same arguments, and what stands before the call runs in every rank. There, this call
/// runs `f` and ends the process. So call it first in `main`, and print or read nothing before; in
/// a test, start a program that does, since each rank would run the whole test program.
///
/// ```no_run
/// use polyrank::ReduceOp;
/// use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
///
/// fn main() -> Result<(), polyrank::SpawnError> {
///     polyrank::spawn(4, |_rank| {
///         let group = init_process_group(InitOptions::default())?;
///         let mut gradient = vec![f64::from(group.rank()); 1000];
///         group.allreduce(&mut gradient, ReduceOp::Sum)?;
///         destroy_process_group(None)
///     })
/// }
/// ```
///
/// A program may call this several times: in a rank of a later call the earlier ones return `Ok`
/// and start nothing, so the program must come to the same calls in the same way.
///
/// # Errors
/// What the first rank that failed did: [`SpawnError`].
#[track_caller]
pub fn spawn<E: Display>(
    nprocs: u32,
    f: impl FnOnce(u32) -> Result<(), E>,
) -> Result<(), SpawnError> {
    let place = Place::next(Location::caller());
    if child::is_running() {
        let message = "spawn() is called in a rank that spawn() started";
        return Err(refused(message.to_owned()));
    }
    match RankOfSpawn::of_this_process() {
        Some(rank) if rank.place == place => rank.run(f),
        // A later call has started this process; the earlier ones were over.
        Some(_) => Ok(()),
        None => start(nprocs, &place),
    }
}

/// Starts the ranks, and waits for them.
fn start(nprocs: u32, place: &Place) -> Result<(), SpawnError> {
    if nprocs == 0 {
        return Err(refused("nprocs is 0: at least one process is expected".to_owned()));
    }
    let options = TcpStoreOptions::new(HOST, 0).is_master(true).wait_for_workers(false);
    let store = TcpStore::new(options).map_err(SpawnError::Setup)?;
    let mut family = Family::new(&store);
    for rank in 0..nprocs {
        family.start(rank, nprocs, place)?;
    }
    family.wait()
}

fn refused(message: String) -> SpawnError {
    SpawnError::Setup(Error::InvalidArgument { message })
}
