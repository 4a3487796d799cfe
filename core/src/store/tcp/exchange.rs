//! Single exchanges of a TCPStore client: requests in one write, then their replies. Knows how
//! PyTorch's clients cancel a wait; knows nothing of timeouts' defaults, locks or reconnecting.

use std::time::Duration;

use super::connection::{Connection, Fault};
use crate::store::Deadline;
use crate::store::deadline::Expired;
use crate::store::protocol::{Encode, Kind, PREFIX, READY, STOP_WAITING, WAIT_CANCELED};

/// How long a server may take to confirm that a wait is cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// A wait that ended: because the keys came, or because it was cancelled.
pub(super) type Waited = std::result::Result<(), Expired>;

/// Sends WAIT and GET together, which saves a round trip whenever the key is there.
///
/// The server answers GET at once, with an empty value if the key is missing. So nine zero bytes
/// are either an empty value, or the answer of a GET that came too early and then the end of the
/// wait; in both cases the key is there by now, and is asked for again.
pub(super) fn get_at_once(
    connection: &mut Connection,
    key: &str,
    deadline: &Deadline,
) -> Result<std::result::Result<Vec<u8>, Expired>, Fault> {
    connection.request.kind(Kind::Wait);
    connection.request.keys(PREFIX, &[key]);
    connection.request.kind(Kind::Get);
    connection.request.blob(&[PREFIX, key.as_bytes()]);
    connection.send(&[], deadline)?;
    match connection.array::<9>(deadline) {
        Ok([STOP_WAITING, length @ ..]) => match u64::from_le_bytes(length) {
            0 => plain_get(connection, key, deadline).map(Ok),
            bytes => connection.bytes(bytes, deadline).map(Ok),
        },
        Ok([other, ..]) => Err(unexpected(other)),
        Err(Fault::Expired(why)) => cancel_get(connection).map(|()| Err(why)),
        Err(fault) => Err(fault),
    }
}

/// Takes back a WAIT and a GET that were sent together.
fn cancel_get(connection: &mut Connection) -> Result<(), Fault> {
    let grace = Deadline::uninterrupted(CANCEL_GRACE);
    connection.request.kind(Kind::CancelWait);
    let read = connection.send(&[], &grace).and_then(|()| {
        let [first, length @ ..] = connection.array::<9>(&grace)?;
        // GET's empty answer, and the cancellation's.
        if [first] == [0] && length == [0, 0, 0, 0, 0, 0, 0, WAIT_CANCELED] {
            return Ok(());
        }
        // Otherwise the wait ended as well, before or after GET was answered.
        connection.bytes(u64::from_le_bytes(length), &grace)?;
        match connection.array(&grace)? {
            [WAIT_CANCELED] => Ok(()),
            [other] => Err(unexpected(other)),
        }
    });
    read.map_err(not_cancelled)
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
) -> Result<Waited, Fault> {
    connection.request.kind(Kind::Wait);
    connection.request.keys(PREFIX, keys);
    stop_waiting(connection, deadline)
}

/// Sends the request and waits for STOP_WAITING; cancels when the deadline passes.
pub(super) fn stop_waiting(
    connection: &mut Connection,
    deadline: &Deadline,
) -> Result<Waited, Fault> {
    connection.send(&[], deadline)?;
    match connection.array(deadline) {
        Ok([STOP_WAITING]) => Ok(Ok(())),
        Ok([other]) => Err(unexpected(other)),
        Err(Fault::Expired(why)) => cancel(connection).map(|()| Err(why)),
        Err(fault) => Err(fault),
    }
}

fn cancel(connection: &mut Connection) -> Result<(), Fault> {
    let grace = Deadline::uninterrupted(CANCEL_GRACE);
    connection.request.kind(Kind::CancelWait);
    let read = connection.send(&[], &grace).and_then(|()| match connection.array(&grace)? {
        [WAIT_CANCELED] => Ok(()),
        // The end of the wait had crossed the cancellation.
        [STOP_WAITING] => match connection.array(&grace)? {
            [WAIT_CANCELED] => Ok(()),
            [other] => Err(unexpected(other)),
        },
        [other] => Err(unexpected(other)),
    });
    read.map_err(not_cancelled)
}

fn not_cancelled(fault: Fault) -> Fault {
    match fault {
        Fault::Expired(_) => Fault::Closed("The server no longer answers".into()),
        other => other,
    }
}

fn unexpected(byte: u8) -> Fault {
    Fault::Malformed(format!("The server sent {byte:#04x} where the end of a wait was expected"))
}
