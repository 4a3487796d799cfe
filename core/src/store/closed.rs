//! The store of a group that was left: every request is refused, and nothing is kept open for it.

use std::sync::Arc;
use std::time::Duration;

use super::{DEFAULT_TIMEOUT, Store};
use crate::generated::error::{Error, Result};

/// What a group has instead of its store once it was left.
pub(crate) struct ClosedStore {
    group: String,
}

impl ClosedStore {
    /// In the place of the store that the group of this name had.
    pub(crate) fn of(group: &str) -> Arc<dyn Store> {
        Arc::new(ClosedStore { group: group.to_owned() })
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(closed_error(&self.group))
    }
}

/// What a request to the store of a group is told that was left.
pub(super) fn closed_error(group: &str) -> Error {
    let message = format!("the store of group '{group}' is closed: the group was destroyed");
    Error::InvalidGroup { message }
}

impl Store for ClosedStore {
    fn set(&self, _key: &str, _value: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn get(&self, _key: &str) -> Result<Vec<u8>> {
        self.refuse()
    }

    fn add(&self, _key: &str, _amount: i64) -> Result<i64> {
        self.refuse()
    }

    fn append(&self, _key: &str, _value: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn check(&self, _keys: &[&str]) -> Result<bool> {
        self.refuse()
    }

    fn compare_set(&self, _key: &str, _expected: &[u8], _desired: &[u8]) -> Result<Vec<u8>> {
        self.refuse()
    }

    fn delete_key(&self, _key: &str) -> Result<bool> {
        self.refuse()
    }

    fn wait(&self, _keys: &[&str], _timeout: Option<Duration>) -> Result<()> {
        self.refuse()
    }

    fn multi_get(&self, _keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.refuse()
    }

    fn multi_set(&self, _keys: &[&str], _values: &[&[u8]]) -> Result<()> {
        self.refuse()
    }

    fn num_keys(&self) -> Result<i64> {
        self.refuse()
    }

    fn list_keys(&self) -> Result<Vec<String>> {
        self.refuse()
    }

    fn queue_push(&self, _key: &str, _value: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn queue_pop(&self, _key: &str, _block: bool) -> Result<Vec<u8>> {
        self.refuse()
    }

    fn queue_len(&self, _key: &str) -> Result<i64> {
        self.refuse()
    }

    fn barrier(&self, _key: &str, _world_size: u32, _timeout: Option<Duration>) -> Result<()> {
        self.refuse()
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn set_timeout(&self, _timeout: Duration) {}

    fn clone_store(&self) -> Result<Arc<dyn Store>> {
        self.refuse()
    }
}
