//! The socket at which a rank listens, and the addresses that it publishes. Knows nothing of
//! frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::fork;
use crate::generated::error::{Error, Result};
use crate::transport::host;
use crate::wire::card::Card;

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// The congestion control of connections within a host, where there is no congestion. Others, such
/// as BBR, may pace what they send by timers, which took half of the time of a large transfer. This
/// one exists on every Linux, and every user may choose it.
const WITHIN_HOST: &str = "reno";

/// A socket that listens before its rank knows the others.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
    /// The addresses at which it accepts connections, if there are several; best first.
    only_at: Vec<IpAddr>,
    /// The system's own congestion control, if it is known.
    usual_congestion: Option<String>,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub(super) fn bind(address: SocketAddr) -> Result<Listener> {
        let bound = bind(address).map_err(|error| Error::Network {
            message: format!("cannot listen at {address}: {error}"),
        })?;
        Ok(bound)
    }

    /// Listens at all of `addresses` and no others, on a free port.
    pub(super) fn bind_all(addresses: &[IpAddr]) -> Result<Listener> {
        if let [address] = addresses {
            return Self::bind(SocketAddr::new(*address, 0));
        }
        // A socket has one address or all. With all, connections at other addresses are refused.
        let any = match addresses.iter().any(IpAddr::is_ipv6) {
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let bound = Self::bind(SocketAddr::new(any, 0))?;
        Ok(Listener { only_at: addresses.to_vec(), ..bound })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address card of a rank in this process that listens here. `reachable_at` are the
    /// interfaces' addresses that the others may use, best first; empty: the bound address.
    pub fn card(&self, reachable_at: &[IpAddr]) -> Card {
        let port = self.address.port();
        let reachable_at = if reachable_at.is_empty() { &self.only_at } else { reachable_at };
        let mut endpoints: Vec<_> =
            reachable_at.iter().map(|address| SocketAddr::new(*address, port)).collect();
        if endpoints.is_empty() {
            endpoints.push(self.address);
        }
        let card = Card::new(&host::identity(), std::process::id(), endpoints);
        card.numbered_in(host::process_namespace())
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> std::result::Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = fork::unshared(|| accept_with(&self.socket, flags))?;
        if !self.is_reachable_at(&socket) {
            // The peer sees about what it would if no process listened.
            return Err(Errno::CONNABORTED);
        }
        set_options(&socket);
        if let Some(usual) = self.usual_congestion.as_ref().filter(|_| !is_within_host(&socket))
            && let Err(error) = set_tcp_congestion(&socket, usual)
        {
            tracing::debug!(%error, "cannot set the congestion control of a TCP connection");
        }
        Ok(socket)
    }

    /// Whether `socket` was accepted at one of the allowed addresses.
    fn is_reachable_at(&self, socket: &OwnedFd) -> bool {
        let local = socket2::SockRef::from(socket).local_addr().ok();
        let local = local.and_then(|local| local.as_socket()).map(|local| local.ip());
        self.only_at.is_empty()
            || local.is_some_and(|local| self.only_at.contains(&local.to_canonical()))
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

/// Sets the options of every connection: small frames are not delayed, and the connection ends when
/// the peer's host is gone. Buffers are left to the system, which grows them with the traffic.
pub(in crate::transport) fn set_options(socket: &OwnedFd) {
    let socket = socket2::SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(std::time::Duration::from_secs(15))
        .with_interval(std::time::Duration::from_secs(5))
        .with_retries(3);
    if let Err(error) = socket.set_tcp_nodelay(true).and(socket.set_tcp_keepalive(&keepalive)) {
        tracing::debug!(%error, "cannot set options of a TCP connection");
    }
}

/// Prepares a socket for connections within this host. This has to come before they are opened,
/// because pacing cannot be switched off afterwards.
pub(super) fn prefer_within_host(socket: impl AsFd) {
    if let Err(error) = set_tcp_congestion(socket, WITHIN_HOST) {
        tracing::debug!(%error, "cannot choose the congestion control within this host");
    }
}

/// Whether both ends have the same address.
fn is_within_host(socket: &OwnedFd) -> bool {
    let socket = socket2::SockRef::from(socket);
    let ip = |address: std::io::Result<socket2::SockAddr>| Some(address.ok()?.as_socket()?.ip());
    let (ours, theirs) = (ip(socket.local_addr()), ip(socket.peer_addr()));
    ours.is_some() && (ours == theirs || theirs.is_some_and(|theirs| theirs.is_loopback()))
}

fn bind(address: SocketAddr) -> std::io::Result<Listener> {
    let domain = Domain::for_address(address);
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = fork::unshared(|| Socket::new(domain, kind, Some(Protocol::TCP)))?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    let usual_congestion = tcp_congestion(&socket).ok();
    if usual_congestion.is_some() {
        prefer_within_host(&socket);
    }
    socket.listen(BACKLOG)?;
    let local = socket.local_addr()?;
    let address = local.as_socket().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
    Ok(Listener { socket: socket.into(), address, only_at: Vec::new(), usual_congestion })
}
