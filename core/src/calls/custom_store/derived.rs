//! Requests that are made of others, where an object has no method for them. Knows no objects.

use std::time::Duration;

use super::{ForeignStore, Limit};
use crate::blocking::sleep;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::store::{StoreReply, StoreRequest, equal_lengths};

/// How often keys are asked for, where an object cannot wait itself.
const INTERVAL: Duration = Duration::from_millis(5);

/// What a method is made of.
pub(super) fn made_of(method: &str) -> &'static [&'static str] {
    match method {
        "wait" => &["check"],
        "multi_get" => &["get", "wait", "check"],
        "multi_set" => &["set"],
        "num_keys" => &["list_keys"],
        "barrier" => &["add", "set", "wait", "check"],
        _ => &[],
    }
}

/// The answer to a request for which the object has no method.
pub(super) async fn derive(
    store: &ForeignStore,
    method: &'static str,
    request: StoreRequest<'_>,
    limit: Limit,
) -> Result<StoreReply> {
    match request {
        StoreRequest::Wait { keys, .. } => wait(store, method, keys, limit).await?,
        StoreRequest::MultiGet { keys } => {
            ask(store, method, StoreRequest::Wait { keys, timeout: None }, limit).await?;
            let mut values = Vec::new();
            for &key in keys {
                let value = ask(store, method, StoreRequest::Get { key }, limit).await?;
                values.push(value.value()?);
            }
            return Ok(StoreReply::Values(values));
        }
        StoreRequest::MultiSet { keys, values } => {
            equal_lengths(keys, values)?;
            for (&key, &value) in keys.iter().zip(values) {
                ask(store, method, StoreRequest::Set { key, value }, limit).await?;
            }
        }
        StoreRequest::NumKeys => {
            let keys = ask(store, method, StoreRequest::ListKeys, limit).await?.keys()?;
            return Ok(StoreReply::Number(i64::try_from(keys.len()).unwrap_or(i64::MAX)));
        }
        StoreRequest::Barrier { key, world_size, .. } => {
            // As `Store::barrier`: everyone counts, the last one opens it.
            let opened = format!("{key}/last_member");
            let members = format!("{key}/num_members");
            let count = StoreRequest::Add { key: &members, amount: 1 };
            if ask(store, method, count, limit).await?.number()? >= i64::from(world_size) {
                let open = StoreRequest::Set { key: &opened, value: b"1" };
                ask(store, method, open, limit).await?;
            } else {
                let keys: &[&str] = &[&opened];
                let came = StoreRequest::Wait { keys, timeout: None };
                let came = ask(store, method, came, limit).await;
                came.map_err(|error| of_whole(error, method, key.to_owned(), limit))?;
            }
        }
        _ => return Err(store.lacking(method)),
    }
    Ok(StoreReply::Done)
}

/// Asks again and again whether the keys are there.
async fn wait(store: &ForeignStore, method: &str, keys: &[&str], limit: Limit) -> Result<()> {
    let whole = |error| of_whole(error, method, keys.join(", "), limit);
    loop {
        let check = StoreRequest::Check { keys };
        if ask(store, method, check, limit).await.map_err(whole)?.flag()? {
            return Ok(());
        }
        if limit.until <= Instant::now() {
            return Err(limit.expired(method, keys.join(", ")));
        }
        sleep(INTERVAL).await?;
    }
}

/// The answer to a part of a request, within the limit of the whole.
async fn ask(
    store: &ForeignStore,
    whole: &str,
    part: StoreRequest<'_>,
    limit: Limit,
) -> Result<StoreReply> {
    store.answer(part, limit).await.map_err(|error| match error {
        // Of the method that was called, rather than of one that nobody knows of.
        Error::Unsupported { who, operation } => {
            let whole = super::camel_case(whole);
            Error::Unsupported { who, operation: format!("{whole}, which needs {operation}") }
        }
        other => other,
    })
}

/// The error of a request from that of a part of it.
fn of_whole(error: Error, method: &str, keys: String, limit: Limit) -> Error {
    match error {
        Error::StoreTimeout { .. } => limit.expired(method, keys),
        other => other,
    }
}
