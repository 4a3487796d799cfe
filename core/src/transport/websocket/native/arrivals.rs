//! WebSockets that connect to the data port of this rank. Any of them may belong to a web page: one
//! whose origin is not allowed is refused. Knows nothing of what they carry.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use tungstenite::handshake::server::Request;

use super::super::Source;
use super::super::socket::Socket;
use super::socket::{Guard, NativeSocket};
use crate::wire::origin::AllowedOrigins;

/// A connection that begins as a WebSocket does, and the bytes that were read from it already.
pub(in crate::transport) struct Upgrade {
    pub(in crate::transport) socket: OwnedFd,
    pub(in crate::transport) bytes: Vec<u8>,
}

/// Where connections that begin as WebSockets do are handed over.
pub(in crate::transport) type Arrivals = Sender<Upgrade>;

/// A door for connections, and the sockets that come through it.
pub(in crate::transport) fn arrivals(origins: AllowedOrigins) -> (Arrivals, Source) {
    let (sender, receiver) = channel();
    (sender, Box::new(move || next(&receiver, &origins)))
}

fn next(receiver: &Receiver<Upgrade>, origins: &AllowedOrigins) -> Option<Box<dyn Socket>> {
    let Upgrade { socket, bytes } = receiver.try_recv().ok()?;
    let local = local_address(&socket);
    let origins = origins.clone();
    let guard = Guard(Box::new(move |request| judge(request, &origins, local)));
    Some(Box::new(NativeSocket::accept(socket, bytes, guard)))
}

fn judge(request: &Request, origins: &AllowedOrigins, local: Option<IpAddr>) -> Result<(), String> {
    let origin = request.headers().get("Origin").map(|origin| origin.as_bytes());
    let origin = origin.map(String::from_utf8_lossy);
    if origins.allow(origin.as_deref(), local) {
        return Ok(());
    }
    let why = AllowedOrigins::refusal(&origin.unwrap_or_default());
    tracing::warn!("{}", why.trim_end());
    Err(why)
}

fn local_address(socket: &OwnedFd) -> Option<IpAddr> {
    let local = socket2::SockRef::from(socket).local_addr().ok()?;
    Some(local.as_socket()?.ip())
}
