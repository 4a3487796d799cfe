//! The store over TCP, in PyTorch's protocol: either side may be PyTorch's.
//! Knows nothing of process groups.

mod adaptive_poll;
mod client;
mod client_errors;
mod connect;
mod connection;
mod exchange;
#[cfg(target_os = "linux")]
mod local;
pub(super) mod open_files;
mod server;
mod shared_client;
#[cfg(test)]
mod tests;
mod timed_mutex;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs, UdpSocket};
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use super::deadline::WaitError;
use super::protocol::LOCAL_PREFIX;
use super::url::authority;
use super::{DEFAULT_TIMEOUT, Deadline, Store};
use crate::generated::error::{Error, Result};
use crate::stall_report::WaitingCall;
use crate::wire::origin::AllowedOrigins;
use client::Client;
pub(crate) use open_files::advice as open_files_advice;
#[cfg(all(feature = "internals", target_os = "linux"))]
pub use open_files::make_room as raise_open_files;
use server::{BACKLOG, HostGuard, Server, Settings};
use shared_client::SharedClient;

/// The port that PyTorch's stores use unless told otherwise.
pub const DEFAULT_PORT: u16 = 29500;

/// Pause between two looks at the number of workers.
const WORKER_POLL: Duration = Duration::from_millis(10);

/// How a [`TcpStore`] is made.
#[derive(Debug)]
#[non_exhaustive]
pub struct TcpStoreOptions {
    /// Name or address under which all clients reach the server. The hosting process listens at
    /// its addresses on this host; where it has none here (a service's address, or one that is
    /// translated), at those of `POLYRANK_IFNAME`, and at all where that is not set.
    pub host: String,
    /// The server's port; 0 lets the hosting process take any free one.
    pub port: u16,
    /// Number of clients, the hosting one included; `None` if it is not known.
    pub world_size: Option<u32>,
    /// Whether this process hosts the server.
    pub is_master: bool,
    /// Limit of connecting and of operations that wait; zero is none.
    pub timeout: Duration,
    /// Whether the hosting process waits for `world_size` clients.
    pub wait_for_workers: bool,
    /// Whether stores of this process on the same port share one server.
    pub multi_tenant: bool,
    /// A socket that is bound to an address, for the server to take over.
    pub listener: Option<TcpListener>,
    /// Accepted for compatibility; there is one server.
    pub use_libuv: bool,
    /// Web pages that may connect to the server by WebSocket, beside those of this host; `None`:
    /// those that `POLYRANK_ALLOWED_ORIGINS` lists.
    pub allowed_origins: Option<AllowedOrigins>,
    /// PEM files of the certificates and the private key with which the server speaks TLS too, for
    /// `wss://`.
    #[cfg(feature = "tls")]
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl TcpStoreOptions {
    /// A client of `host` and `port`, with PyTorch's defaults.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            world_size: None,
            is_master: false,
            timeout: DEFAULT_TIMEOUT,
            wait_for_workers: true,
            multi_tenant: false,
            listener: None,
            use_libuv: true,
            allowed_origins: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets [`TcpStoreOptions::tls`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }
}

setters! {
    TcpStoreOptions {
        world_size: impl Into<Option<u32>> => world_size.into(),
        is_master: bool => is_master,
        timeout: Duration => timeout,
        wait_for_workers: bool => wait_for_workers,
        multi_tenant: bool => multi_tenant,
        listener: TcpListener => Some(listener),
        allowed_origins: AllowedOrigins => Some(allowed_origins),
        use_libuv: bool => use_libuv,
    }
}

/// The store over TCP: a client, and in one process the server too.
#[derive(Debug)]
pub struct TcpStore {
    /// That `client` is not somebody else's. First, as it is dropped before the client is.
    host_guard: Option<HostGuard>,
    host: String,
    port: u16,
    client: Arc<Client>,
    /// The connection that groups share, of all clones of this store.
    shared_client: SharedClient,
    /// The last store that hosts the server ends it.
    server: Option<Arc<Server>>,
}

impl TcpStore {
    /// Starts the server if this process is the master, connects, and waits for the other clients
    /// if this is asked for.
    ///
    /// Clients try to connect until the timeout, so they may start before the server.
    ///
    /// # Errors
    /// [`Error::Network`] if the port is taken or the server cannot be reached in time;
    /// [`Error::Store`] if the master waited for workers in vain.
    pub fn new(options: TcpStoreOptions) -> Result<Self> {
        let wait_for = options.world_size.filter(|_| options.wait_for_workers);
        let is_master = options.is_master;
        let store = Self::without_waiting(options)?;
        if let Some(world_size) = wait_for.filter(|_| is_master) {
            store.wait_for_workers(world_size)?;
        }
        Ok(store)
    }

    /// As [`TcpStore::new`], but the master does not wait for the others; it is counted as they
    /// are.
    pub(crate) fn without_waiting(mut options: TcpStoreOptions) -> Result<Self> {
        if options.world_size == Some(0) {
            let message = "TCPStore world size cannot be 0; leave it out if the number of clients \
                           is not known";
            return Err(Error::InvalidArgument { message: message.into() });
        }
        let server = if options.is_master { Some(start(&mut options)?) } else { None };
        let (host, port) = match &server {
            None => (options.host.clone(), options.port),
            Some(server) => (server.own_address().to_string(), server.port()),
        };
        let is_counted = options.world_size.is_some() && options.wait_for_workers;
        let own = server.as_ref().and_then(|server| server.own_client(&host, options.timeout));
        let client = match (own, is_counted) {
            (Some(client), true) => client.count_worker().map(|_| client)?,
            (Some(client), false) => client,
            (None, true) => Client::connect_and_count(&host, port, options.timeout)?,
            (None, false) => Client::connect(&host, port, options.timeout)?,
        };
        let port = server.as_ref().map_or(options.port, |server| server.port());
        let host_guard = server.as_ref().map(|server| server.host_guard());
        let (client, shared_client) = (Arc::new(client), SharedClient::default());
        Ok(Self { host_guard, host: options.host, port, client, shared_client, server })
    }

    /// A client of a server that was there before: it is not waited for. `timeout` is the limit of
    /// connecting, and of every request; zero is none.
    ///
    /// # Errors
    /// [`Error::Network`] at once if nobody listens there; [`Error::StoreTimeout`] if somebody does
    /// and does not answer in time.
    pub(crate) fn of_known(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        let client = Arc::new(Client::connect_known(host, port, timeout)?);
        let (host, shared_client) = (host.to_owned(), SharedClient::default());
        Ok(Self { host_guard: None, host, port, client, shared_client, server: None })
    }

    /// As [`TcpStore::of_known`], of a server of this host by the number of its socket there, which
    /// [`TcpStore::local_number`] gave its host; none if it does not answer there at once.
    pub(crate) fn of_local(
        number: &str,
        (host, port): (&str, u16),
        timeout: Duration,
    ) -> Option<Self> {
        #[cfg(target_os = "linux")]
        {
            let name = format!("{LOCAL_PREFIX}{number}").into_bytes().into();
            // The way to it is that of every other of this address.
            let local_address = host.parse().ok();
            let client = Client::connect_local(&name, (host, port), local_address, timeout)?;
            let (host, shared_client) = (host.to_owned(), SharedClient::default());
            let client = Arc::new(client);
            Some(Self { host_guard: None, host, port, client, shared_client, server: None })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (number, host, port, timeout);
            None
        }
    }

    /// The number of the socket by which others of this host reach the server that this process
    /// hosts, if there is one.
    pub(crate) fn local_number(&self) -> Option<&str> {
        let name = std::str::from_utf8(self.server.as_ref()?.local_name()?).ok()?;
        name.strip_prefix(LOCAL_PREFIX)
    }

    /// The name or address of the server, as it was given.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether this process hosts the server.
    pub fn is_master(&self) -> bool {
        self.server.is_some()
    }

    /// Where the server is, `host:port`.
    fn address(&self) -> String {
        authority(&self.host, self.port)
    }

    /// A store of the same server over `client`.
    fn over(&self, client: Arc<Client>) -> TcpStore {
        Self {
            // One for each client: stores that share this one's count as this one.
            host_guard: self
                .server
                .as_ref()
                .filter(|_| !Arc::ptr_eq(&client, &self.client))
                .map(|server| server.host_guard()),
            host: self.host.clone(),
            port: self.port,
            client,
            shared_client: self.shared_client.clone(),
            server: self.server.clone(),
        }
    }

    fn wait_for_workers(&self, world_size: u32) -> Result<()> {
        let deadline = Deadline::after(self.client.timeout());
        let subject = format!("the store at {}, which waits for clients", self.address());
        let wait = WaitingCall::of_process(subject);
        loop {
            let workers = self.client.workers()?;
            if workers >= i64::from(world_size) {
                return Ok(());
            }
            if wait.is_due() {
                let what = "clients have come, this process's own among them";
                wait.say(&format!("{workers} of {world_size} {what}"));
            }
            deadline.sleep(WORKER_POLL).map_err(|why| Error::Store {
                message: match why {
                    WaitError::Interrupted => "waiting for clients was interrupted".into(),
                    WaitError::TimedOut => format!(
                        "Timed out after {} seconds waiting for clients. {workers}/{world_size} \
                         clients joined.",
                        deadline.limit_ms().div_ceil(1000)
                    ),
                },
            })?;
        }
    }
}

fn start(options: &mut TcpStoreOptions) -> Result<Arc<Server>> {
    let settings = Settings::of(options)?;
    let Some(listener) = options.listener.take() else {
        if options.multi_tenant {
            return Server::shared(&options.host, options.port, settings);
        }
        return Server::start(&options.host, options.port, settings).map(Arc::new);
    };
    let prepared = listener.local_addr().and_then(|address| {
        listener.set_nonblocking(true)?;
        // One that is bound and does not listen yet would be waited at in vain; PyTorch's server
        // begins to listen, too.
        SockRef::from(&listener).listen(BACKLOG)?;
        Ok(address.port())
    });
    let port = prepared.map_err(|error| Error::Network {
        message: format!("The listening socket cannot be used: {error}"),
    })?;
    if options.port != 0 && options.port != port {
        let message = format!(
            "The listening socket is bound to port {port}, but the store was given port {}",
            options.port
        );
        return Err(Error::InvalidArgument { message });
    }
    Server::start_on(vec![listener], settings).map(Arc::new)
}

/// The address of the interface that leads to `host`, unless that is within this host.
pub(crate) fn interface_toward(host: &str) -> Option<IpAddr> {
    let found = (host, 0).to_socket_addrs().ok()?.map(|found| found.ip());
    let mut found = found.filter(|found| !found.is_loopback() && !found.is_unspecified());
    found.find_map(|found| {
        let any: IpAddr = match found {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // To connect a datagram socket only chooses a route; whatever the port, nothing is sent.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((found, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.client.set(key, value)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.client.get(key)
    }

    /// # Errors
    /// [`Error::NotACounter`] if the value is not a number, or the sum has more than 64 bits.
    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.client.add(key, amount)
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.client.append(key, value)
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.client.check(keys)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.client.compare_set(key, expected, desired)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.client.delete_key(key)
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        self.client.wait(keys, timeout)
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.client.multi_get(keys)
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        self.client.multi_set(keys, values)
    }

    /// The number of keys; the server's own counter of workers does not count.
    fn num_keys(&self) -> Result<i64> {
        self.client.num_keys()
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.client.list_keys()
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.client.queue_push(key, value)
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.client.queue_pop(key, block)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.client.queue_len(key)
    }

    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
        self.client.barrier(key, world_size, timeout)
    }

    fn server_address(&self) -> Option<String> {
        Some(self.address())
    }

    fn local_address(&self) -> Option<IpAddr> {
        // The way to a server of one's own leads nowhere; others come to the address they know.
        let own = self.server.as_ref().and_then(|_| interface_toward(&self.host));
        own.or_else(|| self.client.local_address())
    }

    fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }

    fn has_no_clients(&self) -> bool {
        self.host_guard.as_ref().is_some_and(HostGuard::has_no_clients)
    }

    fn hosts_server(&self) -> bool {
        self.server.is_some()
    }

    fn reopen(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        let client = self.client.connect_to_known(limit)?;
        Ok(Arc::new(self.over(Arc::new(client))))
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.over(self.client.clone())))
    }

    fn shared_connection(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.over(self.shared_client.get_or_share(&self.client))))
    }

    fn description(&self) -> String {
        format!("TCPStore({})", self.address())
    }

    /// A second connection to the same server, which a clone of the hosting store keeps alive.
    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        let client = self.client.connect_again()?;
        Ok(Arc::new(self.over(Arc::new(client))))
    }
}
