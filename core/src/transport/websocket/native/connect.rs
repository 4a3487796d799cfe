//! Opening WebSockets from this process, as a browser does. Knows nothing of what they carry.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;

use super::super::socket::{Dialer, Socket};
use super::socket::NativeSocket;
use super::wire::BufferedSocket;
use crate::transport::tcp::set_options;
use crate::{Error, Result};

/// Opens `ws://` URLs from this process. A rank that only dials, as a browser does, reaches the
/// others with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeDialer;

impl Dialer for NativeDialer {
    /// A host's name that is not an address is looked up, which may block.
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>> {
        let wrong = |why: &dyn std::fmt::Display| Error::InvalidArgument {
            message: format!("cannot open a WebSocket to '{url}': {why}"),
        };
        let request = url.into_client_request().map_err(|error| wrong(&error))?;
        if request.uri().scheme_str() != Some("ws") {
            return Err(wrong(&"expected a URL that begins with ws://"));
        }
        let host = request.uri().host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = request.uri().port_u16().unwrap_or(80);
        let found = (host, port).to_socket_addrs().map_err(|error| wrong(&error))?.next();
        let address = found.ok_or_else(|| wrong(&"no such host"))?;
        let connecting = PendingConnect::begin(address, request).map_err(|error| {
            Error::Network { message: format!("cannot connect to {address}: {error}") }
        })?;
        Ok(Box::new(NativeSocket::dial(connecting)))
    }
}

/// A connection on its way, and what it will ask for.
pub(super) struct PendingConnect {
    fd: Arc<OwnedFd>,
    request: Request,
}

impl PendingConnect {
    fn begin(address: SocketAddr, request: Request) -> std::result::Result<PendingConnect, Errno> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        set_options(&socket);
        match connect(&socket, &address) {
            // A refusal that is known already is told like one that comes later.
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

    /// What to ask for, and where.
    pub(super) fn into_parts(self) -> (Request, BufferedSocket) {
        (self.request, BufferedSocket::new(self.fd, Vec::new()))
    }
}
