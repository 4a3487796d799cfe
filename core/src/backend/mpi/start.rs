//! How the ranks of an MPI job meet: rank and size are MPI's, and where nobody says where the store
//! is, rank 0 serves one and tells the others by messages of MPI. Knows no
//! group.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::abi::{Handle, Status};
use super::world::{AnyWorld, World, world};
use crate::backend::registration::{KnownPlace, PlaceInJob};
use crate::clock::{self, Instant};
use crate::env::Environment;
use crate::env::variable::Variable;
use crate::generated::error::{Error, Result};
use crate::rendezvous::{Rendezvous, timed_out};
use crate::store::{TcpStore, TcpStoreOptions};
use crate::transport::host;

/// Finds the place of this process in the MPI job and, with neither a URL nor `MASTER_ADDR` in the
/// environment, a store for all of them.
///
/// # Errors
/// [`Error::InvalidArgument`] if rank or size are given, or in the environment, and others than
/// MPI's; [`Error::RendezvousTimeout`] if rank 0 does not come; those of [`super::rank_and_size`].
pub(super) fn find_place(known: &KnownPlace, timeout: Duration) -> Result<PlaceInJob> {
    let world = world()?;
    let place = world.rank_and_size();
    let in_job = |rendezvous| PlaceInJob { rank: place.0, world_size: place.1, rendezvous };
    agree("the call", (known.rank, known.world_size), place)?;
    if known.has_store {
        return Ok(in_job(None));
    }
    // What a launcher says in variables of its own says no more than MPI, and may be of the step in
    // which Slurm started `mpirun`.
    let environment = Environment::of_c10d(Variable::text)?;
    agree("the environment (RANK, WORLD_SIZE)", (environment.rank, environment.world_size), place)?;
    if environment.master_addr.is_some() && environment.master_port.is_some() {
        return Ok(in_job(None));
    }
    let rendezvous = match world {
        AnyWorld::Ints(world) => serve_or_join(world, timeout),
        AnyWorld::Pointers(world) => serve_or_join(world, timeout),
    }?;
    Ok(in_job(Some(rendezvous)))
}

/// The error of ranks that say other things than MPI.
fn disagreement(message: String) -> Error {
    Error::InvalidArgument { message }
}

fn agree(who: &str, said: (Option<u32>, Option<u32>), place: (u32, u32)) -> Result<()> {
    let differs = |said: Option<u32>, is: u32| said.is_some_and(|said| said != is);
    if !differs(said.0, place.0) && !differs(said.1, place.1) {
        return Ok(());
    }
    let text = |number: Option<u32>| number.map_or("?".into(), |number| number.to_string());
    Err(disagreement(format!(
        "with the mpi backend rank and size are MPI's: this is rank {} of {}, but {who} says rank \
         {} of {}. Start the ranks with mpirun, or with polyrank run --with-mpi",
        place.0,
        place.1,
        text(said.0),
        text(said.1)
    )))
}

/// The tag of the messages that say where the store is. Below what every library allows.
const ADDRESS_TAG: c_int = 29_507;

/// Most bytes of such a message.
const MAX_ADDRESS_BYTES: usize = 512;

fn serve_or_join<H: Handle>(world: &World<H>, timeout: Duration) -> Result<Rendezvous> {
    let (rank, size) = (world.job.rank, world.job.size);
    let options = |host: &str, port| {
        TcpStoreOptions::new(host, port).world_size(size).is_master(rank == 0).timeout(timeout)
    };
    let store = if rank == 0 {
        // Only a job over several hosts needs more than this one's own addresses.
        let listen = if world.job.is_one_host { "127.0.0.1" } else { "0.0.0.0" };
        let store = TcpStore::without_waiting(options(listen, 0))?;
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // Not all launchers say which ranks share a host: each sees for itself.
        tell(world, format!("{} {node} {}", store.port(), host::identity()).into_bytes())?;
        store
    } else {
        let said = hear(world, timeout)?;
        let address = address(&said, &host::identity()).ok_or_else(|| Error::Rendezvous {
            message: format!("rank 0 of the MPI job says that its store is at '{said}'"),
        })?;
        TcpStore::without_waiting(options(address.0, address.1))?
    };
    let mut met = Rendezvous::new(Arc::new(store), rank, size)?;
    met.hosting = rank == 0;
    met.ends_with_rank_0 = true;
    Ok(met)
}

/// Host and port of the store, of which rank 0 said port, name and identity of its host, for a rank
/// on the host `here`.
fn address<'a>(said: &'a str, here: &str) -> Option<(&'a str, u16)> {
    let mut parts = said.splitn(3, ' ');
    let (port, node, identity) = (parts.next()?, parts.next()?, parts.next()?);
    // The host's own name need not be known there.
    let host = if identity == here { "127.0.0.1" } else { node };
    Some((host, port.parse().ok()?))
}

/// Sends `address` to all others. MPI keeps what is so short, or it is kept here for ever.
fn tell<H: Handle>(world: &World<H>, address: Vec<u8>) -> Result<()> {
    let address: &'static [u8] = address.leak();
    for peer in 1..world.job.size {
        let mut request = world.job.constants.request_null;
        // SAFETY: the bytes live for ever, so that the request may end at any time.
        let code = unsafe {
            (world.job.functions.isend)(
                address.as_ptr().cast(),
                address.len() as c_int,
                world.job.constants.types.byte,
                peer as c_int,
                ADDRESS_TAG,
                world.job.constants.comm_world,
                &raw mut request,
            )
        };
        world.job.check(code, "MPI_Isend")?;
        world.progress.change(|active, _| active.forget(request));
    }
    Ok(())
}

/// Receives the address from rank 0.
fn hear<H: Handle>(world: &World<H>, timeout: Duration) -> Result<String> {
    let until = clock::after(if timeout.is_zero() { Duration::MAX } else { timeout });
    loop {
        let mut status = Status::default();
        let (mut flag, mut message): (c_int, H) = (0, H::from_bits(0));
        // SAFETY: the status is large enough for any ABI.
        let code = unsafe {
            (world.job.functions.improbe)(
                0,
                ADDRESS_TAG,
                world.job.constants.comm_world,
                &raw mut flag,
                &raw mut message,
                status.as_mut_ptr(),
            )
        };
        world.job.check(code, "MPI_Improbe")?;
        if flag != 0 {
            return take(world, message, &mut status);
        }
        if Instant::now() >= until {
            let message = format!(
                "rank 0 of the MPI job did not come within {timeout:?}: every rank of the job \
                 calls init_process_group"
            );
            return Err(timed_out(world.job.rank, vec![0], message));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn take<H: Handle>(world: &World<H>, mut message: H, status: &mut Status) -> Result<String> {
    let functions = &world.job.functions;
    let byte = world.job.constants.types.byte;
    let mut bytes: i64 = 0;
    // SAFETY: the status was written when the message was found.
    let code = unsafe { (functions.get_elements_x)(status.as_mut_ptr(), byte, &raw mut bytes) };
    world.job.check(code, "MPI_Get_elements_x")?;
    let length = usize::try_from(bytes).ok().filter(|&bytes| bytes <= MAX_ADDRESS_BYTES);
    let length = length.ok_or_else(|| Error::Rendezvous {
        message: format!("rank 0 of the MPI job sent {bytes} bytes as the address of its store"),
    })?;
    let mut text = vec![0_u8; length];
    let mut request = world.job.constants.request_null;
    // SAFETY: the memory has as many bytes as the message, and lives until the request ends below.
    unsafe {
        let into = text.as_mut_ptr().cast();
        let code =
            (functions.imrecv)(into, length as c_int, byte, &raw mut message, &raw mut request);
        world.job.check(code, "MPI_Imrecv")?;
        let mut flag: c_int = 0;
        while flag == 0 {
            let ignore = world.job.constants.status_ignore as *mut _;
            world
                .job
                .check((functions.test)(&raw mut request, &raw mut flag, ignore), "MPI_Test")?;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_reached_by_its_hosts_name_from_other_hosts_only() {
        let said = "4711 node-a boot net:[1]";
        assert_eq!(address(said, "boot net:[1]"), Some(("127.0.0.1", 4711)));
        assert_eq!(address(said, "boot net:[2]"), Some(("node-a", 4711)));
        for said in ["", "4711", "4711 node-a", "port node-a boot"] {
            assert_eq!(address(said, "boot"), None, "{said}");
        }
    }
}
