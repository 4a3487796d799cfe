//! The first bytes of an incoming connection, and the answer to them. Knows nothing of frames.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::transport::peers::PendingConnections;
use crate::transport::readiness::Readiness;
use crate::wire::handshake::{HandshakeError, Hello, Welcome, check_prefix};

/// The beginning of a request to open a WebSocket.
const WEB: &[u8] = b"GET ";

/// What was read from a new connection.
pub(super) enum Greeting {
    /// Nothing yet, or the connection is gone.
    None,
    /// It sent its hello.
    Hello(OwnedFd, Hello),
    /// It belongs to a rank of another version of the protocol.
    Foreign(OwnedFd),
    /// It begins as a WebSocket does, with these bytes.
    Web(OwnedFd, Vec<u8>),
}

/// Reads from the connection in `slot`; never more than its hello.
pub(super) fn read(
    pending: &mut PendingConnections<()>,
    slot: usize,
    readiness: &Readiness,
) -> Greeting {
    let Some(stranger) = pending.get_mut(slot) else {
        return Greeting::None;
    };
    let room = &mut stranger.bytes[stranger.have_bytes..];
    match recv(&stranger.socket, room, RecvFlags::empty()) {
        Err(Errno::AGAIN | Errno::INTR) => return Greeting::None,
        Ok((bytes, _)) if bytes > 0 => stranger.have_bytes += bytes,
        Ok(_) | Err(_) => {
            pending.forget(slot, readiness);
            return Greeting::None;
        }
    }
    let bytes = &stranger.bytes[..stranger.have_bytes];
    if bytes.len() < WEB.len() && WEB.starts_with(bytes) {
        return Greeting::None;
    }
    if bytes.starts_with(WEB) {
        let bytes = bytes.to_vec();
        return match pending.take(slot) {
            Some(stranger) => Greeting::Web(stranger.socket, bytes),
            None => Greeting::None,
        };
    }
    let hello = check_prefix(bytes).and_then(|_| Hello::decode(bytes));
    if hello == Err(HandshakeError::Short) {
        return Greeting::None;
    }
    let Some(stranger) = pending.take(slot) else {
        return Greeting::None;
    };
    match hello {
        Ok(hello) => Greeting::Hello(stranger.socket, hello),
        Err(HandshakeError::Version { .. }) => Greeting::Foreign(stranger.socket),
        Err(error) => {
            tracing::debug!(%error, "closed a connection of a stranger");
            readiness.remove(&stranger.socket);
            Greeting::None
        }
    }
}

/// Tells the other side whether it is accepted; false if that could not be sent.
pub(super) fn answer(socket: &OwnedFd, welcome: &[u8; Welcome::BYTES]) -> bool {
    // A connection over which nothing was sent yet has room for the answer.
    send(socket, welcome, SendFlags::NOSIGNAL) == Ok(welcome.len())
}
