//! Opening WebSockets from this process, as a browser does. Knows nothing of what they carry.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use tungstenite::handshake::client::Request;

use super::wire::BufferedSocket;
use crate::fork;
use crate::transport::tcp::set_options;

/// A connection that is being opened, and its request.
pub(super) struct PendingConnect {
    fd: Arc<OwnedFd>,
    request: Request,
}

impl PendingConnect {
    pub(super) fn begin(
        address: SocketAddr,
        request: Request,
    ) -> std::result::Result<PendingConnect, Errno> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = fork::unshared(|| socket_with(family, SocketType::STREAM, flags, None))?;
        set_options(&socket);
        match connect(&socket, &address) {
            // A refusal that is known already is reported like one that comes later.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR | Errno::CONNREFUSED) => {}
            Err(error) => return Err(error),
        }
        Ok(PendingConnect { fd: Arc::new(socket), request })
    }

    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Whether it is connected now.
    pub(super) fn advance(&mut self) -> std::result::Result<bool, String> {
        match rustix::net::getpeername(&self.fd) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) | Err(Errno::NOTCONN) => {}
            Err(error) => return Err(error.to_string()),
        }
        match socket_error(&self.fd) {
            Ok(Ok(())) => Ok(false),
            Ok(Err(error)) | Err(error) => Err(error.to_string()),
        }
    }

    /// The request, and its address.
    pub(super) fn into_parts(self) -> (Request, BufferedSocket) {
        (self.request, BufferedSocket::new(self.fd, Vec::new()))
    }
}
