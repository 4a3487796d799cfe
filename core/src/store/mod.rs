//! The key-value stores through which ranks meet. Knows nothing of process groups.

use std::sync::Arc;
use std::time::Duration;

use crate::Result;

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
    fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()>;
    /// Whether append, multi_get, multi_set work.
    fn has_extended_api(&self) -> bool;
    /// Limit of operations that wait; zero is none.
    fn timeout(&self) -> Duration;
    /// Sets the limit of operations that wait.
    fn set_timeout(&self, timeout: Duration);
    /// Another handle on the same data, which does not wait for this one's requests.
    fn clone_store(&self) -> Result<Arc<dyn Store>>;
}
