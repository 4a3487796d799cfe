//! A store's requests as TCPStore requests, and the replies read back. Pure; knows nothing of how
//! they travel.

use crate::generated::error::{Error, Result};
use crate::store::deadline::WaitError;
use crate::store::protocol::{Encode, Kind, PREFIX, READY, WORKERS, check_keys, check_value};
use crate::store::{Deadline, StoreReply, StoreRequest, equal_lengths, expired};

/// The bytes of `request`.
///
/// # Errors
/// [`Error::InvalidArgument`] if a server would not take them.
pub(super) fn encode(request: &StoreRequest<'_>) -> Result<Vec<u8>> {
    use StoreRequest::*;
    request.keys().map_or(Ok(()), check_keys)?;
    request.key().map_or(Ok(()), |key| check_keys(&[key]))?;
    let mut bytes = Vec::new();
    match *request {
        Set { key, value } => put(&mut bytes, Kind::Set, key, value)?,
        Append { key, value } => put(&mut bytes, Kind::Append, key, value)?,
        QueuePush { key, value } => put(&mut bytes, Kind::QueuePush, key, value)?,
        Get { key } => {
            wait(&mut bytes, &[key]);
            one_key(&mut bytes, Kind::Get, key);
        }
        Add { key, amount } => {
            one_key(&mut bytes, Kind::Add, key);
            bytes.number(amount);
        }
        Check { keys } => {
            bytes.kind(Kind::Check);
            bytes.keys(PREFIX, keys);
        }
        CompareSet { key, expected, desired } => {
            check_value(expected)?;
            check_value(desired)?;
            one_key(&mut bytes, Kind::CompareSet, key);
            bytes.blob(&[expected]);
            bytes.blob(&[desired]);
        }
        DeleteKey { key } => one_key(&mut bytes, Kind::DeleteKey, key),
        Wait { keys, .. } => wait(&mut bytes, keys),
        MultiGet { keys } => {
            wait(&mut bytes, keys);
            bytes.kind(Kind::MultiGet);
            bytes.keys(PREFIX, keys);
        }
        MultiSet { keys, values } => {
            equal_lengths(keys, values)?;
            bytes.kind(Kind::MultiSet);
            bytes.number(keys.len() as i64);
            for (key, value) in keys.iter().zip(values) {
                check_value(value)?;
                bytes.blob(&[PREFIX, key.as_bytes()]);
                bytes.blob(&[value]);
            }
        }
        NumKeys => {
            bytes.kind(Kind::Check);
            bytes.keys(&[], &[WORKERS]);
            bytes.kind(Kind::NumKeys);
        }
        ListKeys => bytes.kind(Kind::ListKeys),
        QueuePop { key, block } => {
            if block {
                wait(&mut bytes, &[key]);
            }
            one_key(&mut bytes, Kind::QueuePop, key);
        }
        QueueLen { key } => one_key(&mut bytes, Kind::QueueLen, key),
        Barrier { key, world_size, .. } => {
            one_key(&mut bytes, Kind::Barrier, key);
            bytes.number(i64::from(world_size));
        }
    }
    Ok(bytes)
}

/// The reply to `request` in `bytes`; `None` if it must be asked again: another client took the
/// queue's element first.
///
/// # Errors
/// [`Error::QueueEmpty`] if that is the reply; [`Error::Network`] if the bytes are none.
pub(super) fn decode(request: &StoreRequest<'_>, bytes: &[u8]) -> Result<Option<StoreReply>> {
    let mut reader = Reader(bytes);
    let reply = read(request, &mut reader).filter(|_| reader.0.is_empty());
    match (reply, request) {
        (Some(Reply::Complete(reply)), _) => Ok(Some(reply)),
        (Some(Reply::Empty), StoreRequest::QueuePop { block: true, .. }) => Ok(None),
        (Some(Reply::Empty), _) => Err(Error::QueueEmpty),
        (None, _) => Err(Error::Network {
            message: format!("the store sent {} bytes that answer no such request", bytes.len()),
        }),
    }
}

/// What the error messages call `request`.
pub(super) fn name(request: &StoreRequest<'_>) -> &'static str {
    match request {
        StoreRequest::Set { .. } => "set",
        StoreRequest::Append { .. } => "append",
        StoreRequest::QueuePush { .. } => "queue_push",
        StoreRequest::Add { .. } => "add",
        StoreRequest::Check { .. } => "check",
        StoreRequest::CompareSet { .. } => "compare_set",
        StoreRequest::DeleteKey { .. } => "delete_key",
        StoreRequest::MultiSet { .. } => "multi_set",
        StoreRequest::NumKeys => "num_keys",
        StoreRequest::ListKeys => "list_keys",
        StoreRequest::QueueLen { .. } => "queue_len",
        StoreRequest::Barrier { .. } => "barrier",
        // As PyTorch's clients have it: what gives up is the wait inside.
        StoreRequest::Get { .. }
        | StoreRequest::MultiGet { .. }
        | StoreRequest::QueuePop { .. }
        | StoreRequest::Wait { .. } => "wait",
    }
}

enum Reply {
    Complete(StoreReply),
    /// The queue has no element.
    Empty,
}

fn read(request: &StoreRequest<'_>, reader: &mut Reader<'_>) -> Option<Reply> {
    use StoreRequest::*;
    Some(Reply::Complete(match *request {
        Set { .. } | Append { .. } | QueuePush { .. } | MultiSet { .. } => StoreReply::Done,
        Get { .. } => {
            reader.byte()?;
            StoreReply::Value(reader.blob()?.to_vec())
        }
        CompareSet { .. } => StoreReply::Value(reader.blob()?.to_vec()),
        Add { .. } | QueueLen { .. } => StoreReply::Number(reader.number()?),
        Check { .. } => StoreReply::Flag(reader.byte()? == READY),
        DeleteKey { .. } => StoreReply::Flag(reader.number()? > 0),
        Wait { .. } | Barrier { .. } => {
            reader.byte()?;
            StoreReply::Done
        }
        MultiGet { keys } => {
            reader.byte()?;
            let values = keys.iter().map(|_| reader.blob().map(<[u8]>::to_vec));
            StoreReply::Values(values.collect::<Option<_>>()?)
        }
        NumKeys => {
            let counted_workers = reader.byte()? == READY;
            StoreReply::Number(reader.number()? - i64::from(counted_workers))
        }
        ListKeys => {
            let mut keys = Vec::new();
            for _ in 0..reader.number()? {
                if let Some(key) = reader.blob()?.strip_prefix(PREFIX) {
                    keys.push(String::from_utf8_lossy(key).into_owned());
                }
            }
            StoreReply::Keys(keys)
        }
        QueuePop { block, .. } => {
            if block {
                reader.byte()?;
            }
            if reader.number()? == 0 {
                return Some(Reply::Empty);
            }
            StoreReply::Value(reader.blob()?.to_vec())
        }
    }))
}

fn wait(bytes: &mut Vec<u8>, keys: &[&str]) {
    bytes.kind(Kind::Wait);
    bytes.keys(PREFIX, keys);
}

fn one_key(bytes: &mut Vec<u8>, kind: Kind, key: &str) {
    bytes.kind(kind);
    bytes.blob(&[PREFIX, key.as_bytes()]);
}

fn put(bytes: &mut Vec<u8>, kind: Kind, key: &str, value: &[u8]) -> Result<()> {
    check_value(value)?;
    bytes.reserve(32 + key.len() + value.len());
    one_key(bytes, kind, key);
    bytes.blob(&[value]);
    Ok(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::try_from(self.number()?).ok()?;
        let (blob, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(blob)
    }
}

/// The error of a request that stopped waiting.
pub(super) fn gave_up(why: WaitError, request: &StoreRequest<'_>, deadline: &Deadline) -> Error {
    let name = name(request);
    let mut keys: Vec<String> = match (request.keys(), request.key()) {
        (Some(keys), _) => keys.iter().map(|key| (*key).to_owned()).collect(),
        (None, Some(key)) => vec![key.to_owned()],
        (None, None) => Vec::new(),
    };
    if name == "wait" {
        // As the keys are in the store, and in PyTorch's messages.
        keys.iter_mut().for_each(|key| key.insert(0, '/'));
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    expired(why, name, &keys, deadline)
}
