//! A store that counts what it is asked, and may end before it answers. Knows only what joining
//! asks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::generated::error::{Error, Result};
use crate::store::{HashStore, Store};

#[derive(Default)]
pub(super) struct Counting {
    store: HashStore,
    pub(super) asked: AtomicUsize,
    ends: bool,
}

impl Counting {
    /// One that ends when somebody waits.
    pub(super) fn that_ends() -> Counting {
        Counting { ends: true, ..Counting::default() }
    }

    fn count(&self) -> &HashStore {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &self.store
    }
}

/// Methods that count, and those that nobody asks for.
macro_rules! counted {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            self.count().$name($($argument),*)
        })*
    };
}

impl Store for Counting {
    counted! {
        set(key: &str, value: &[u8]) -> Result<()>;
        get(key: &str) -> Result<Vec<u8>>;
        add(key: &str, amount: i64) -> Result<i64>;
        append(key: &str, value: &[u8]) -> Result<()>;
        check(keys: &[&str]) -> Result<bool>;
        compare_set(key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>>;
        delete_key(key: &str) -> Result<bool>;
        multi_get(keys: &[&str]) -> Result<Vec<Vec<u8>>>;
        multi_set(keys: &[&str], values: &[&[u8]]) -> Result<()>;
        num_keys() -> Result<i64>;
        list_keys() -> Result<Vec<String>>;
        queue_push(key: &str, value: &[u8]) -> Result<()>;
        queue_pop(key: &str, block: bool) -> Result<Vec<u8>>;
        queue_len(key: &str) -> Result<i64>;
        barrier(key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()>;
        has_extended_api() -> bool;
        timeout() -> Duration;
        set_timeout(timeout: Duration) -> ();
        local_address() -> Option<IpAddr>;
        clone_store() -> Result<Arc<dyn Store>>;
    }

    fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        match self.ends {
            true => Err(Error::Network { message: "the store ended".into() }),
            false => self.count().wait(keys, timeout),
        }
    }
}
