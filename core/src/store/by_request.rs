//! The methods of a store that answers each of them as a request, through its `ask`. Knows no
//! particular store.

use super::StoreReply;
use crate::clock::CAN_BLOCK;
use crate::generated::error::{Error, Result};

/// What `ask` answers. Where no thread may wait, as in a browser, that is an error, and nothing of
/// what would ask is in the program.
#[inline(always)]
pub(super) fn answer(ask: impl FnOnce() -> Result<StoreReply>) -> Result<StoreReply> {
    if CAN_BLOCK { ask() } else { Err(cannot_block()) }
}

/// The error of a call that blocks, where none can.
#[cold]
pub(super) fn cannot_block() -> Error {
    let operation = "calls of a store that block; the forms whose names end in `_async` do not";
    Error::Unsupported { who: "a browser".into(), operation: operation.into() }
}

/// Asks a store within [`answer`].
macro_rules! ask {
    ($store:ident, $request:expr) => {
        $crate::store::by_request::answer(|| $store.ask($request))
    };
}

/// Writes, in an `impl Store`, every method that is a request, by `self.ask(request)`.
macro_rules! methods_by_request {
    () => {
        fn set(&self, key: &str, value: &[u8]) -> Result<()> {
            ask!(self, StoreRequest::Set { key, value })?.done()
        }

        fn get(&self, key: &str) -> Result<Vec<u8>> {
            ask!(self, StoreRequest::Get { key })?.value()
        }

        fn add(&self, key: &str, amount: i64) -> Result<i64> {
            ask!(self, StoreRequest::Add { key, amount })?.number()
        }

        fn append(&self, key: &str, value: &[u8]) -> Result<()> {
            ask!(self, StoreRequest::Append { key, value })?.done()
        }

        fn check(&self, keys: &[&str]) -> Result<bool> {
            ask!(self, StoreRequest::Check { keys })?.flag()
        }

        fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
            ask!(self, StoreRequest::CompareSet { key, expected, desired })?.value()
        }

        fn delete_key(&self, key: &str) -> Result<bool> {
            ask!(self, StoreRequest::DeleteKey { key })?.flag()
        }

        fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
            ask!(self, StoreRequest::Wait { keys, timeout })?.done()
        }

        fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
            ask!(self, StoreRequest::MultiGet { keys })?.values()
        }

        fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
            ask!(self, StoreRequest::MultiSet { keys, values })?.done()
        }

        fn num_keys(&self) -> Result<i64> {
            ask!(self, StoreRequest::NumKeys)?.number()
        }

        fn list_keys(&self) -> Result<Vec<String>> {
            ask!(self, StoreRequest::ListKeys)?.keys()
        }

        fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
            ask!(self, StoreRequest::QueuePush { key, value })?.done()
        }

        fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
            ask!(self, StoreRequest::QueuePop { key, block })?.value()
        }

        fn queue_len(&self, key: &str) -> Result<i64> {
            ask!(self, StoreRequest::QueueLen { key })?.number()
        }

        fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
            ask!(self, StoreRequest::Barrier { key, world_size, timeout })?.done()
        }
    };
}
