//! Requests of a task to a store whose methods block: they run on another thread, so that the
//! thread of the task is not held. Knows no particular store.

use std::sync::Arc;

use super::request::perform;
use super::{Store, StoreReply, StoreRequest};
use crate::blocking::{WaitMode, unblock};
use crate::generated::error::Result;
#[cfg(feature = "tcp")]
use crate::stall_report::WaitingCall;

/// Runs `request` through the store's blocking methods: here, if the caller blocks, else on another
/// thread, if the store can be shared with one.
pub(super) async fn run<S: Store + ?Sized>(
    store: &S,
    request: StoreRequest<'_>,
) -> Result<StoreReply> {
    match store.share().filter(|_| WaitMode::current() == WaitMode::Await) {
        Some(store) => {
            let run = detached(store, request);
            #[cfg(feature = "tcp")]
            let run = {
                let call = WaitingCall::present();
                move || WaitingCall::continued(call, run)
            };
            unblock(run).await
        }
        None => perform(store, request),
    }
}

type DetachedRequest = Box<dyn FnOnce() -> Result<StoreReply> + Send>;

/// `request` with all that it names, for another thread.
fn detached(store: Arc<dyn Store>, request: StoreRequest<'_>) -> DetachedRequest {
    use StoreRequest::*;
    if let Some(keys) = request.keys() {
        return detached_for_keys(store, request, keys);
    }
    let key = request.key().unwrap_or_default().to_owned();
    match request {
        Set { value, .. } => {
            let value = value.to_vec();
            Box::new(move || perform(&*store, Set { key: &key, value: &value }))
        }
        Append { value, .. } => {
            let value = value.to_vec();
            Box::new(move || perform(&*store, Append { key: &key, value: &value }))
        }
        QueuePush { value, .. } => {
            let value = value.to_vec();
            Box::new(move || perform(&*store, QueuePush { key: &key, value: &value }))
        }
        CompareSet { expected, desired, .. } => {
            let (expected, desired) = (expected.to_vec(), desired.to_vec());
            Box::new(move || {
                let (expected, desired) = (&*expected, &*desired);
                perform(&*store, CompareSet { key: &key, expected, desired })
            })
        }
        Add { amount, .. } => Box::new(move || perform(&*store, Add { key: &key, amount })),
        QueuePop { block, .. } => Box::new(move || perform(&*store, QueuePop { key: &key, block })),
        Barrier { world_size, timeout, .. } => {
            Box::new(move || perform(&*store, Barrier { key: &key, world_size, timeout }))
        }
        Get { .. } => Box::new(move || perform(&*store, Get { key: &key })),
        DeleteKey { .. } => Box::new(move || perform(&*store, DeleteKey { key: &key })),
        QueueLen { .. } => Box::new(move || perform(&*store, QueueLen { key: &key })),
        NumKeys => Box::new(move || perform(&*store, NumKeys)),
        Check { .. } | Wait { .. } | MultiGet { .. } | MultiSet { .. } | ListKeys => {
            Box::new(move || perform(&*store, ListKeys))
        }
    }
}

fn detached_for_keys(
    store: Arc<dyn Store>,
    request: StoreRequest<'_>,
    keys: &[&str],
) -> DetachedRequest {
    let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
    let values: Vec<Vec<u8>> = match request {
        StoreRequest::MultiSet { values, .. } => values.iter().map(|&it| it.to_vec()).collect(),
        _ => Vec::new(),
    };
    let timeout = match request {
        StoreRequest::Wait { timeout, .. } => timeout,
        _ => None,
    };
    let again: for<'a> fn(&'a [&'a str], &'a [&'a [u8]], _) -> StoreRequest<'a> = match request {
        StoreRequest::Check { .. } => |keys, _, _| StoreRequest::Check { keys },
        StoreRequest::MultiSet { .. } => |keys, values, _| StoreRequest::MultiSet { keys, values },
        StoreRequest::MultiGet { .. } => |keys, _, _| StoreRequest::MultiGet { keys },
        _ => |keys, _, timeout| StoreRequest::Wait { keys, timeout },
    };
    Box::new(move || {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        perform(&*store, again(&keys, &values, timeout))
    })
}
