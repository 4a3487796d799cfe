//! The socket at which a rank can be reached, and which addresses to tell the others. Knows nothing
//! of frames.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::transport::host;
use crate::wire::card::Card;
use crate::{Error, Result};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// A bound socket that listens, before its rank knows the others.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub(super) fn bind(address: SocketAddr) -> Result<Listener> {
        let bound = bind(address).map_err(|error| Error::Network {
            message: format!("cannot listen at {address}: {error}"),
        })?;
        Ok(bound)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address card of a rank in this process that listens here. `reachable_at` are the
    /// interfaces' addresses that the others may use, best first; empty: the bound address.
    pub fn card(&self, reachable_at: &[IpAddr]) -> Card {
        let port = self.address.port();
        let mut endpoints: Vec<_> =
            reachable_at.iter().map(|address| SocketAddr::new(*address, port)).collect();
        if endpoints.is_empty() {
            endpoints.push(self.address);
        }
        Card::new(&host::identity(), std::process::id(), endpoints)
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> std::result::Result<OwnedFd, Errno> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        set_options(&socket);
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address of the interface through which this host would reach `remote`. Sends nothing.
pub fn address_toward(remote: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0; 8], 0).into(),
    };
    let find = || -> std::io::Result<IpAddr> {
        // Connecting a datagram socket only chooses a route.
        let socket = UdpSocket::bind(any)?;
        socket.connect(remote)?;
        Ok(socket.local_addr()?.ip())
    };
    find().map_err(|error| Error::Network { message: format!("no route to {remote}: {error}") })
}

/// Options of every connection: no delay for small frames, and an end when the host is gone.
/// Buffers are left to the system, which grows them with the traffic.
pub(super) fn set_options(socket: &OwnedFd) {
    let socket = socket2::SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(std::time::Duration::from_secs(15))
        .with_interval(std::time::Duration::from_secs(5))
        .with_retries(3);
    if let Err(error) = socket.set_tcp_nodelay(true).and(socket.set_tcp_keepalive(&keepalive)) {
        tracing::debug!(%error, "cannot set options of a TCP connection");
    }
}

fn bind(address: SocketAddr) -> std::io::Result<Listener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let local = socket.local_addr()?;
    let address = local.as_socket().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
    Ok(Listener { socket: socket.into(), address })
}
