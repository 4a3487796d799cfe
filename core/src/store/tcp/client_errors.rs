//! What the requests of a client fail with, in words. Knows no connection.

use super::open_files;
use crate::generated::error::Error;
use crate::store::deadline::WaitError;
use crate::store::{Deadline, expired};

/// What is said where this process may open no more sockets.
pub(super) fn no_files() -> String {
    format!("Too many open files: no socket can be opened. {}", open_files::advice())
}

/// What a signal's handler, or whatever else interrupts a thread, is told.
pub(super) fn in_the_middle(operation: &str) -> String {
    format!(
        "{operation}: this thread is in the middle of another request on this store, which a \
         signal's handler has interrupted; use another connection there, as clone() makes it"
    )
}

/// The error of an operation that stopped waiting.
pub(super) fn given_up(
    why: WaitError,
    operation: &str,
    keys: &[&str],
    deadline: &Deadline,
) -> Error {
    match operation {
        "wait" => wait_expired(why, keys, deadline),
        _ => expired(why, operation, keys, deadline),
    }
}

pub(super) fn wait_expired(why: WaitError, keys: &[&str], deadline: &Deadline) -> Error {
    let keys: Vec<String> = keys.iter().map(|key| format!("/{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    expired(why, "wait", &keys, deadline)
}
