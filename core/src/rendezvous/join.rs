//! The ranks of a group meet in a store, and all learn whether all came.
//! Knows nothing of how the store was found.
//!
//! Keys, under `polyrank/<group name>/join/`: `world_size`; `<rank>`, how often this rank came;
//! `count`, how many came; `here`, which of them are there (see [`super::presence`]); `verdict`,
//! set once, which everyone waits for; `told`, how many know of a failure, and `all_told`. All
//! ranks that wait cost the store about a thousand requests a second, however many they are.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "tcp")]
use super::late::LateReport;
use super::missing::{TimeoutVerdict, limit_text, missing, missing_of, timed_out};
use super::presence::{self, PresenceObserver};
use super::refusal::linger_for_all;
use super::verdict::{
    JOINED, MISTAKE, REFUSED, SUPERSEDED, TIMED_OUT, UNDECIDED, kind_and_message, not_of_ranks,
    verdict_of,
};
use crate::blocking::block_on;
use crate::completion::rank_names;
use crate::generated::error::{Error, Result};
use crate::store::{Deadline, Store};

/// How long a rank that failed stays for the others to learn why, as it may host the store.
const LINGER: Duration = Duration::from_secs(2);
/// How long a rank waits for the others before its observer looks, and between the first looks.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// How many looks follow one another so fast. After them, each pause is twice as long as the last,
/// up to [`MAX_PAUSE`].
const EARLY_LOOKS: u32 = 3;
/// The longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long ranks that joined may take to continue before the others check whether they can, at
/// first and at most.
const LOOKS_AFTER_JOINING: [Duration; 2] = [LOOK_AFTER, Duration::from_secs(2)];
/// How often the host of a store looks whether anybody is left: at first, since those that outlived
/// a rank go soon, and in the end.
const LOOKS_AROUND: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// What begins the keys of the group `name` in its store, those under which its ranks join among
/// them.
pub(crate) fn keys_of_group(name: &str) -> String {
    format!("polyrank/{name}")
}

/// Waits until all `size` ranks of the group have called this with the same store.
///
/// The group's `name` must be new to the store: another group, or the same again, takes another.
/// A `timeout` of zero is none. The first rank whose time is up decides for all that are there.
///
/// # Errors
/// [`Error::RendezvousTimeout`] naming the ranks that are missing, on every rank that is there;
/// [`Error::Rendezvous`] if a rank came twice or the world sizes differ.
pub fn join(store: &dyn Store, name: &str, rank: u32, size: u32, timeout: Duration) -> Result<()> {
    block_on(join_async(store, name, rank, size, timeout))
}

/// As [`join`], without blocking.
///
/// # Errors
/// As [`join`].
pub async fn join_async(
    store: &dyn Store,
    name: &str,
    rank: u32,
    size: u32,
    timeout: Duration,
) -> Result<()> {
    let observer = PresenceObserver::new(store, name, (rank, size));
    join_observed(store, name, (rank, size), timeout, &observer).await
}

/// Looks out, while a rank waits for the others, for a reason why they never come.
pub(crate) trait JoinObserver: Sync {
    /// Called from time to time while ranks are missing, a few times soon and then ever less often:
    /// why they do not come, if that is known by now. All that wait fail with it.
    fn look(&self) -> PendingLook<'_>;

    /// The longest pause between two looks.
    fn longest_pause(&self) -> Duration {
        MAX_PAUSE
    }

    /// The ranks that a look of any rank found to be gone. They learn nothing any more, so that
    /// nobody stays for them.
    fn gone(&self) -> GoneRanks<'_> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// Ranks that are gone, as soon as it is known which.
pub(crate) type GoneRanks<'a> = Pin<Box<dyn Future<Output = Vec<u32>> + Send + 'a>>;

/// A look that continues: a reason, if it finds one.
pub(crate) type PendingLook<'a> = Pin<Box<dyn Future<Output = Result<Option<String>>> + Send + 'a>>;

/// As [`join_async`], with an observer.
///
/// # Errors
/// As [`join`]; [`Error::Rendezvous`] with what the observer of a rank found.
pub(crate) async fn join_observed(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    timeout: Duration,
    observer: &dyn JoinObserver,
) -> Result<()> {
    super::check_rank(rank, world_size)?;
    let met = meet(store, group_name, (rank, world_size), timeout, observer).await;
    if let Err(why) = &met {
        fail_joining(store, group_name, rank, why).await;
    }
    let (verdict, order) = met?;
    let keys = Keys { group_name };
    let (kind, message) = match kind_and_message(&verdict) {
        _ if verdict == JOINED => return Ok(()),
        _ if verdict == SUPERSEDED => return Err(superseded(group_name)),
        Some(read) => read,
        None if verdict.is_empty() => {
            (MISTAKE, "the store lost what the ranks agreed on".to_owned())
        }
        None => return Err(not_a_verdict(&keys, &verdict)),
    };
    let late = match kind {
        TIMED_OUT => {
            let read = TimeoutVerdict::read(&message);
            Some(read.ok_or_else(|| not_a_verdict(&keys, &verdict))?)
        }
        _ => None,
    };
    match (kind, &late) {
        (REFUSED, _) => linger_for_all(store, &keys, world_size, timeout).await.unwrap_or_default(),
        (_, Some(late)) => linger(store, &keys, late.gone.len()).await,
        (_, None) => {
            let mut came = 0;
            for rank in observer.gone().await {
                let has_come = store.check_async(&[&keys.of(rank)]).await;
                came += usize::from(has_come.unwrap_or_default());
            }
            linger(store, &keys, came).await;
        }
    }
    Err(match late {
        Some(late) => late.error((rank, order), group_name),
        None => Error::Rendezvous { message },
    })
}

/// The error for a verdict that no rank wrote.
fn not_a_verdict(keys: &Keys<'_>, verdict: &[u8]) -> Error {
    not_of_ranks(&keys.of("verdict"), "what the ranks agreed on", verdict)
}

/// Comes to the group and waits for its verdict; with that, as which one this rank came.
async fn meet(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    timeout: Duration,
    observer: &dyn JoinObserver,
) -> Result<(Vec<u8>, i64)> {
    let keys = Keys { group_name };
    Ok(match enter(store, &keys, rank, world_size).await? {
        Entry::Mistake(why) => (decide(store, &keys, &verdict_of(MISTAKE, &why)).await?, 0),
        Entry::Entered { order } => {
            let verdict = await_verdict(store, &keys, (rank, world_size), timeout, observer);
            let verdict = verdict.await?;
            store.delete_key_async(&presence::key_of(&keys, rank)).await?;
            (verdict, order)
        }
    })
}

/// The error of a rank that is to look for the next group of its name.
fn superseded(group_name: &str) -> Error {
    let message = format!("a rank of group '{group_name}' is gone, and has joined again");
    Error::Rendezvous { message }
}

/// Why ranks with two world sizes do not form a group.
pub(super) fn sizes_differ(group_name: &str, rank: u32, world_size: u32, theirs: &str) -> String {
    format!(
        "rank {rank} came to group '{group_name}' with world size {world_size}, but another rank \
         with {theirs}"
    )
}

/// Ends the wait of those that wait for the group to be complete, and of those that have joined and
/// wait for the others to continue: they are to look for another.
pub(super) async fn supersede(store: &dyn Store, group_name: &str) -> Result<()> {
    let key = Keys { group_name }.of("verdict");
    if store.compare_set_async(&key, b"", SUPERSEDED).await? == JOINED {
        store.compare_set_async(&key, JOINED, SUPERSEDED).await?;
    }
    Ok(())
}

/// Whether [`supersede`] ended the group.
pub(super) async fn is_superseded(store: &dyn Store, group_name: &str) -> Result<bool> {
    has_verdict(store, group_name, SUPERSEDED).await
}

/// Whether all ranks of the group have come.
pub(super) async fn is_complete(store: &dyn Store, group_name: &str) -> Result<bool> {
    has_verdict(store, group_name, JOINED).await
}

/// Whether all ranks of the group have come, or it is known that they do not.
pub(super) async fn is_decided(store: &dyn Store, group_name: &str) -> Result<bool> {
    store.check_async(&[&Keys { group_name }.of("verdict")]).await
}

async fn has_verdict(store: &dyn Store, group_name: &str, expected: &[u8]) -> Result<bool> {
    Ok(verdict_so_far(store, group_name).await? == expected)
}

/// The verdict; if there is none yet, something else.
pub(super) async fn verdict_so_far(store: &dyn Store, group_name: &str) -> Result<Vec<u8>> {
    let verdict = Keys { group_name }.of("verdict");
    // A host that was told may be gone by now, and its next store in its place: there, a get would
    // wait for what never comes. This reads what there is, and says the same if there is nothing.
    store.compare_set_async(&verdict, UNDECIDED, UNDECIDED).await
}

/// Tells the others, for whom this rank has joined, that it failed then, and why: they do not wait
/// for what it would write next. What a rank failed with that was told itself is known.
pub(crate) async fn fail_joined(store: &dyn Store, group_name: &str, rank: u32, why: &Error) {
    let message = format!("rank {rank} joined group '{group_name}', and failed then: {why}");
    tell_failure(store, group_name, &[JOINED], &message).await;
}

/// As [`fail_joined`], for a rank whose store failed while it joined, if that is `why`: the others
/// may wait for the group to be complete, or for this rank to continue.
pub(super) async fn fail_joining(store: &dyn Store, group_name: &str, rank: u32, why: &Error) {
    let is_failure = match why {
        // By the will of who asked, who says why where it matters.
        Error::Store { message } => !message.contains("interrupted"),
        other => matches!(other, Error::NotACounter { .. }),
    };
    if !is_failure {
        return;
    }
    let message = format!("rank {rank} came to group '{group_name}', and failed then: {why}");
    tell_failure(store, group_name, &[b"", JOINED], &message).await;
}

/// Makes `message` the verdict in place of one of `earlier`, which are tried in their order.
async fn tell_failure(store: &dyn Store, group_name: &str, earlier: &[&[u8]], message: &str) {
    let key = Keys { group_name }.of("verdict");
    let verdict = verdict_of(MISTAKE, message);
    for known in earlier {
        match store.compare_set_async(&key, known, &verdict).await {
            Ok(now) if now == verdict => return,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "could not tell the others why this rank fails");
                return;
            }
        }
    }
}

/// Waits, as a rank that has joined, for what the others write next: one key each, in the order of
/// the ranks, and perhaps further ones of rank 0. A rank that was killed meanwhile writes nothing;
/// the wait ends when another takes its place, or the observer finds that it is gone.
///
/// # Errors
/// [`Error::Rendezvous`] if a rank is gone and has come again, if one has failed, or for what the
/// observer found; [`Error::RendezvousTimeout`] naming the ranks of which there is nothing within
/// `timeout`.
pub(crate) async fn await_joined(
    store: &dyn Store,
    (group_name, world_size): (&str, u32),
    keys: &[&str],
    timeout: Duration,
    observer: Option<&dyn JoinObserver>,
) -> Result<()> {
    let deadline = Deadline::after(timeout);
    let [mut pause, longest] = LOOKS_AFTER_JOINING;
    let longest = observer.map_or(longest, |observer| longest.min(observer.longest_pause()));
    loop {
        let left = deadline.remaining();
        // Zero would be no limit.
        let limit = left.map_or(pause, |left| left.min(pause)).max(Duration::from_millis(1));
        let late = match store.wait_async(keys, Some(limit)).await {
            Err(error @ Error::StoreTimeout { .. }) => error,
            waited => return waited,
        };
        let why = end_of_joined(store, group_name, observer).await?;
        // What there is now was there before a rank that wrote it could leave, and come again.
        if let Some(why) = why
            && !store.check_async(keys).await?
        {
            return Err(why);
        }
        if left.is_some_and(|left| left <= limit) {
            let missing = missing_of(store, keys, (0, world_size)).await?;
            return Err(match missing.as_slice() {
                [] => late,
                [first, ..] => {
                    let (who, limit) = (rank_names(&missing, 0), limit_text(timeout));
                    let message = format!(
                        "{who} of {world_size} joined group '{group_name}', but did not go on \
                         within {limit}"
                    );
                    timed_out(*first, missing, message)
                }
            });
        }
        pause = (2 * pause).min(longest);
    }
}

/// Why ranks that have joined do not go on, if that is known.
async fn end_of_joined(
    store: &dyn Store,
    group_name: &str,
    observer: Option<&dyn JoinObserver>,
) -> Result<Option<Error>> {
    let key = Keys { group_name }.of("verdict");
    let verdict = match store.check_async(&[&key]).await? {
        true => store.get_async(&key).await?,
        false => Vec::new(),
    };
    if verdict == SUPERSEDED {
        return Ok(Some(superseded(group_name)));
    }
    if let Some((MISTAKE, message)) = kind_and_message(&verdict) {
        return Ok(Some(Error::Rendezvous { message }));
    }
    let Some(observer) = observer else { return Ok(None) };
    let why = observer.look().await?;
    Ok(why.map(|message| Error::Rendezvous { message }))
}

/// Tells the host of the store that `rank` is done with it. The host itself (`hosting`) waits up to
/// `timeout` until all have said so, since the store ends with its process, or are gone.
///
/// # Errors
/// [`Error::StoreTimeout`] if others are still there; the host may go all the same. A store that
/// ended after it was told is none: its host learned of all, or is gone.
pub fn leave(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    hosting: bool,
    timeout: Duration,
) -> Result<()> {
    block_on(leave_async(store, group_name, (rank, world_size), hosting, timeout))
}

/// As [`leave`], without blocking.
///
/// # Errors
/// As [`leave`].
pub async fn leave_async(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    hosting: bool,
    timeout: Duration,
) -> Result<()> {
    leave_at_once(store, group_name, rank).await?;
    let left = |rank| Keys { group_name }.of(format_args!("left/{rank}"));
    // The host learns of all; the others, that theirs has arrived.
    let ranks = if hosting { 0..world_size } else { rank..rank + 1 };
    let left: Vec<String> = ranks.map(left).collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    let deadline = Deadline::after(timeout);
    let [mut pause, longest_pause] = LOOKS_AROUND;
    let mut slice = if hosting { timeout.min(pause) } else { timeout };
    loop {
        match store.wait_async(&left, Some(slice)).await {
            // Ranks that ended without a word, by `sys.exit` as well as by a signal.
            Err(Error::StoreTimeout { .. }) if hosting && store.has_no_clients() => return Ok(()),
            // The host has learned of all, this rank among them, and is gone before its answer.
            Err(Error::Network { .. }) if !hosting => return Ok(()),
            Err(error @ Error::StoreTimeout { .. }) => {
                pause = longest_pause.min(2 * pause);
                match deadline.slice(pause) {
                    Ok(next) => slice = next,
                    Err(_) => return Err(error),
                }
            }
            waited => return waited,
        }
    }
}

/// As [`leave_async`], for a rank that waits for nobody, not even for the store.
pub(crate) async fn leave_at_once(store: &dyn Store, group_name: &str, rank: u32) -> Result<()> {
    store.set_async(&Keys { group_name }.of(format_args!("left/{rank}")), b"1").await
}

/// Fails all that wait for the group, and those that arrive later, for this reason.
///
/// # Errors
/// Those of the store.
pub(crate) async fn end_join(store: &dyn Store, group_name: &str, why: &str) -> Result<()> {
    let keys = Keys { group_name };
    let verdict = verdict_of(MISTAKE, why);
    store.compare_set_async(&keys.of("verdict"), b"", &verdict).await.map(drop)
}

/// Whether `rank` has come to the group.
///
/// # Errors
/// Those of the store.
pub(crate) async fn has_come(store: &dyn Store, group_name: &str, rank: u32) -> Result<bool> {
    store.check_async(&[&Keys { group_name }.of(rank)]).await
}

/// The ranks that have not reached the group.
///
/// # Errors
/// Those of the store.
pub(crate) async fn absent(
    store: &dyn Store,
    group_name: &str,
    world_size: u32,
) -> Result<Vec<u32>> {
    let missing = missing(store, &Keys { group_name }, world_size).await?;
    Ok(missing.map_or_else(Vec::new, |missing| missing.listed))
}

/// Waits until no other thread of this process has the store, as one that waits for a key, for
/// `limit` at most: a request that does not wait may take as long as the store's timeout then.
///
/// # Errors
/// [`Error::StoreTimeout`] if one still has it.
pub(crate) async fn find_store_free(store: &dyn Store, limit: Duration) -> Result<()> {
    store.wait_async(&[], Some(limit)).await
}

pub(super) struct Keys<'a> {
    pub(super) group_name: &'a str,
}

impl Keys<'_> {
    pub(super) fn of(&self, what: impl std::fmt::Display) -> String {
        format!("polyrank/{}/join/{what}", self.group_name)
    }
}

/// The result of registering this rank.
enum Entry {
    /// It is one of the group, and came as the one with this number, from 1.
    Entered { order: i64 },
    /// It is one too many, for the reason given.
    Mistake(String),
}

/// Writes this rank down.
async fn enter(store: &dyn Store, keys: &Keys<'_>, rank: u32, world_size: u32) -> Result<Entry> {
    let ours = world_size.to_string().into_bytes();
    let theirs = store.compare_set_async(&keys.of("world_size"), b"", &ours).await?;
    let group_name = keys.group_name;
    if theirs != ours {
        let theirs = String::from_utf8_lossy(&theirs);
        return Ok(Entry::Mistake(sizes_differ(group_name, rank, world_size, &theirs)));
    }
    // First this: a rank that came and has no such key is gone.
    store.add_async(&presence::key_of(keys, rank), 1).await?;
    if store.add_async(&keys.of(rank), 1).await? > 1 {
        return Ok(Entry::Mistake(format!(
            "rank {rank} joined twice: two processes came to group '{group_name}' with the same \
             rank, or the name was used before. It serves one group of a store, also after that \
             was destroyed: give the new group another name, or none"
        )));
    }
    let order = store.add_async(&keys.of("count"), 1).await?;
    if order >= i64::from(world_size) {
        store.compare_set_async(&keys.of("verdict"), b"", JOINED).await?;
    }
    Ok(Entry::Entered { order })
}

async fn await_verdict(
    store: &dyn Store,
    keys: &Keys<'_>,
    (rank, world_size): (u32, u32),
    timeout: Duration,
    observer: &dyn JoinObserver,
) -> Result<Vec<u8>> {
    let verdict = keys.of("verdict");
    let deadline = Deadline::after(timeout);
    let (mut pause, mut looks) = (LOOK_AFTER, 0);
    #[cfg(feature = "tcp")]
    let mut late = LateReport::new(keys, (rank, world_size));
    #[cfg(not(feature = "tcp"))]
    let _ = rank;
    while deadline.remaining().is_none_or(|left| left > pause) {
        #[cfg(feature = "tcp")]
        let slice = late.until_next(pause);
        #[cfg(not(feature = "tcp"))]
        let slice = pause;
        match store.wait_async(&[&verdict], Some(slice)).await {
            Ok(()) => {
                #[cfg(feature = "tcp")]
                late.end();
                return store.get_async(&verdict).await;
            }
            Err(Error::StoreTimeout { .. }) => {}
            Err(error) => return Err(error),
        }
        #[cfg(feature = "tcp")]
        late.look(store, keys, world_size).await;
        if let Some(why) = observer.look().await? {
            return decide(store, keys, &verdict_of(MISTAKE, &why)).await;
        }
        looks += 1;
        if looks >= EARLY_LOOKS {
            pause = (2 * pause).min(observer.longest_pause());
        }
    }
    // Zero would be no limit.
    let left = deadline.remaining().map(|left| left.max(Duration::from_millis(1)));
    match store.wait_async(&[&verdict], Some(left.unwrap_or_default())).await {
        Ok(()) => store.get_async(&verdict).await,
        Err(Error::StoreTimeout { .. }) => {
            let absence = match missing(store, keys, world_size).await? {
                Some(mut missing) => {
                    missing.look_for_gone(store, keys, world_size).await?;
                    missing.verdict(world_size, timeout)
                }
                // The last rank has come between the end of the wait and now.
                None => return decide(store, keys, JOINED).await,
            };
            decide(store, keys, &verdict_of(TIMED_OUT, &absence)).await
        }
        Err(error) => Err(error),
    }
}

/// The verdict, which is `ours` unless there is one already. A mistake that comes after everyone
/// has joined concerns only who makes it.
async fn decide(store: &dyn Store, keys: &Keys<'_>, ours: &[u8]) -> Result<Vec<u8>> {
    let verdict = store.compare_set_async(&keys.of("verdict"), b"", ours).await?;
    let is_mistake = kind_and_message(ours).is_some_and(|(kind, _)| kind == MISTAKE);
    Ok(if is_mistake { ours.to_vec() } else { verdict })
}

/// Stays until everyone who is there knows that the group failed. What goes wrong here would only
/// hide why it failed.
/// `gone` ranks of those that came learn nothing any more.
async fn linger(store: &dyn Store, keys: &Keys<'_>, gone: usize) {
    let all_told = keys.of("all_told");
    let told = store.add_async(&keys.of("told"), 1).await;
    let here = store.add_async(&keys.of("count"), 0).await;
    let last = matches!((told, here), (Ok(told), Ok(here)) if told >= here - gone as i64);
    let _ = if last {
        store.set_async(&all_told, b"1").await
    } else {
        store.wait_async(&[&all_told], Some(LINGER)).await
    };
}
