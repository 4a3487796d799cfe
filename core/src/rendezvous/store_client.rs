//! Stores at addresses of torchft's form: `host:port/prefix`. Knows no group.

use std::sync::Arc;
use std::time::Duration;

use super::open_web_socket_store;
use crate::blocking::block_on;
#[cfg(feature = "tcp")]
use crate::blocking::unblock;
use crate::generated::error::{Error, Result};
#[cfg(not(feature = "tcp"))]
use crate::store::url::authority;
use crate::store::{PrefixStore, Store, WebSocketStoreOptions};
#[cfg(feature = "tcp")]
use crate::store::{TcpStore, TcpStoreOptions};

/// A client of the store at `host:port/prefix`, with the prefix put before every key. A host may be
/// an IPv6 address in brackets; `ws://host:port/prefix` and `wss://…` reach the store over a
/// WebSocket. The `timeout` is the limit of connecting and of requests that wait; zero is none.
///
/// # Errors
/// [`Error::InvalidArgument`] for another form of address; [`Error::Network`] and
/// [`Error::StoreTimeout`] if the store cannot be reached.
pub fn create_store_client(address: &str, timeout: Duration) -> Result<Arc<dyn Store>> {
    let address = StoreAddress::parse(address)?;
    block_on(address.open(timeout))
}

/// Where a store is, and the prefix of its keys.
pub(crate) struct StoreAddress<'a> {
    server: Server<'a>,
    pub(crate) prefix: &'a str,
}

enum Server<'a> {
    /// A host and a port.
    Tcp(&'a str, u16),
    /// The URL of a WebSocket.
    Url(String),
}

/// A client of the store at an address.
pub(crate) enum StoreClient {
    /// Over TCP.
    #[cfg(feature = "tcp")]
    Tcp(TcpStore),
    /// Over a WebSocket of this URL.
    WebSocket { store: Arc<dyn Store>, url: String },
}

impl<'a> StoreAddress<'a> {
    /// The one that `address` says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another form.
    pub(crate) fn parse(address: &'a str) -> Result<StoreAddress<'a>> {
        let read = match address.split_once("://") {
            Some((scheme @ ("ws" | "wss"), rest)) => StoreAddress::of_url(scheme, rest),
            _ => StoreAddress::of_host(address),
        };
        read.ok_or_else(|| {
            let message = format!(
                "'{address}' is not a store address: expected host:port/prefix or \
                 ws://host:port/prefix"
            );
            Error::InvalidArgument { message }
        })
    }

    fn of_url(scheme: &str, rest: &'a str) -> Option<StoreAddress<'a>> {
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let server = Server::Url(format!("{scheme}://{host}"));
        (!host.is_empty()).then_some(StoreAddress { server, prefix })
    }

    fn of_host(address: &'a str) -> Option<StoreAddress<'a>> {
        let (endpoint, prefix) = address.split_once('/').unwrap_or((address, ""));
        let (host, port) = endpoint.rsplit_once(':')?;
        let server = Server::Tcp(host.trim_matches(['[', ']']), port.parse().ok()?);
        Some(StoreAddress { server, prefix })
    }

    /// A client of its server, which knows nothing of the prefix.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<StoreClient> {
        match &self.server {
            Server::Tcp(host, port) => connect_tcp(host, *port, timeout).await,
            Server::Url(url) => connect_web_socket(url.clone(), timeout).await,
        }
    }

    /// A client with the prefix before every key.
    pub(crate) async fn open(&self, timeout: Duration) -> Result<Arc<dyn Store>> {
        let store: Arc<dyn Store> = match self.connect(timeout).await? {
            #[cfg(feature = "tcp")]
            StoreClient::Tcp(store) => Arc::new(store),
            StoreClient::WebSocket { store, .. } => store,
        };
        Ok(match self.prefix {
            "" => store,
            prefix => Arc::new(PrefixStore::new(prefix, store)),
        })
    }
}

#[cfg(feature = "tcp")]
async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> Result<StoreClient> {
    let options = TcpStoreOptions::new(host, port).timeout(timeout).wait_for_workers(false);
    unblock(move || TcpStore::new(options)).await.map(StoreClient::Tcp)
}

/// Where there are no sockets: the server speaks WebSocket, too.
#[cfg(not(feature = "tcp"))]
async fn connect_tcp(host: &str, port: u16, timeout: Duration) -> Result<StoreClient> {
    connect_web_socket(format!("ws://{}", authority(host, port)), timeout).await
}

async fn connect_web_socket(url: String, timeout: Duration) -> Result<StoreClient> {
    let store = open_web_socket_store(&url, WebSocketStoreOptions::new(timeout)).await?;
    Ok(StoreClient::WebSocket { store, url })
}
