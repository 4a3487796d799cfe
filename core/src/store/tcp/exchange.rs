//! Single exchanges of a TCPStore client: requests in one write, then their replies. Knows how
//! PyTorch's clients cancel a wait; knows nothing of timeouts' defaults, locks or reconnecting.

use std::time::Duration;

use super::connect;
use super::connection::{Connection, Fault, OwedReplies};
use crate::store::Deadline;
use crate::store::awaited_keys::{self, Finding};
use crate::store::deadline::WaitError;
use crate::store::protocol::{Encode, Kind, PREFIX, READY, STOP_WAITING, WAIT_CANCELED};
use crate::store::url::host_and_port;

/// How long the confirmation that a wait is cancelled is waited for: the caller is not to wait
/// longer than it may. A server that takes longer owes it; the next request reads it first.
const CANCEL_GRACE: Duration = Duration::from_millis(200);

/// How long a look at what is missing may take: it delays nothing but the answer of a server that
/// is silent anyway.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Most keys that are asked for then.
const MAX_ASKED: usize = 1024;

/// A wait that ended: because the keys came, or because it was cancelled.
pub(super) type WaitResult = std::result::Result<(), WaitError>;

/// Sends WAIT and GET together, which saves a round trip whenever the key is there.
///
/// The server answers GET immediately, with an empty value if the key is missing. So nine zero
/// bytes are either an empty value, or the answer of a GET that came too early and then the end of
/// the wait; in both cases the key is there by now, and is asked for again.
pub(super) fn get_at_once(
    connection: &mut Connection,
    key: &str,
    deadline: &Deadline,
) -> Result<std::result::Result<Vec<u8>, WaitError>, Fault> {
    connection.request.kind(Kind::Wait);
    connection.request.keys(PREFIX, &[key]);
    connection.request.kind(Kind::Get);
    connection.request.blob(&[PREFIX, key.as_bytes()]);
    connection.send(&[], deadline)?;
    match patiently::<9>(connection, &[key], deadline) {
        Ok([STOP_WAITING, length @ ..]) => match u64::from_le_bytes(length) {
            0 => plain_get(connection, key, deadline).map(Ok),
            bytes => connection.bytes(bytes, deadline).map(Ok),
        },
        Ok([other, ..]) => Err(unexpected(other)),
        Err(Fault::Expired(why)) => {
            cancel(connection, OwedReplies::CancellationOfGet).map(|()| Err(why))
        }
        Err(fault) => Err(fault),
    }
}

/// The value of a key that is there.
pub(super) fn plain_get(
    connection: &mut Connection,
    key: &str,
    deadline: &Deadline,
) -> Result<Vec<u8>, Fault> {
    connection.request.kind(Kind::Get);
    connection.request.blob(&[PREFIX, key.as_bytes()]);
    connection.send(&[], deadline)?;
    connection.blob(deadline)
}

/// The value at `wire_key`, without waiting for it.
pub(super) fn stored(
    connection: &mut Connection,
    wire_key: &[&[u8]],
    deadline: &Deadline,
) -> Result<Option<Vec<u8>>, Fault> {
    connection.request.kind(Kind::Check);
    connection.request.number(1);
    connection.request.blob(wire_key);
    connection.send(&[], deadline)?;
    if connection.array(deadline)? != [READY] {
        return Ok(None);
    }
    connection.request.kind(Kind::Get);
    connection.request.blob(wire_key);
    connection.send(&[], deadline)?;
    connection.blob(deadline).map(Some)
}

/// Takes the first element of a queue, without waiting for one.
pub(super) fn pop(
    connection: &mut Connection,
    key: &str,
    deadline: &Deadline,
) -> Result<Option<Vec<u8>>, Fault> {
    connection.request.kind(Kind::QueuePop);
    connection.request.blob(&[PREFIX, key.as_bytes()]);
    connection.send(&[], deadline)?;
    if connection.number(deadline)? > 0 { connection.blob(deadline).map(Some) } else { Ok(None) }
}

/// Waits until all keys are there.
pub(super) fn wait(
    connection: &mut Connection,
    keys: &[&str],
    deadline: &Deadline,
) -> Result<WaitResult, Fault> {
    connection.request.kind(Kind::Wait);
    connection.request.keys(PREFIX, keys);
    stop_waiting(connection, keys, deadline)
}

/// Sends the request, which is to wait for `keys` or at a barrier, and waits for STOP_WAITING;
/// cancels when the deadline passes.
pub(super) fn stop_waiting(
    connection: &mut Connection,
    keys: &[&str],
    deadline: &Deadline,
) -> Result<WaitResult, Fault> {
    connection.send(&[], deadline)?;
    match patiently(connection, keys, deadline) {
        Ok([STOP_WAITING]) => Ok(Ok(())),
        Ok([other]) => Err(unexpected(other)),
        Err(Fault::Expired(why)) => {
            cancel(connection, OwedReplies::Cancellation).map(|()| Err(why))
        }
        Err(fault) => Err(fault),
    }
}

/// The next `N` bytes, which the server sends as soon as what is waited for has come. Says what is
/// missing when that lasts.
fn patiently<const N: usize>(
    connection: &mut Connection,
    keys: &[&str],
    deadline: &Deadline,
) -> Result<[u8; N], Fault> {
    connection.await_bytes_patiently(N, deadline, &mut |server| {
        let store = || format!("the store at {server}");
        awaited_keys::look(store, || find(server, keys, deadline));
    })?;
    connection.array(deadline)
}

/// Which of `keys` have not come, as another connection to the server tells, in a part of the time
/// that is left.
fn find(server: &str, keys: &[&str], deadline: &Deadline) -> Finding {
    let left = deadline.remaining().map_or(LOOK_LIMIT, |left| left.min(LOOK_LIMIT));
    let limit = Deadline::uninterrupted(left.max(Duration::from_millis(1)));
    let (host, port) = host_and_port(server);
    let Some(port) = port.and_then(|port| port.parse().ok()) else { return Finding::Nothing };
    let mut connection = match connect::attempt(host, port, &limit, None) {
        Ok(connection) => connection,
        // Whoever has less time does not know.
        Err(Fault::Expired(_)) if left == LOOK_LIMIT => return Finding::Silence,
        Err(_) => return Finding::Nothing,
    };
    let keys = &keys[..keys.len().min(MAX_ASKED)];
    for key in keys {
        connection.request.kind(Kind::Check);
        connection.request.keys(PREFIX, &[key]);
    }
    let mut missing = Vec::new();
    let told = connection.send(&[], &limit).and_then(|()| {
        (0..keys.len()).try_for_each(|at| {
            let is_there = connection.array(&limit)? == [READY];
            missing.extend((!is_there).then_some(at));
            Ok(())
        })
    });
    match told {
        // A slow way, or a busy server: it has answered.
        Err(_) if missing.is_empty() => Finding::Nothing,
        _ => Finding::Missing(missing),
    }
}

/// Takes a WAIT back, whose confirmation the server may owe afterwards.
fn cancel(connection: &mut Connection, owed: OwedReplies) -> Result<(), Fault> {
    let grace = Deadline::uninterrupted(CANCEL_GRACE);
    connection.request.kind(Kind::CancelWait);
    connection.send(&[], &grace)?;
    connection.owed = Some(owed);
    settle(connection, &grace).map(drop)
}

/// Reads what the server owes, if it owes anything. It may be silent still: it owes it then.
pub(super) fn settle(
    connection: &mut Connection,
    deadline: &Deadline,
) -> Result<WaitResult, Fault> {
    let Some(owed) = connection.owed else { return Ok(Ok(())) };
    let wanted_bytes = match owed {
        OwedReplies::Cancellation => 1,
        OwedReplies::CancellationOfGet => 9,
    };
    match connection.await_bytes(wanted_bytes, deadline) {
        Ok(()) => {}
        Err(Fault::Expired(why)) => return Ok(Err(why)),
        Err(fault) => return Err(fault),
    }
    match owed {
        OwedReplies::Cancellation => read_cancellation(connection, deadline)?,
        OwedReplies::CancellationOfGet => {
            let [first, length @ ..] = connection.array::<9>(deadline)?;
            // GET's empty answer, and the cancellation's. Otherwise the wait ended as well, before
            // or after GET was answered.
            if [first] != [0] || length != [0, 0, 0, 0, 0, 0, 0, WAIT_CANCELED] {
                connection.bytes(u64::from_le_bytes(length), deadline)?;
                match connection.array(deadline)? {
                    [WAIT_CANCELED] => {}
                    [other] => return Err(unexpected(other)),
                }
            }
        }
    }
    connection.owed = None;
    Ok(Ok(()))
}

fn read_cancellation(connection: &mut Connection, deadline: &Deadline) -> Result<(), Fault> {
    match connection.array(deadline)? {
        [WAIT_CANCELED] => Ok(()),
        // The end of the wait had crossed the cancellation.
        [STOP_WAITING] => match connection.array(deadline)? {
            [WAIT_CANCELED] => Ok(()),
            [other] => Err(unexpected(other)),
        },
        [other] => Err(unexpected(other)),
    }
}

fn unexpected(byte: u8) -> Fault {
    Fault::Malformed(format!("The server sent {byte:#04x} where the end of a wait was expected"))
}
