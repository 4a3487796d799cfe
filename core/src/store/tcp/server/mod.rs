//! A TCPStore server: sockets that listen, one thread, and its end. Knows nothing of requests.

mod accept;
mod busy_poll;
mod client_count;
mod connection;
mod holders;
mod host;
#[cfg(target_os = "linux")]
mod local;
mod output;
mod service;
mod socket;
mod waiters;
#[cfg(feature = "websocket")]
mod websocket;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;

use crate::env::{TransportEnvironment, WebSocketEnvironment};
use crate::fork;
use crate::generated::error::{Error, Result};
use crate::store::tcp::TcpStoreOptions;
use crate::store::tcp::client::Client;
use crate::wire::origin::AllowedOrigins;
use accept::{ListeningSocket, Shutdown};
use client_count::ClientCount;
pub(super) use client_count::HostGuard;
use host::Host;

/// Clients that may wait to be accepted; the system has its own limit too.
pub(super) const BACKLOG: i32 = 4096;
/// How long the end of the server may take, so that clients hear what there is to say.
#[cfg(feature = "websocket")]
const END_LIMIT: Duration = Duration::from_millis(500);
/// Pause after an accept that failed, as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server on its own thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stop: Arc<Notify>,
    clients: ClientCount,
    thread: Option<JoinHandle<()>>,
    /// A forked child has no such thread, and must not wait for it.
    process: u32,
    /// What its socket for this host is called, if it has one.
    local_name: Option<Vec<u8>>,
    /// Dropped when all of the above has ended.
    end: End,
}

/// Tells that a server has ended, and left its port, when it is dropped.
#[derive(Debug, Default)]
struct End(EndSignal);

/// Whether a server has ended.
#[derive(Clone, Debug, Default)]
struct EndSignal(Arc<(Mutex<bool>, Condvar)>);

impl EndSignal {
    /// Waits until the server has ended. Its last store may be dropped by another thread just now.
    fn wait(&self) {
        let (has_ended, changed) = &*self.0;
        let mut guard = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*guard {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let (has_ended, changed) = &*self.0.0;
        *has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

/// A server of this process that several stores may share.
#[derive(Debug)]
struct SharedServer {
    server: Weak<Server>,
    process: u32,
    ended: EndSignal,
}

/// What a server grants its clients, beside TCPStore's protocol.
#[derive(Debug)]
#[cfg_attr(not(feature = "websocket"), allow(dead_code, reason = "all of it is WebSockets'"))]
pub(super) struct Settings {
    /// Web pages that may connect.
    origins: AllowedOrigins,
    /// How long ranks are waited for whose WebSocket was lost, ms; `None`: as by default.
    grace_ms: Option<u32>,
    /// How to speak TLS.
    #[cfg(feature = "tls")]
    identity: Option<websocket::tls::Identity>,
}

impl Settings {
    /// What `options` say, and the environment where they say nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the certificate or its key cannot be used.
    pub(super) fn of(options: &mut TcpStoreOptions) -> Result<Settings> {
        let environment = WebSocketEnvironment::read()?;
        let origins = options.allowed_origins.take().unwrap_or(environment.allowed_origins);
        #[cfg(feature = "tls")]
        let identity = match &options.tls {
            Some((certificates, key)) => Some(websocket::tls::Identity::read(certificates, key)?),
            None => None,
        };
        Ok(Settings {
            origins,
            grace_ms: environment.reconnect_grace_ms,
            #[cfg(feature = "tls")]
            identity,
        })
    }
}

/// The servers of this process that several stores may share, by port.
static SHARED: Mutex<Option<HashMap<u16, SharedServer>>> = Mutex::new(None);

impl Server {
    /// Starts a server that clients reach under `host` and `port`, 0 for any free port.
    pub(super) fn start(host: &str, port: u16, settings: Settings) -> Result<Self> {
        let listeners = listen(host, port).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    ". Another process, perhaps another rank 0, uses the port; choose a free one"
                }
                _ => "",
            };
            let message = format!(
                "The server socket has failed to listen on any local network address. host: \
                 {host}, port: {port}, message: {error}{advice}"
            );
            Error::Network { message }
        })?;
        Self::start_with(listeners, settings, Shutdown::AtEnd)
    }

    /// The server of this process on `port` if there is one that is shared, else a new one.
    pub(super) fn shared(host: &str, port: u16, settings: Settings) -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = shared.get_or_insert_default();
        // That of a parent process continues there.
        let known = shared.get(&port).filter(|known| known.process == std::process::id());
        if let Some(known) = known {
            if let Some(server) = known.server.upgrade() {
                return Ok(server);
            }
            known.ended.wait();
        }
        let server = Arc::new(Self::start(host, port, settings)?);
        shared.retain(|_, known| known.server.strong_count() > 0);
        let (weak, ended) = (Arc::downgrade(&server), server.end.0.clone());
        let known = SharedServer { server: weak, process: server.process, ended };
        shared.insert(server.address.port(), known);
        Ok(server)
    }

    /// Starts a server on sockets that listen already, at least one. Other processes may have
    /// them, too, and continue listening when the server has ended.
    pub(super) fn start_on(listeners: Vec<TcpListener>, settings: Settings) -> Result<Self> {
        Self::start_with(listeners, settings, Shutdown::Never)
    }

    fn start_with(
        listeners: Vec<TcpListener>,
        settings: Settings,
        shutdown: Shutdown,
    ) -> Result<Self> {
        let failed = |what: &str, error: io::Error| Error::Network {
            message: format!("The store's server cannot {what}: {error}"),
        };
        let address = listeners
            .first()
            .ok_or(io::Error::from(io::ErrorKind::AddrNotAvailable))
            .and_then(TcpListener::local_addr)
            .map_err(|error| failed("listen", error))?;
        let (stop, clients) = (Arc::new(Notify::new()), ClientCount::default());
        let (started, result) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("polyrank-store".into())
            .spawn({
                let (stop, clients) = (stop.clone(), clients.clone());
                move || run((listeners, shutdown), (settings, clients), &stop, &started)
            })
            .map_err(|error| failed("start its thread", error))?;
        let process = std::process::id();
        let end = End::default();
        let (thread, local_name) = (Some(thread), None);
        let mut server = Self { address, stop, clients, thread, process, local_name, end };
        match result.recv() {
            Ok(Ok(local_name)) => {
                server.local_name = local_name;
                Ok(server)
            }
            Ok(Err(error)) => Err(failed("start", error)),
            Err(_) => Err(failed("start", io::Error::other("its thread ended"))),
        }
    }

    /// The port it listens on.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// What its socket for this host is called, if it has one.
    pub(super) fn local_name(&self) -> Option<&[u8]> {
        self.local_name.as_deref()
    }

    /// A client of this very process, by the shortest way; none if there is none but the usual.
    pub(super) fn own_client(&self, host: &str, timeout: Duration) -> Option<Client> {
        #[cfg(target_os = "linux")]
        {
            let name = self.local_name.as_deref()?.into();
            let address = Some(self.own_address());
            Client::connect_local(&name, (host, self.port()), address, timeout)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (host, timeout, &self.local_name);
            None
        }
    }

    /// Counts a store that keeps this server alive and is connected to it.
    pub(super) fn host_guard(&self) -> HostGuard {
        self.clients.host()
    }

    /// An address under which this very process reaches it.
    pub(super) fn own_address(&self) -> IpAddr {
        match self.address.ip() {
            IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            // A dual-stack socket takes IPv4 even where IPv6 has no loopback address.
            IpAddr::V6(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            address => address,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.stop.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the server was printed by its thread; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// The server's thread.
fn run(
    (listeners, shutdown): (Vec<TcpListener>, Shutdown),
    (settings, clients): (Settings, ClientCount),
    stop: &Notify,
    started: &mpsc::SyncSender<io::Result<Option<Vec<u8>>>>,
) {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // The receiver waits for this message and cannot be gone.
            let _ = started.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        #[cfg(target_os = "linux")]
        let local = local::listen();
        #[cfg(target_os = "linux")]
        let local_name = local.as_ref().map(|(_, name)| name.clone());
        #[cfg(not(target_os = "linux"))]
        let local_name: Option<Vec<u8>> = None;
        let host = Host::new(settings, clients, local_name.clone());
        let listeners: io::Result<Vec<_>> =
            listeners.into_iter().map(tokio::net::TcpListener::from_std).collect();
        let ready = listeners.map(|listeners| {
            for socket in listeners {
                let listener = ListeningSocket { socket, shutdown };
                tokio::task::spawn_local(accept::accept(listener, host.clone()));
            }
            #[cfg(target_os = "linux")]
            if let Some((listener, _)) = local {
                tokio::task::spawn_local(local::accept(listener, host.clone()));
            }
            local_name
        });
        let polling = host.clone();
        tokio::task::spawn_local(async move { busy_poll::busy_poll(&polling.activity).await });
        #[cfg(feature = "websocket")]
        tokio::task::spawn_local(websocket::expire(host.clone()));
        let goes_on = ready.is_ok();
        let _ = started.send(ready);
        if goes_on {
            stop.notified().await;
            #[cfg(feature = "websocket")]
            let _ = tokio::time::timeout(END_LIMIT, websocket::end(&host)).await;
        }
    });
}

/// Sockets that listen for clients of `host`, where that lies: at its addresses on this host.
fn listen(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    // To listen everywhere for a name that is mistyped would open the store to the network.
    let addresses: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| {
            let why = format!(
                "no address of '{host}' is known ({error}); \
                expected an address of this host, or localhost"
            );
            io::Error::new(error.kind(), why)
        })?
        .collect();
    let places = places(&addresses, is_own, chosen)?;
    match places.as_slice() {
        [place] if place.ip() == Ipv6Addr::UNSPECIFIED => {
            let listener = bind(*place).or_else(|error| match error.kind() {
                io::ErrorKind::AddrInUse => Err(error),
                // No IPv6 on this host.
                _ => bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
            })?;
            Ok(vec![listener])
        }
        places => bind_all(places, port),
    }
}

/// Where to listen for clients that come to `addresses`: at those that are this host's. Where none
/// is (a service's address, or one that is translated), at the interfaces that the user has
/// `chosen`, else everywhere: clients may come through any.
fn places(
    addresses: &[SocketAddr],
    is_own: impl Fn(IpAddr) -> bool,
    chosen: impl FnOnce(IpAddr) -> io::Result<Vec<IpAddr>>,
) -> io::Result<Vec<SocketAddr>> {
    let Some(first) = addresses.first() else { return Ok(Vec::new()) };
    let everywhere = vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, first.port()))];
    if addresses.iter().any(|address| address.ip() == Ipv6Addr::UNSPECIFIED) {
        return Ok(everywhere);
    }
    let own: Vec<SocketAddr> =
        addresses.iter().copied().filter(|address| is_own(address.ip())).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    let chosen = chosen(first.ip())?;
    let chosen: Vec<_> = chosen.iter().map(|ip| SocketAddr::new(*ip, first.port())).collect();
    Ok(if chosen.is_empty() { everywhere } else { chosen })
}

/// The addresses of the interfaces that the user has chosen, if any.
fn chosen(toward: IpAddr) -> io::Result<Vec<IpAddr>> {
    match TransportEnvironment::read().map_err(io::Error::other)?.interfaces {
        Some((variable, list)) => {
            crate::transport::tcp::addresses(variable, &list, toward).map_err(io::Error::other)
        }
        None => Ok(Vec::new()),
    }
}

/// Whether this host has the address.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn bind_all(addresses: &[SocketAddr], port: u16) -> io::Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut last = None;
    for mut address in addresses.iter().copied() {
        if let Some(first) = listeners.first() {
            address.set_port(first.local_addr()?.port());
        }
        match bind(address) {
            Ok(listener) => listeners.push(listener),
            // Half of "localhost" must not belong to another server, unless the port is ours
            // by chance.
            Err(error) if port != 0 && error.kind() == io::ErrorKind::AddrInUse => {
                return Err(error);
            }
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = fork::unshared(|| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of an ended server that linger in TIME_WAIT do not keep the port. On Windows
    // the option would let two servers share it.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_server_listens_where_it_was_told() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 7);
        let own = |own: IpAddr| {
            ["127.0.0.1", "10.0.0.1", "::1"].map(|text| text.parse().ok()).contains(&Some(own))
        };
        let chosen: [IpAddr; 1] = ["10.9.8.7".parse().unwrap()];
        let unneeded = |_| Err(io::Error::other("no such interface"));
        let local = [address("127.0.0.1")];
        assert_eq!(places(&local, own, unneeded).unwrap(), local, "the others are to be told why");
        for (addresses, chosen, expected) in [
            (&["10.0.0.1"][..], &chosen[..], &["10.0.0.1"][..]),
            (&["127.0.0.1", "::1"], &[], &["127.0.0.1", "::1"]),
            (&["192.0.2.1", "10.0.0.1"], &[], &["10.0.0.1"]),
            (&["192.0.2.1"], &chosen, &["10.9.8.7"]),
            (&["192.0.2.1"], &[], &["::"]),
            (&["::"], &chosen, &["::"]),
        ] {
            let addresses: Vec<_> = addresses.iter().copied().map(address).collect();
            let expected: Vec<_> = expected.iter().copied().map(address).collect();
            let places = places(&addresses, own, |_| Ok(chosen.to_vec())).unwrap();
            assert_eq!(places, expected);
        }
    }

    #[test]
    fn a_server_that_ended_leaves_its_port_though_a_forked_process_has_its_socket() {
        let settings = || Settings::of(&mut TcpStoreOptions::new("127.0.0.1", 0)).unwrap();
        for (shutdown, is_free) in [(Shutdown::AtEnd, true), (Shutdown::Never, false)] {
            let listeners = listen("127.0.0.1", 0).unwrap();
            let copy = listeners[0].try_clone().unwrap();
            drop(Server::start_with(listeners, settings(), shutdown).unwrap());
            let again = listen("127.0.0.1", copy.local_addr().unwrap().port());
            assert_eq!(again.is_ok(), is_free, "{shutdown:?}: {again:?}");
        }
    }

    #[test]
    fn a_server_of_one_address_is_at_no_other() {
        let listeners = listen("127.0.0.2", 0).unwrap();
        let places: Vec<_> = listeners.iter().map(|it| it.local_addr().unwrap().ip()).collect();
        assert_eq!(places, ["127.0.0.2".parse::<IpAddr>().unwrap()]);
        // The host's own address toward the network, if it has one.
        if let Some(own) = crate::store::tcp::interface_toward("192.0.2.1") {
            let listeners = listen(&own.to_string(), 0).unwrap();
            assert_eq!(listeners[0].local_addr().unwrap().ip(), own);
            let port = listeners[0].local_addr().unwrap().port();
            assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        }
    }
}
