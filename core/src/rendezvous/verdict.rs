//! What ranks agree on when they meet, as it stands in the store: that all came, or why not. Knows
//! neither keys nor who is waited for.

use crate::generated::error::Error;

/// What no verdict is.
pub(super) const UNDECIDED: &[u8] = b"undecided";
/// The verdict when all came.
pub(super) const JOINED: &[u8] = b"joined";
/// The kind of a [`verdict_of`]: ranks did not come in time. A `TimeoutVerdict` follows.
pub(super) const TIMED_OUT: u8 = b't';
/// The kind of a [`verdict_of`]: a mistake.
pub(super) const MISTAKE: u8 = b'm';
/// The verdict when a rank of the group is gone and has joined again, as a member of another one.
pub(super) const SUPERSEDED: &[u8] = b"superseded";
/// The kind of a [`verdict_of`]: a rank cannot join, and said why.
pub(super) const REFUSED: u8 = b'r';
/// How much of what no rank wrote an error quotes.
const QUOTED_BYTES: usize = 64;

/// The error for a `value` under `key` that no rank wrote.
pub(super) fn not_of_ranks(key: &str, expected: &str, value: &[u8]) -> Error {
    let start = value[..value.len().min(QUOTED_BYTES)].escape_ascii();
    let message = format!(
        "the store has \"{start}\" under '{key}', where {expected} was expected, which no rank \
         wrote: a store returns what was set, and nobody else writes there"
    );
    Error::Rendezvous { message }
}

/// The verdict of this kind, with what there is to say.
pub(super) fn verdict_of(kind: u8, message: &str) -> Vec<u8> {
    [&[kind, b':'], message.as_bytes()].concat()
}

/// What [`verdict_of`] wrote, if it did.
pub(super) fn kind_and_message(verdict: &[u8]) -> Option<(u8, String)> {
    let [kind @ (TIMED_OUT | MISTAKE | REFUSED), b':', message @ ..] = verdict else { return None };
    Some((*kind, String::from_utf8_lossy(message).into_owned()))
}
