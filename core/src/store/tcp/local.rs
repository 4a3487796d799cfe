//! The way to a store's server of this very host without TCP. Knows nothing of other requests than
//! the two that ask for it.

use socket2::{Domain, SockAddr, Socket};

use super::connection::{Connection, Fault, block_by_slices, open};
use crate::store::Deadline;
use crate::store::protocol::{Encode, Kind, LOCAL_NAME, LOCAL_PREFIX, READY};

/// Longest name that a socket may have.
const MAX_NAME_BYTES: usize = 107;

/// A socket that is connected to the server of `connection`, if there is a shorter way to it.
pub(super) fn find(
    connection: &mut Connection,
    deadline: &Deadline,
) -> Result<Option<Socket>, Fault> {
    if !connection.is_within_host() {
        return Ok(None);
    }
    connection.request.kind(Kind::Check);
    connection.request.number(1);
    connection.request.blob(&[LOCAL_NAME]);
    connection.send(&[], deadline)?;
    if connection.array(deadline)? != [READY] {
        return Ok(None);
    }
    connection.request.kind(Kind::Get);
    connection.request.blob(&[LOCAL_NAME]);
    connection.send(&[], deadline)?;
    let name = connection.blob(deadline)?;
    // Whoever serves must not lead its clients to other programs' sockets.
    if !name.starts_with(LOCAL_PREFIX.as_bytes()) || name.len() > MAX_NAME_BYTES {
        return Ok(None);
    }
    Ok(connect(&name))
}

/// None if nobody listens there, as when both sides are in different containers.
fn connect(name: &[u8]) -> Option<Socket> {
    let name = std::str::from_utf8(name).ok()?;
    let address = SockAddr::unix(format!("\0{name}")).ok()?;
    let socket = open(Domain::UNIX, None).ok()?;
    // A queue that is full is not waited for: TCP is there.
    socket.set_nonblocking(true).ok()?;
    socket.connect(&address).ok()?;
    block_by_slices(&socket).ok()?;
    Some(socket)
}
