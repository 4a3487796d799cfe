//! A store's keys under a prefix, so that several users share one store without meeting.
//! Knows nothing of how the underlying store keeps them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::request::perform;
use super::{Bound, Store, StoreFuture, StoreReply, StoreRequest};
use crate::generated::error::Result;
use crate::transport::websocket::Relay;

/// `store` with `prefix` and "/" in front of every key.
pub struct PrefixStore {
    prefix: String,
    store: Arc<dyn Store>,
}

impl PrefixStore {
    /// `store` with `prefix` and "/" in front of every key.
    pub fn new(prefix: impl Into<String>, store: Arc<dyn Store>) -> Self {
        Self { prefix: prefix.into(), store }
    }

    /// The store under the prefix.
    pub fn underlying_store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The prefix, without "/".
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }

    /// The keys of `request` in the underlying store.
    fn prefixed(&self, request: &StoreRequest<'_>) -> Vec<String> {
        let key = request.key();
        let keys = request.keys().unwrap_or(key.as_slice());
        keys.iter().map(|key| self.key(key)).collect()
    }

    /// `reply` with names of keys as the user of this store knows them: those under the prefix,
    /// without it. Keys are counted in all of the underlying store, as c10d counts.
    fn without_prefix(&self, reply: StoreReply) -> StoreReply {
        match reply {
            StoreReply::Keys(keys) => StoreReply::Keys(without(&self.key(""), keys)),
            other => other,
        }
    }

    /// Runs `request` through the underlying store's blocking methods.
    fn ask(&self, request: StoreRequest<'_>) -> Result<StoreReply> {
        let keys = self.prefixed(&request);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let reply = perform(&*self.store, with_keys(request, &keys))?;
        Ok(self.without_prefix(reply))
    }
}

impl std::fmt::Debug for PrefixStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store for PrefixStore {
    methods_by_request!();

    fn local_address(&self) -> Option<IpAddr> {
        self.store.local_address()
    }

    fn server_address(&self) -> Option<String> {
        self.store.server_address()
    }

    fn socket_url(&self) -> Option<String> {
        self.store.socket_url()
    }

    fn has_extended_api(&self) -> bool {
        self.store.has_extended_api()
    }

    fn timeout(&self) -> Duration {
        self.store.timeout()
    }

    /// Sets the timeout of the underlying store, which other users of it share.
    fn set_timeout(&self, timeout: Duration) {
        self.store.set_timeout(timeout);
    }

    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        Box::pin(async move {
            let keys = self.prefixed(&request);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let reply = self.store.request(with_keys(request, &keys)).await?;
            Ok(self.without_prefix(reply))
        })
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        self.store.relay()
    }

    fn reconnect_grace(&self) -> Option<Duration> {
        self.store.reconnect_grace()
    }

    fn has_no_clients(&self) -> bool {
        self.store.has_no_clients()
    }

    fn hosts_server(&self) -> bool {
        self.store.hosts_server()
    }

    fn reopen(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::new(self.prefix.clone(), self.store.reopen(limit)?)))
    }

    fn share(&self) -> Option<Arc<dyn Store>> {
        let store = self.store.share()?;
        Some(Arc::new(Self::new(self.prefix.clone(), store)))
    }

    fn bounded(&self, bound: &Arc<Bound>) -> Option<Arc<dyn Store>> {
        let store = self.store.bounded(bound)?;
        Some(Arc::new(Self::new(self.prefix.clone(), store)))
    }

    fn shared_connection(&self) -> Option<Arc<dyn Store>> {
        let store = self.store.shared_connection()?;
        Some(Arc::new(Self::new(self.prefix.clone(), store)))
    }

    fn description(&self) -> String {
        format!("PrefixStore('{}', {})", self.prefix, self.store.description())
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::new(self.prefix.clone(), self.store.clone_store()?)))
    }
}

/// `request` with `keys` in place of its own, if it has any.
fn with_keys<'a>(request: StoreRequest<'a>, keys: &'a [&'a str]) -> StoreRequest<'a> {
    match (request.key(), keys) {
        (Some(_), [key]) => request.with_key(key),
        _ => request.with_keys(keys),
    }
}

/// Those of `keys` that begin with `under`, without it.
fn without(under: &str, keys: Vec<String>) -> Vec<String> {
    let keys = keys.into_iter();
    keys.filter_map(|key| key.strip_prefix(under).map(str::to_owned)).collect()
}
