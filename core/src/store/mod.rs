//! The key-value stores through which ranks meet. Knows nothing of process groups.
//!
//! The rules are those of PyTorch's c10d stores, one set for all: the same suite runs on each.

#[macro_use]
mod by_request;

mod awaited_keys;
mod bound;
mod deadline;
mod elsewhere;
#[cfg(not(target_family = "wasm"))]
mod file;
mod group;
mod hash;
mod interrupt;
pub(crate) mod member;
mod options;
mod prefix;
#[cfg_attr(
    not(feature = "tcp"),
    allow(dead_code, unused_imports, reason = "a part is for servers and clients over TCP")
)]
mod protocol;
mod request;
#[cfg(feature = "tcp")]
mod silence;
#[cfg(test)]
pub(crate) mod suite;
mod table;
#[cfg(feature = "tcp")]
mod tcp;
mod timeout;
pub(crate) mod url;

#[cfg(any(target_family = "wasm", feature = "websocket"))]
pub mod websocket;

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tcp")]
pub(crate) use awaited_keys::{store_name, waiting_call};
#[doc(hidden)]
pub use bound::Bound;
pub(crate) use deadline::{Deadline, WaitError};
use table::Refusal;
pub(crate) use timeout::TimeoutSetting;

use crate::generated::error::{Error, Result};
pub(crate) use crate::transport::websocket::Relay;

#[doc(hidden)]
pub use deadline::SLICE as INTERRUPT_CHECK_INTERVAL;
#[cfg(not(target_family = "wasm"))]
pub use file::FileStore;
#[cfg(not(target_family = "wasm"))]
pub(crate) use file::membership;
pub(crate) use group::GroupStore;
pub use hash::HashStore;
#[doc(hidden)]
pub use interrupt::requested as is_interrupted;
pub(crate) use interrupt::{InterruptCondition, interrupt_when};
pub use interrupt::{InterruptGuard, install_interrupt_check};
pub use options::{WebSocketStoreOptions, grace_to_ms};
pub use prefix::PrefixStore;
pub use request::{StoreFuture, StoreReply, StoreRequest};
#[cfg(feature = "tcp")]
pub(crate) use silence::does_not_answer;
#[cfg(all(feature = "tcp", feature = "internals", target_os = "linux"))]
#[doc(hidden)]
pub use tcp::raise_open_files;
#[cfg(feature = "tcp")]
pub use tcp::{DEFAULT_PORT, TcpStore, TcpStoreOptions};
#[cfg(feature = "tcp")]
pub(crate) use tcp::{interface_toward, open_files_advice};
#[cfg(any(target_family = "wasm", feature = "websocket"))]
pub use websocket::WebSocketStore;

/// How long stores wait unless told otherwise: five minutes, as in c10d.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// A key-value store that ranks share. Keys and values are bytes.
pub trait Store: Send + Sync {
    /// Sets `key` to `value`, over what was there.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;
    /// The value of `key`; waits for it up to the store's timeout.
    fn get(&self, key: &str) -> Result<Vec<u8>>;
    /// Adds `amount` to the decimal number at `key`, 0 if there is none; the sum.
    fn add(&self, key: &str, amount: i64) -> Result<i64>;
    /// Appends `value` to the value of `key`, empty if there is none.
    fn append(&self, key: &str, value: &[u8]) -> Result<()>;
    /// Whether all `keys` are there. Does not wait.
    fn check(&self, keys: &[&str]) -> Result<bool>;
    /// Sets `key` to `desired` if its value is `expected`, or if it has none and `expected` is
    /// empty. What is stored then; `expected` if nothing is.
    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>>;
    /// Removes `key`; whether it was there.
    fn delete_key(&self, key: &str) -> Result<bool>;
    /// Waits until all `keys` are there, up to `timeout` (`None`: the store's own).
    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()>;
    /// The values of `keys`; waits for all of them.
    fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>>;
    /// Sets several keys.
    fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()>;
    /// The number of keys.
    fn num_keys(&self) -> Result<i64>;
    /// All keys, in no order.
    fn list_keys(&self) -> Result<Vec<String>>;
    /// Appends `value` to the queue `key`.
    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()>;
    /// Takes the first value of the queue `key`; waits for one if `block`.
    fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>>;
    /// Length of the queue `key`, 0 if there is none.
    fn queue_len(&self, key: &str) -> Result<i64>;
    /// Waits until `world_size` callers came to the barrier `key`. Each key serves once.
    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
        match count_at_barrier(self, key, world_size)? {
            None => Ok(()),
            Some(opened) => self.wait(&[&opened], timeout).map_err(|error| of_barrier(error, key)),
        }
    }
    /// Whether append, multi_get, multi_set work.
    fn has_extended_api(&self) -> bool {
        true
    }
    /// Limit of operations that wait; zero is none.
    fn timeout(&self) -> Duration;
    /// Sets the limit of operations that wait.
    fn set_timeout(&self, timeout: Duration);
    /// The address of this host's interface that leads to the store; `None` if the store is not
    /// reached through a network.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
    /// The address of the server where programs that listen nowhere meet, as a browser's tabs: that
    /// of a store that is reached over a WebSocket.
    #[doc(hidden)]
    fn socket_url(&self) -> Option<String> {
        None
    }
    /// Where its server listens, as `host:port`, where that is known.
    #[doc(hidden)]
    fn server_address(&self) -> Option<String> {
        None
    }
    /// Runs `request`, and may answer later. A store whose methods block runs it on another thread,
    /// through [`Store::share`], if a task polls it. One that cannot block (in a browser) answers
    /// here alone, and its methods that wait raise [`Error::Unsupported`].
    ///
    /// The methods are there as futures too, on `dyn Store`: `get_async` and the others.
    fn request<'a>(&'a self, request: StoreRequest<'a>) -> StoreFuture<'a> {
        Box::pin(elsewhere::run(self, request))
    }
    /// This very store, for another thread: the same connection and timeout. `None`, where a store
    /// has no such handle: its requests block the thread that polls them.
    fn share(&self) -> Option<Arc<dyn Store>> {
        None
    }
    /// This very store, whose requests keep to `bound` besides its own timeout. `None`, where a
    /// store has no such handle.
    #[doc(hidden)]
    fn bounded(&self, bound: &Arc<Bound>) -> Option<Arc<dyn Store>> {
        let _ = bound;
        None
    }
    /// The store's server as a way between ranks that cannot reach each other, if it is one.
    fn relay(&self) -> Option<Arc<dyn Relay>> {
        None
    }
    /// How long the other ranks are to wait for this one when its WebSocket is lost, if it said so
    /// when it opened the store: [`WebSocketStoreOptions::reconnect_grace`].
    fn reconnect_grace(&self) -> Option<Duration> {
        None
    }
    /// Whether this store hosts its server and nobody is connected to that but this store and its
    /// clones, so that nobody is left who could need it; `false` where that is not known.
    fn has_no_clients(&self) -> bool {
        false
    }
    /// A short description for debugging, the same in every language: its kind, and where it is, as
    /// in `TCPStore(10.0.0.1:29500)`.
    fn description(&self) -> String {
        let path = std::any::type_name::<Self>();
        let path = path.split('<').next().unwrap_or(path);
        format!("{}()", path.rsplit("::").next().unwrap_or(path))
    }
    /// The connection that groups of this process share for what they ask the store seldom and
    /// briefly, once they are made. It is this handle's own if there is none yet. `None`, where a
    /// handle costs nothing that could be shared.
    #[doc(hidden)]
    fn shared_connection(&self) -> Option<Arc<dyn Store>> {
        None
    }
    /// Whether the server of the store ends with this process.
    #[doc(hidden)]
    fn hosts_server(&self) -> bool {
        false
    }
    /// As [`Store::clone_store`], where the server may be gone: it is not waited for to come, and
    /// no request through the handle takes longer than `limit` (zero is none), where that can be.
    #[doc(hidden)]
    fn reopen(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        let _ = limit;
        self.clone_store()
    }
    /// What a language looks for in a store that is written in it.
    #[doc(hidden)]
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
    /// Another handle on the same data, which does not wait for this one's requests.
    fn clone_store(&self) -> Result<Arc<dyn Store>>;
}

/// c10d's barrier for stores that have no own: everyone counts, the last one opens it. Counts one
/// caller; the key to wait for, unless it was the last one.
fn count_at_barrier<S: Store + ?Sized>(
    store: &S,
    key: &str,
    world_size: u32,
) -> Result<Option<String>> {
    let opened = format!("{key}/last_member");
    if store.add(&format!("{key}/num_members"), 1)? >= i64::from(world_size) {
        return store.set(&opened, b"1").map(|()| None);
    }
    Ok(Some(opened))
}

/// The error of a barrier from that of the wait in it.
fn of_barrier(error: Error, key: &str) -> Error {
    match error {
        Error::StoreTimeout { waited_ms, .. } => {
            Error::StoreTimeout { operation: "barrier".into(), keys: key.into(), waited_ms }
        }
        other => other,
    }
}

/// Checks that there is one value for each key.
pub(crate) fn equal_lengths(keys: &[&str], values: &[&[u8]]) -> Result<()> {
    if keys.len() == values.len() {
        return Ok(());
    }
    let (keys, values) = (keys.len(), values.len());
    Err(Error::InvalidArgument {
        message: format!(
            "multi_set needs one value for each key, got {keys} keys, {values} values"
        ),
    })
}

/// The error of an operation that stopped waiting for `keys`.
pub(crate) fn expired(
    why: WaitError,
    operation: &str,
    keys: &[&str],
    deadline: &Deadline,
) -> Error {
    let keys = keys.join(", ");
    match why {
        WaitError::TimedOut => Error::StoreTimeout {
            operation: operation.into(),
            keys,
            waited_ms: deadline.limit_ms(),
        },
        WaitError::Interrupted => {
            Error::Store { message: format!("{operation} was interrupted, keys: {keys}") }
        }
    }
}

/// The error of a change that the table refused.
fn refused(refusal: Refusal, key: &str) -> Error {
    match refusal {
        Refusal::NotANumber => Error::NotACounter { key: key.into() },
        Refusal::Full => Error::Store { message: format!("the store is full, key: {key}") },
    }
}
