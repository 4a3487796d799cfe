//! `WebSocketStore`: the store's methods over a client. Knows nothing of how its packets travel.

#[cfg(feature = "websocket")]
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, PacketMover};
#[cfg(target_family = "wasm")]
use super::requests;
use crate::generated::error::Result;
#[cfg(target_family = "wasm")]
use crate::store::{Deadline, WaitError};
use crate::store::{Store, StoreReply, StoreRequest, TimeoutSetting, WebSocketStoreOptions};

/// A store that is reached over a WebSocket: any store's server of polyrank, from browsers too.
///
/// Its session outlives the WebSocket: one that breaks is opened again, and no request is lost or
/// run twice. Requests do not wait for each other.
///
/// In a browser nothing blocks: use [`Store::request`] or the methods that end in `_async`; the
/// others raise [`crate::Error::Unsupported`] there.
pub struct WebSocketStore {
    client: Client,
    url: String,
    timeout: TimeoutSetting,
    reconnect_grace: Option<Duration>,
    /// What moves the client's packets, as long as a store needs it.
    mover: Arc<dyn PacketMover>,
}

impl std::fmt::Debug for WebSocketStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocketStore").field("url", &self.url).finish_non_exhaustive()
    }
}

impl WebSocketStore {
    /// A store over `client`, whose packets `mover` moves until it is dropped. `url` is for people.
    pub fn over(
        client: Client,
        url: impl Into<String>,
        options: WebSocketStoreOptions,
        mover: Arc<dyn PacketMover>,
    ) -> Self {
        let timeout = TimeoutSetting::new(options.timeout);
        let reconnect_grace = options.reconnect_grace;
        Self { client, url: url.into(), timeout, reconnect_grace, mover }
    }

    /// The address of the store.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How long `request` may take.
    fn limit(&self, request: &StoreRequest<'_>) -> Duration {
        match request {
            StoreRequest::Wait { timeout: Some(timeout), .. }
            | StoreRequest::Barrier { timeout: Some(timeout), .. } => *timeout,
            _ => self.timeout(),
        }
    }

    /// Carries `request` out while the thread waits.
    #[cfg(feature = "websocket")]
    fn ask(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        super::blocking::ask(&self.client, &self.url, &request, self.limit(&request))
    }

    #[cfg(not(feature = "websocket"))]
    fn ask(&self, _: StoreRequest<'_>) -> Result<StoreReply> {
        Err(crate::store::by_request::cannot_block())
    }
}

impl Store for WebSocketStore {
    methods_by_request!();

    fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    fn socket_url(&self) -> Option<String> {
        Some(self.url.clone())
    }

    #[cfg(feature = "websocket")]
    fn local_address(&self) -> Option<IpAddr> {
        self.mover.local_address()
    }

    #[cfg(target_family = "wasm")]
    fn request<'a>(&'a self, request: StoreRequest<'a>) -> crate::store::StoreFuture<'a> {
        Box::pin(async move {
            let deadline = Deadline::after(self.limit(&request));
            let cancelled = async {
                match deadline.remaining() {
                    Some(left) => crate::clock::sleep_until(crate::clock::after(left)).await,
                    None => std::future::pending().await,
                }
                requests::gave_up(WaitError::TimedOut, &request, &deadline)
            };
            self.client.request(request, cancelled).await
        })
    }

    /// A rank that listens is reached there, unless the store's connections are encrypted: then
    /// those of pages to it must be, too.
    fn relay(&self) -> Option<Arc<dyn crate::transport::websocket::Relay>> {
        let is_wanted = cfg!(not(feature = "tcp")) || self.url.starts_with("wss:");
        is_wanted.then(|| self.client.relay())
    }

    fn reconnect_grace(&self) -> Option<Duration> {
        self.reconnect_grace
    }

    #[cfg(not(target_family = "wasm"))]
    fn share(&self) -> Option<Arc<dyn Store>> {
        self.clone_store().ok()
    }

    /// A handle on the same session.
    fn description(&self) -> String {
        format!("WebSocketStore({})", self.url)
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        let (client, url) = (self.client.clone(), self.url.clone());
        let options = WebSocketStoreOptions::new(self.timeout());
        let options = options.reconnect_grace(self.reconnect_grace);
        Ok(Arc::new(Self::over(client, url, options, self.mover.clone())))
    }
}
