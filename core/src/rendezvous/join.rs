//! The ranks of a group meet in a store, and all learn whether all came.
//! Knows nothing of how the store was found.
//!
//! Keys, under `polyrank/<group name>/join/`: `world_size`; `<rank>`, how often this rank came;
//! `count`, how many came; `verdict`, set once, which everyone waits for; `told`, how many know of
//! a failure, and `all_told`. A rank costs the store a fixed number of requests.

use std::time::Duration;

use crate::store::Store;
use crate::{Error, Result};

/// The verdict when all came.
const JOINED: &[u8] = b"joined";
/// First byte of a verdict: somebody did not come in time.
const TIMED_OUT: u8 = b't';
/// First byte of a verdict: a mistake.
const MISTAKE: u8 = b'm';
/// How long a rank that failed stays for the others to hear why, as it may host the store.
const LINGER: Duration = Duration::from_secs(2);
/// Most ranks that a message names.
const NAMED_RANKS: usize = 16;

/// Waits until all `world_size` ranks of the group have called this with the same store.
///
/// `group_name` must be new to the store: another group, or the same one again, takes another.
/// A `timeout` of zero is none. The first rank whose time is up decides for all that are there.
///
/// # Errors
/// [`Error::RendezvousTimeout`] naming the ranks that are missing, on every rank that is there;
/// [`Error::Rendezvous`] if a rank came twice or the world sizes differ.
pub fn join(
    store: &dyn Store,
    group_name: &str,
    rank: u32,
    world_size: u32,
    timeout: Duration,
) -> Result<()> {
    super::check_rank(rank, world_size)?;
    let keys = Keys { group_name };
    let verdict = match enter(store, &keys, rank, world_size)? {
        Some(mistake) => decide(store, &keys, &verdict_of(MISTAKE, &mistake))?,
        None => await_verdict(store, &keys, world_size, timeout)?,
    };
    let (kind, message) = match verdict.split_first() {
        _ if verdict == JOINED => return Ok(()),
        Some((kind, message)) => (*kind, String::from_utf8_lossy(message).into_owned()),
        None => (MISTAKE, "the store lost what the ranks agreed on".into()),
    };
    linger(store, &keys);
    Err(match kind {
        TIMED_OUT => Error::RendezvousTimeout { message },
        _ => Error::Rendezvous { message },
    })
}

/// Tells the others that `rank` is done with the store; who hosts it (`hosting`) waits up to
/// `timeout` until all have said so, since the store ends with its process.
///
/// # Errors
/// [`Error::StoreTimeout`] if others are still there; the host may go all the same.
pub fn leave(
    store: &dyn Store,
    group_name: &str,
    world_size: u32,
    hosting: bool,
    timeout: Duration,
) -> Result<()> {
    let keys = Keys { group_name };
    if store.add(&keys.of("left"), 1)? >= i64::from(world_size) {
        return store.set(&keys.of("all_left"), b"1");
    }
    if hosting { store.wait(&[&keys.of("all_left")], Some(timeout)) } else { Ok(()) }
}

struct Keys<'a> {
    group_name: &'a str,
}

impl Keys<'_> {
    fn of(&self, what: impl std::fmt::Display) -> String {
        format!("polyrank/{}/join/{what}", self.group_name)
    }
}

/// Writes this rank down. A message if it is one too many.
fn enter(store: &dyn Store, keys: &Keys<'_>, rank: u32, world_size: u32) -> Result<Option<String>> {
    let ours = world_size.to_string().into_bytes();
    let theirs = store.compare_set(&keys.of("world_size"), b"", &ours)?;
    let group_name = keys.group_name;
    if theirs != ours {
        let theirs = String::from_utf8_lossy(&theirs).into_owned();
        return Ok(Some(format!(
            "rank {rank} came to group '{group_name}' with world size {world_size}, but another \
             rank with {theirs}"
        )));
    }
    if store.add(&keys.of(rank), 1)? > 1 {
        return Ok(Some(format!(
            "rank {rank} joined twice: two processes came to group '{group_name}' with the same \
             rank, or the name was used before"
        )));
    }
    if store.add(&keys.of("count"), 1)? >= i64::from(world_size) {
        store.compare_set(&keys.of("verdict"), b"", JOINED)?;
    }
    Ok(None)
}

fn await_verdict(
    store: &dyn Store,
    keys: &Keys<'_>,
    world_size: u32,
    timeout: Duration,
) -> Result<Vec<u8>> {
    let verdict = keys.of("verdict");
    match store.wait(&[&verdict], Some(timeout)) {
        Ok(()) => store.get(&verdict),
        Err(Error::StoreTimeout { .. }) => {
            let missing = missing(store, keys, world_size)?;
            // The last rank may have come between the end of the wait and now.
            if missing.is_empty() {
                return decide(store, keys, JOINED);
            }
            decide(store, keys, &verdict_of(TIMED_OUT, &absence(&missing, world_size, timeout)))
        }
        Err(error) => Err(error),
    }
}

/// The verdict, which is `ours` unless there is one already. A mistake that comes after everyone
/// has joined concerns only who makes it.
fn decide(store: &dyn Store, keys: &Keys<'_>, ours: &[u8]) -> Result<Vec<u8>> {
    let verdict = store.compare_set(&keys.of("verdict"), b"", ours)?;
    Ok(if ours.first() == Some(&MISTAKE) { ours.to_vec() } else { verdict })
}

fn verdict_of(kind: u8, message: &str) -> Vec<u8> {
    [&[kind], message.as_bytes()].concat()
}

fn missing(store: &dyn Store, keys: &Keys<'_>, world_size: u32) -> Result<Vec<u32>> {
    let mut missing = Vec::new();
    for rank in 0..world_size {
        if !store.check(&[&keys.of(rank)])? {
            missing.push(rank);
        }
    }
    Ok(missing)
}

/// "ranks 2, 3 of 4 did not join within 30 s".
fn absence(missing: &[u32], world_size: u32, timeout: Duration) -> String {
    let named: Vec<_> = missing.iter().take(NAMED_RANKS).map(u32::to_string).collect();
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
    let limit = match timeout.as_millis() {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    };
    format!("{ranks} {}{more} of {world_size} did not join within {limit}", named.join(", "))
}

/// Stays until everyone who is there knows that the group failed. What goes wrong here would only
/// hide why it failed.
fn linger(store: &dyn Store, keys: &Keys<'_>) {
    let all_told = keys.of("all_told");
    let told = store.add(&keys.of("told"), 1);
    let here = store.add(&keys.of("count"), 0);
    let last = matches!((told, here), (Ok(told), Ok(here)) if told >= here);
    let _ = if last { store.set(&all_told, b"1") } else { store.wait(&[&all_told], Some(LINGER)) };
}
