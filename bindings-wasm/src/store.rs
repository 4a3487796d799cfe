//! The store behind a WebSocket, in a browser: it answers later, and never blocks. Knows nothing of
//! sockets.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyrank::clock::{self, Instant};
use polyrank::store::websocket::Client;
use polyrank::store::{Store, StoreFuture, StoreRequest};
use polyrank::transport::websocket::Relay;
use polyrank::{Error, Result};

use crate::connections::{self, Use};
use crate::sockets::BrowserDialer;

/// A store of a server that answers WebSockets.
pub(crate) struct BrowserStore {
    client: Client,
    used: Arc<Use>,
    timeout_ms: AtomicU64,
}

impl BrowserStore {
    /// Opens the store at `url` within `timeout`; zero is no limit.
    ///
    /// # Errors
    /// [`Error::Network`] if there is none that answers.
    pub(crate) async fn open(url: String, timeout: Duration) -> Result<BrowserStore> {
        let dialer = Box::new(BrowserDialer);
        let (client, used) = connections::open(url, dialer, deadline(timeout));
        client.opened().await?;
        let store = BrowserStore { client, used, timeout_ms: AtomicU64::new(0) };
        store.set_timeout(timeout);
        Ok(store)
    }
}

/// `timeout` from now; zero is a very long time.
fn deadline(timeout: Duration) -> Instant {
    let limit = if timeout.is_zero() { Duration::from_secs(1 << 30) } else { timeout };
    Instant::now() + limit.min(Duration::from_secs(1 << 30))
}

/// The error of a request after `timeout`.
async fn expired(request: StoreRequest<'_>, timeout: Duration) -> Error {
    if timeout.is_zero() {
        return pending().await;
    }
    clock::sleep_until(deadline(timeout)).await;
    let operation = match request {
        StoreRequest::Barrier { .. } => "barrier",
        _ => "wait",
    };
    let keys = request.keys().map(|keys| keys.join(", ")).or(request.key().map(str::to_owned));
    let (keys, waited_ms) = (keys.unwrap_or_default(), timeout.as_millis() as u64);
    Error::StoreTimeout { operation: operation.to_owned(), keys, waited_ms }
}

/// What blocks does not work in a browser.
macro_rules! blocking {
    ($($method:ident($($argument:ident: $ty:ty),*) -> $returns:ty;)*) => {$(
        fn $method(&self, $($argument: $ty),*) -> Result<$returns> {
            let operation = stringify!($method).to_owned();
            Err(Error::Unsupported { who: "a store that must not block".to_owned(), operation })
        }
    )*};
}

impl Store for BrowserStore {
    blocking! {
        set(_key: &str, _value: &[u8]) -> ();
        get(_key: &str) -> Vec<u8>;
        add(_key: &str, _amount: i64) -> i64;
        append(_key: &str, _value: &[u8]) -> ();
        check(_keys: &[&str]) -> bool;
        compare_set(_key: &str, _expected: &[u8], _desired: &[u8]) -> Vec<u8>;
        delete_key(_key: &str) -> bool;
        wait(_keys: &[&str], _timeout: Option<Duration>) -> ();
        multi_get(_keys: &[&str]) -> Vec<Vec<u8>>;
        multi_set(_keys: &[&str], _values: &[&[u8]]) -> ();
        num_keys() -> i64;
        list_keys() -> Vec<String>;
        queue_push(_key: &str, _value: &[u8]) -> ();
        queue_pop(_key: &str, _block: bool) -> Vec<u8>;
        queue_len(_key: &str) -> i64;
        barrier(_key: &str, _world_size: u32, _timeout: Option<Duration>) -> ();
    }

    fn has_extended_api(&self) -> bool {
        true
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    fn set_timeout(&self, timeout: Duration) {
        // A limit below a millisecond must not become "no limit".
        let ms = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.timeout_ms.store(ms, Ordering::Relaxed);
    }

    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        let timeout = match request {
            StoreRequest::Wait { timeout: Some(timeout), .. }
            | StoreRequest::Barrier { timeout: Some(timeout), .. } => timeout,
            _ => self.timeout(),
        };
        Box::pin(self.client.request(request, expired(request, timeout)))
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        Some(self.client.relay())
    }

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        let timeout_ms = AtomicU64::new(self.timeout_ms.load(Ordering::Relaxed));
        let (client, used) = (self.client.clone(), self.used.clone());
        Ok(Arc::new(BrowserStore { client, used, timeout_ms }))
    }
}
