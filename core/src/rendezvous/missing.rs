//! Which ranks a group waited for in vain, and how that is said. Knows nothing of when a wait is
//! over.

use std::time::Duration;

use super::join::Keys;
use super::presence;
use crate::completion::rank_names;
use crate::generated::error::{Error, Result};
use crate::sorted::sort;
use crate::store::{Deadline, Store, WaitError, expired};

/// Most ranks that an error lists.
const LISTED_RANKS: usize = 128;
/// Ranks that are looked for at once.
const LOOKED_FOR: u32 = 256;
/// How long may be looked for ranks that are missing: their number is known without.
const LOOK: Duration = Duration::from_secs(1);

/// What those whose time is up tell the others.
pub(super) struct TimeoutVerdict {
    /// How many had come then.
    came: i64,
    /// The first of those of them that were gone.
    pub(super) gone: Vec<u32>,
    /// The first of those that had not come.
    missing: Vec<u32>,
    /// All that in words.
    message: String,
}

impl TimeoutVerdict {
    /// Of the text of [`MissingRanks::verdict`]; none if it is another.
    pub(super) fn read(text: &str) -> Option<TimeoutVerdict> {
        let mut parts = text.splitn(4, ' ');
        let ranks = |list: &str| list.split(',').filter_map(|it| it.parse().ok()).collect();
        Some(TimeoutVerdict {
            came: parts.next()?.parse().ok()?,
            gone: ranks(parts.next()?),
            missing: ranks(parts.next()?),
            message: parts.next()?.to_owned(),
        })
    }

    /// The error of `rank`, which came as the one with the number `order`.
    pub(super) fn error(self, (rank, order): (u32, i64), group_name: &str) -> Error {
        let TimeoutVerdict { came, gone, missing, message } = self;
        let message = match order > came {
            true => format!(
                "rank {rank} came to group '{group_name}' after the others had given up: {message}"
            ),
            false => message,
        };
        let mut missing = [missing, gone].concat();
        sort(&mut missing);
        timed_out(rank, missing, message)
    }
}

/// The error of `rank`, which waited for `missing_ranks` in vain, as far as those are known.
pub(crate) fn timed_out(rank: u32, missing_ranks: Vec<u32>, message: String) -> Error {
    let rank = missing_ranks.first().copied().unwrap_or(rank);
    Error::RendezvousTimeout { rank, missing_ranks: missing_ranks.into(), message }
}

/// Who did not come.
pub(super) struct MissingRanks {
    /// How many came.
    came: i64,
    /// The first of those that did not.
    pub(super) listed: Vec<u32>,
    /// How many more did not.
    pub(super) others: u32,
    /// The first of those that came and are gone, as far as that was looked for.
    gone: Vec<u32>,
}

/// Who is missing, if anybody is. That takes no longer than [`LOOK`], however many ranks there are
/// to be, and ends when the thread is interrupted.
pub(super) async fn missing(
    store: &dyn Store,
    keys: &Keys<'_>,
    world_size: u32,
) -> Result<Option<MissingRanks>> {
    let came = store.add_async(&keys.of("count"), 0).await?;
    let missing = world_size.saturating_sub(u32::try_from(came).unwrap_or(u32::MAX));
    let limit = Deadline::after(LOOK);
    let (mut listed, mut from) = (Vec::new(), 0);
    while from < world_size && listed.len() < LISTED_RANKS {
        match limit.slice(LOOK) {
            Ok(_) => {}
            Err(WaitError::TimedOut) => break,
            Err(why) => return Err(expired(why, "join", &[keys.group_name], &limit)),
        }
        let until = world_size.min(from.saturating_add(LOOKED_FOR));
        let ranks: Vec<String> = (from..until).map(|rank| keys.of(rank)).collect();
        let all: Vec<&str> = ranks.iter().map(String::as_str).collect();
        listed.extend(missing_of(store, &all, (from, until)).await?);
        from = until;
    }
    let saw_all = from == world_size && listed.len() < LISTED_RANKS;
    listed.truncate(LISTED_RANKS);
    // There are never more ranks listed than there are.
    let others = if saw_all { 0 } else { missing.saturating_sub(listed.len() as u32) };
    Ok((!listed.is_empty() || others > 0).then_some(MissingRanks {
        came,
        listed,
        others,
        gone: Vec::new(),
    }))
}

/// The ranks of `from..until` whose keys are not there, the first of `keys` being that of `from`:
/// [`LISTED_RANKS`] of them at most.
pub(super) async fn missing_of(
    store: &dyn Store,
    keys: &[&str],
    (from, until): (u32, u32),
) -> Result<Vec<u32>> {
    let mut missing = Vec::new();
    if store.check_async(keys).await? {
        return Ok(missing);
    }
    for (rank, key) in (from..until).zip(keys) {
        if missing.len() < LISTED_RANKS && !store.check_async(&[key]).await? {
            missing.push(rank);
        }
    }
    Ok(missing)
}

impl MissingRanks {
    /// Looks which of the ranks that came are gone: among the first ones, if there are many.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn look_for_gone(
        &mut self,
        store: &dyn Store,
        keys: &Keys<'_>,
        world_size: u32,
    ) -> Result<()> {
        // Of those behind the last one that is listed, it is not known who came.
        let known = match (self.others, self.listed.last()) {
            (0, _) => world_size,
            (_, last) => last.map_or(0, |last| last + 1),
        };
        let came = (0..known.min(LOOKED_FOR)).filter(|rank| !self.listed.contains(rank));
        self.gone = presence::gone(store, keys, came).await?;
        Ok(())
    }

    /// How many came, who is gone, who did not come, and what is to be said of it: "ranks 2, 3 of 4
    /// did not join within 30 s; rank 1 had come, and is gone".
    pub(super) fn verdict(&self, world_size: u32, timeout: Duration) -> String {
        let MissingRanks { came, listed, others, gone } = self;
        let (who, limit) = (rank_names(listed, *others), limit_text(timeout));
        let also = match gone.len() {
            0 => String::new(),
            1 => format!("; {} had come, and is gone", rank_names(gone, 0)),
            _ => format!("; {} had come, and are gone", rank_names(gone, 0)),
        };
        let (gone, listed) = (numbers(gone), numbers(listed));
        format!("{came} {gone} {listed} {who} of {world_size} did not join within {limit}{also}")
    }
}

fn numbers(ranks: &[u32]) -> String {
    let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}

/// "30 s".
pub(super) fn limit_text(limit: Duration) -> String {
    match limit.as_millis() as u64 {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}
