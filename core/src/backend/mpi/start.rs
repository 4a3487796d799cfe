//! How the ranks of an MPI job meet: rank and size are MPI's, and where nobody says where the store
//! is, rank 0 serves one and tells the others by messages of MPI. Also what the environment says
//! about checking. Knows no group.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::abi::{Handle, Status};
use super::disagreement;
use super::world::{AnyWorld, World, world};
use crate::clock::{self, Instant};
use crate::env::Environment;
use crate::rendezvous::Rendezvous;
use crate::store::{TcpStore, TcpStoreOptions};
use crate::{Error, Result};

/// How much is checked before a collective is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Nothing: MPI does what it does with ranks that disagree, and the store is asked for the
    /// reason of what stands still.
    Little,
    /// All ranks compare through the store what they are about to run.
    Full,
}

/// The variables that say how much is checked; the second is PyTorch's.
const DETAIL: [&str; 2] = ["POLYRANK_DEBUG", "TORCH_DISTRIBUTED_DEBUG"];

/// How much the environment wants to be checked.
///
/// # Errors
/// [`Error::InvalidArgument`] for a value that is unknown.
pub(super) fn detail() -> Result<Detail> {
    let said = DETAIL.iter().find_map(|name| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some((name, value))
    });
    let Some((name, value)) = said else { return Ok(Detail::Little) };
    match value.to_ascii_uppercase().as_str() {
        "OFF" | "INFO" => Ok(Detail::Little),
        "DETAIL" => Ok(Detail::Full),
        _ => Err(Error::InvalidArgument {
            message: format!("{name} is '{value}'; OFF, INFO or DETAIL is expected"),
        }),
    }
}

/// Finds the place of this process in the MPI job and, with neither a URL nor `MASTER_ADDR` in the
/// environment, a store for all of them. `None`: the caller knows a store, and may use the place.
///
/// # Errors
/// [`Error::InvalidArgument`] if rank or size are given, or in the environment, and others than
/// MPI's; [`Error::RendezvousTimeout`] if rank 0 does not come; those of [`super::place`].
pub(crate) fn meet(
    given: (Option<u32>, Option<u32>),
    has_store: bool,
    timeout: Duration,
) -> Result<((u32, u32), Option<Rendezvous>)> {
    let world = world()?;
    let place = world.place();
    agree("the call", given, place)?;
    if has_store {
        return Ok((place, None));
    }
    let environment = Environment::read()?;
    agree("the environment (RANK, WORLD_SIZE)", (environment.rank, environment.world_size), place)?;
    if environment.master_addr.is_some() && environment.master_port.is_some() {
        return Ok((place, None));
    }
    let met = match world {
        AnyWorld::Ints(world) => serve_or_join(world, timeout),
        AnyWorld::Pointers(world) => serve_or_join(world, timeout),
    }?;
    Ok((place, Some(met)))
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
    let (rank, size) = (world.rank, world.size);
    let options = |host: &str, port| {
        TcpStoreOptions::new(host, port).world_size(size).is_master(rank == 0).timeout(timeout)
    };
    let store = if rank == 0 {
        // Only a job over several hosts needs more than this one's own addresses.
        let host = match world.ranks_on_host >= size {
            true => "127.0.0.1".to_owned(),
            false => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        };
        let store = TcpStore::without_waiting(options(&host, 0))?;
        let address = format!("{host} {}", store.port());
        tell(world, address.into_bytes())?;
        store
    } else {
        let address = hear(world, timeout)?;
        let parsed = address
            .split_once(' ')
            .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let (host, port) = parsed.ok_or_else(|| Error::Rendezvous {
            message: format!("rank 0 of the MPI job says that its store is at '{address}'"),
        })?;
        TcpStore::without_waiting(options(host, port))?
    };
    let mut met = Rendezvous::new(Arc::new(store), rank, size)?;
    met.hosting = rank == 0;
    met.hosted = true;
    Ok(met)
}

/// Sends `address` to all others. MPI keeps what is so short, or it is kept here for ever.
fn tell<H: Handle>(world: &World<H>, address: Vec<u8>) -> Result<()> {
    let address: &'static [u8] = address.leak();
    for peer in 1..world.size {
        let mut request = world.constants.request_null;
        // SAFETY: the bytes live for ever, so that the request may end at any time.
        let code = unsafe {
            (world.functions.isend)(
                address.as_ptr().cast(),
                address.len() as c_int,
                world.constants.types.byte,
                peer as c_int,
                ADDRESS_TAG,
                world.constants.comm_world,
                &raw mut request,
            )
        };
        world.check(code, "MPI_Isend")?;
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
            (world.functions.improbe)(
                0,
                ADDRESS_TAG,
                world.constants.comm_world,
                &raw mut flag,
                &raw mut message,
                status.as_mut_ptr(),
            )
        };
        world.check(code, "MPI_Improbe")?;
        if flag != 0 {
            return take(world, message, &mut status);
        }
        if Instant::now() >= until {
            return Err(Error::RendezvousTimeout {
                message: format!(
                    "rank 0 of the MPI job did not come within {timeout:?}: every rank of the job \
                     calls init_process_group"
                ),
            });
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn take<H: Handle>(world: &World<H>, mut message: H, status: &mut Status) -> Result<String> {
    let functions = &world.functions;
    let byte = world.constants.types.byte;
    let mut bytes: i64 = 0;
    // SAFETY: the status was written when the message was found.
    let code = unsafe { (functions.get_elements_x)(status.as_mut_ptr(), byte, &raw mut bytes) };
    world.check(code, "MPI_Get_elements_x")?;
    let length = usize::try_from(bytes).ok().filter(|&bytes| bytes <= MAX_ADDRESS_BYTES);
    let length = length.ok_or_else(|| Error::Rendezvous {
        message: format!("rank 0 of the MPI job sent {bytes} bytes as the address of its store"),
    })?;
    let mut text = vec![0_u8; length];
    let mut request = world.constants.request_null;
    // SAFETY: the memory has as many bytes as the message, and lives until the request ends below.
    unsafe {
        let into = text.as_mut_ptr().cast();
        let code =
            (functions.imrecv)(into, length as c_int, byte, &raw mut message, &raw mut request);
        world.check(code, "MPI_Imrecv")?;
        let mut flag: c_int = 0;
        while flag == 0 {
            let ignore = world.constants.status_ignore as *mut _;
            world.check((functions.test)(&raw mut request, &raw mut flag, ignore), "MPI_Test")?;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
