//! A store's keys under a prefix, so that several users share one store without meeting.
//! Knows nothing of how the underlying store keeps them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreFuture, StoreReply, StoreRequest};
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

    /// Calls `call` with the prefixed keys.
    fn with_keys<T>(&self, keys: &[&str], call: impl FnOnce(&[&str]) -> T) -> T {
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        call(&keys)
    }
}

impl std::fmt::Debug for PrefixStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store for PrefixStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.set(&self.key(key), value)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.store.get(&self.key(key))
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.store.add(&self.key(key), amount)
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.append(&self.key(key), value)
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.with_keys(keys, |keys| self.store.check(keys))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.store.compare_set(&self.key(key), expected, desired)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.store.delete_key(&self.key(key))
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        self.with_keys(keys, |keys| self.store.wait(keys, timeout))
    }

    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.with_keys(keys, |keys| self.store.multi_get(keys))
    }

    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        self.with_keys(keys, |keys| self.store.multi_set(keys, values))
    }

    /// The number of keys of the underlying store, as c10d counts.
    fn num_keys(&self) -> Result<i64> {
        self.store.num_keys()
    }

    /// The keys under the prefix, without it.
    fn list_keys(&self) -> Result<Vec<String>> {
        Ok(without(&self.key(""), self.store.list_keys()?))
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.queue_push(&self.key(key), value)
    }

    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.store.queue_pop(&self.key(key), block)
    }

    fn queue_len(&self, key: &str) -> Result<i64> {
        self.store.queue_len(&self.key(key))
    }

    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
        self.store.barrier(&self.key(key), world_size, timeout)
    }

    fn local_address(&self) -> Option<IpAddr> {
        self.store.local_address()
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
            if let Some(keys) = request.keys() {
                let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                return self.store.request(request.with_keys(&keys)).await;
            }
            if let Some(key) = request.key() {
                let key = self.key(key);
                return self.store.request(request.with_key(&key)).await;
            }
            let reply = self.store.request(request).await?;
            Ok(match reply {
                StoreReply::Keys(keys) => StoreReply::Keys(without(&self.key(""), keys)),
                other => other,
            })
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

    fn share(&self) -> Option<Arc<dyn Store>> {
        let store = self.store.share()?;
        Some(Arc::new(Self::new(self.prefix.clone(), store)))
    }

    fn description(&self) -> String {
        format!("PrefixStore('{}', {})", self.prefix, self.store.description())
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::new(self.prefix.clone(), self.store.clone_store()?)))
    }
}

/// Those of `keys` that begin with `under`, without it.
fn without(under: &str, keys: Vec<String>) -> Vec<String> {
    let keys = keys.into_iter();
    keys.filter_map(|key| key.strip_prefix(under).map(str::to_owned)).collect()
}
