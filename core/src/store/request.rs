//! A store's operations as values, so that one entry can answer them later. Knows no store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use crate::blocking::unblock;
use crate::generated::error::{Error, Result};

/// One request to a store; each is a method of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreRequest<'a> {
    /// [`Store::set`]; answered by [`StoreReply::Done`].
    Set {
        /// The key.
        key: &'a str,
        /// Its value.
        value: &'a [u8],
    },
    /// [`Store::get`]; answered by [`StoreReply::Value`].
    Get {
        /// The key.
        key: &'a str,
    },
    /// [`Store::add`]; answered by [`StoreReply::Number`].
    Add {
        /// The key.
        key: &'a str,
        /// What is added.
        amount: i64,
    },
    /// [`Store::append`]; answered by [`StoreReply::Done`].
    Append {
        /// The key.
        key: &'a str,
        /// What is appended.
        value: &'a [u8],
    },
    /// [`Store::check`]; answered by [`StoreReply::Flag`].
    Check {
        /// The keys.
        keys: &'a [&'a str],
    },
    /// [`Store::compare_set`]; answered by [`StoreReply::Value`].
    CompareSet {
        /// The key.
        key: &'a str,
        /// The value it must have.
        expected: &'a [u8],
        /// The value it then gets.
        desired: &'a [u8],
    },
    /// [`Store::delete_key`]; answered by [`StoreReply::Flag`].
    DeleteKey {
        /// The key.
        key: &'a str,
    },
    /// [`Store::wait`]; answered by [`StoreReply::Done`].
    Wait {
        /// The keys.
        keys: &'a [&'a str],
        /// The limit, the store's own where there is none.
        timeout: Option<Duration>,
    },
    /// [`Store::multi_get`]; answered by [`StoreReply::Values`].
    MultiGet {
        /// The keys.
        keys: &'a [&'a str],
    },
    /// [`Store::multi_set`]; answered by [`StoreReply::Done`].
    MultiSet {
        /// The keys.
        keys: &'a [&'a str],
        /// One value for each key.
        values: &'a [&'a [u8]],
    },
    /// [`Store::num_keys`]; answered by [`StoreReply::Number`].
    NumKeys,
    /// [`Store::list_keys`]; answered by [`StoreReply::Keys`].
    ListKeys,
    /// [`Store::queue_push`]; answered by [`StoreReply::Done`].
    QueuePush {
        /// The queue.
        key: &'a str,
        /// What is appended to it.
        value: &'a [u8],
    },
    /// [`Store::queue_pop`]; answered by [`StoreReply::Value`].
    QueuePop {
        /// The queue.
        key: &'a str,
        /// Whether to wait for a value.
        block: bool,
    },
    /// [`Store::queue_len`]; answered by [`StoreReply::Number`].
    QueueLen {
        /// The queue.
        key: &'a str,
    },
    /// [`Store::barrier`]; answered by [`StoreReply::Done`].
    Barrier {
        /// The barrier.
        key: &'a str,
        /// How many come.
        world_size: u32,
        /// The limit, the store's own where there is none.
        timeout: Option<Duration>,
    },
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// It is done.
    Done,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(i64),
    /// A value.
    Value(Vec<u8>),
    /// Values, by the keys of the request.
    Values(Vec<Vec<u8>>),
    /// Names of keys.
    Keys(Vec<String>),
}

/// The answer to a request, when it is there.
pub type StoreFuture<'a> = Pin<Box<dyn Future<Output = Result<StoreReply>> + Send + 'a>>;

/// Runs `request` through the store's blocking methods.
pub(super) fn perform<S: Store + ?Sized>(
    store: &S,
    request: StoreRequest<'_>,
) -> Result<StoreReply> {
    use StoreReply::{Done, Flag, Keys, Number, Value, Values};
    let done = |()| Done;
    match request {
        StoreRequest::Set { key, value } => store.set(key, value).map(done),
        StoreRequest::Get { key } => store.get(key).map(Value),
        StoreRequest::Add { key, amount } => store.add(key, amount).map(Number),
        StoreRequest::Append { key, value } => store.append(key, value).map(done),
        StoreRequest::Check { keys } => store.check(keys).map(Flag),
        StoreRequest::CompareSet { key, expected, desired } => {
            store.compare_set(key, expected, desired).map(Value)
        }
        StoreRequest::DeleteKey { key } => store.delete_key(key).map(Flag),
        StoreRequest::Wait { keys, timeout } => store.wait(keys, timeout).map(done),
        StoreRequest::MultiGet { keys } => store.multi_get(keys).map(Values),
        StoreRequest::MultiSet { keys, values } => store.multi_set(keys, values).map(done),
        StoreRequest::NumKeys => store.num_keys().map(Number),
        StoreRequest::ListKeys => store.list_keys().map(Keys),
        StoreRequest::QueuePush { key, value } => store.queue_push(key, value).map(done),
        StoreRequest::QueuePop { key, block } => store.queue_pop(key, block).map(Value),
        StoreRequest::QueueLen { key } => store.queue_len(key).map(Number),
        StoreRequest::Barrier { key, world_size, timeout } => {
            store.barrier(key, world_size, timeout).map(done)
        }
    }
}

impl<'a> StoreRequest<'a> {
    /// The key of a request for one.
    pub fn key(&self) -> Option<&'a str> {
        use StoreRequest::*;
        match *self {
            Set { key, .. } | Get { key } | Add { key, .. } | Append { key, .. } => Some(key),
            CompareSet { key, .. } | DeleteKey { key } | Barrier { key, .. } => Some(key),
            QueuePush { key, .. } | QueuePop { key, .. } | QueueLen { key } => Some(key),
            Check { .. } | Wait { .. } | MultiGet { .. } | MultiSet { .. } => None,
            NumKeys | ListKeys => None,
        }
    }

    /// The keys of a request for several.
    pub fn keys(&self) -> Option<&'a [&'a str]> {
        use StoreRequest::*;
        match *self {
            Check { keys } | Wait { keys, .. } => Some(keys),
            MultiGet { keys } | MultiSet { keys, .. } => Some(keys),
            _ => None,
        }
    }

    /// This request for another key, if it is for one.
    pub fn with_key<'b>(self, other: &'b str) -> StoreRequest<'b>
    where
        'a: 'b,
    {
        use StoreRequest::*;
        let mut request: StoreRequest<'b> = self;
        match &mut request {
            Set { key, .. } | Get { key } | Add { key, .. } | Append { key, .. } => *key = other,
            CompareSet { key, .. } | DeleteKey { key } | Barrier { key, .. } => *key = other,
            QueuePush { key, .. } | QueuePop { key, .. } | QueueLen { key } => *key = other,
            Check { .. } | Wait { .. } | MultiGet { .. } | MultiSet { .. } => {}
            NumKeys | ListKeys => {}
        }
        request
    }

    /// This request for as many other keys, if it is for several.
    pub fn with_keys<'b>(self, others: &'b [&'b str]) -> StoreRequest<'b>
    where
        'a: 'b,
    {
        use StoreRequest::*;
        let mut request: StoreRequest<'b> = self;
        match &mut request {
            Check { keys } | Wait { keys, .. } => *keys = others,
            MultiGet { keys } | MultiSet { keys, .. } => *keys = others,
            _ => {}
        }
        request
    }
}

/// The methods of [`Store`] as futures.
impl<'s> dyn Store + 's {
    /// As [`Store::set`].
    ///
    /// # Errors
    /// As [`Store::set`]; so do the others.
    pub async fn set_async(&self, key: &str, value: &[u8]) -> Result<()> {
        self.request(StoreRequest::Set { key, value }).await?.done()
    }

    /// As [`Store::get`].
    pub async fn get_async(&self, key: &str) -> Result<Vec<u8>> {
        self.request(StoreRequest::Get { key }).await?.value()
    }

    /// As [`Store::add`].
    pub async fn add_async(&self, key: &str, amount: i64) -> Result<i64> {
        self.request(StoreRequest::Add { key, amount }).await?.number()
    }

    /// As [`Store::append`].
    pub async fn append_async(&self, key: &str, value: &[u8]) -> Result<()> {
        self.request(StoreRequest::Append { key, value }).await?.done()
    }

    /// As [`Store::check`].
    pub async fn check_async(&self, keys: &[&str]) -> Result<bool> {
        self.request(StoreRequest::Check { keys }).await?.flag()
    }

    /// As [`Store::compare_set`].
    pub async fn compare_set_async(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>> {
        self.request(StoreRequest::CompareSet { key, expected, desired }).await?.value()
    }

    /// As [`Store::delete_key`].
    pub async fn delete_key_async(&self, key: &str) -> Result<bool> {
        self.request(StoreRequest::DeleteKey { key }).await?.flag()
    }

    /// As [`Store::wait`].
    pub async fn wait_async(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        self.request(StoreRequest::Wait { keys, timeout }).await?.done()
    }

    /// As [`Store::multi_get`].
    pub async fn multi_get_async(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
        self.request(StoreRequest::MultiGet { keys }).await?.values()
    }

    /// As [`Store::multi_set`].
    pub async fn multi_set_async(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
        self.request(StoreRequest::MultiSet { keys, values }).await?.done()
    }

    /// As [`Store::num_keys`].
    pub async fn num_keys_async(&self) -> Result<i64> {
        self.request(StoreRequest::NumKeys).await?.number()
    }

    /// As [`Store::list_keys`].
    pub async fn list_keys_async(&self) -> Result<Vec<String>> {
        self.request(StoreRequest::ListKeys).await?.keys()
    }

    /// As [`Store::queue_push`].
    pub async fn queue_push_async(&self, key: &str, value: &[u8]) -> Result<()> {
        self.request(StoreRequest::QueuePush { key, value }).await?.done()
    }

    /// As [`Store::queue_pop`].
    pub async fn queue_pop_async(&self, key: &str, block: bool) -> Result<Vec<u8>> {
        self.request(StoreRequest::QueuePop { key, block }).await?.value()
    }

    /// As [`Store::queue_len`].
    pub async fn queue_len_async(&self, key: &str) -> Result<i64> {
        self.request(StoreRequest::QueueLen { key }).await?.number()
    }

    /// As [`Store::clone_store`].
    pub async fn clone_store_async(&self) -> Result<Arc<dyn Store>> {
        match self.share() {
            Some(store) => unblock(move || store.clone_store()).await,
            None => self.clone_store(),
        }
    }

    /// As [`Store::reopen`].
    pub(crate) async fn reopen_async(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        match self.share() {
            Some(store) => unblock(move || store.reopen(limit)).await,
            None => self.reopen(limit),
        }
    }

    /// As [`Store::barrier`].
    pub async fn barrier_async(
        &self,
        key: &str,
        world_size: u32,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.request(StoreRequest::Barrier { key, world_size, timeout }).await?.done()
    }
}

impl StoreReply {
    /// That it is done.
    ///
    /// # Errors
    /// [`Error::Store`] if it is the answer to another kind of request; so do the others.
    pub fn done(self) -> Result<()> {
        if self == StoreReply::Done { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Yes or no.
    pub fn flag(self) -> Result<bool> {
        if let StoreReply::Flag(flag) = self { Ok(flag) } else { Err(self.unexpected()) }
    }

    /// The number.
    pub fn number(self) -> Result<i64> {
        if let StoreReply::Number(number) = self { Ok(number) } else { Err(self.unexpected()) }
    }

    /// The value.
    pub fn value(self) -> Result<Vec<u8>> {
        if let StoreReply::Value(value) = self { Ok(value) } else { Err(self.unexpected()) }
    }

    /// The values.
    pub fn values(self) -> Result<Vec<Vec<u8>>> {
        if let StoreReply::Values(values) = self { Ok(values) } else { Err(self.unexpected()) }
    }

    /// The names of keys.
    pub fn keys(self) -> Result<Vec<String>> {
        if let StoreReply::Keys(keys) = self { Ok(keys) } else { Err(self.unexpected()) }
    }

    /// The error of a store that answers what it was not asked.
    fn unexpected(&self) -> Error {
        let kind = match self {
            StoreReply::Done => "that it is done",
            StoreReply::Flag(_) => "yes or no",
            StoreReply::Number(_) => "a number",
            StoreReply::Value(_) => "a value",
            StoreReply::Values(_) => "values",
            StoreReply::Keys(_) => "names of keys",
        };
        Error::Store {
            message: format!("the store answered {kind}, which does not fit the request"),
        }
    }
}
