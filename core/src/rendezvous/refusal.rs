//! A rank that cannot be in a group tells the others, those too that come later. Knows neither why
//! it cannot nor where the group meets.

use std::time::Duration;

use super::explained;
use super::join::{Keys, verdict_so_far};
use super::verdict::{REFUSED, kind_and_message, verdict_of};
use crate::generated::error::{Error, Result};
use crate::store::Store;

/// How long a rank that does not join stays for all the others to come and learn why.
const LINGER_FOR_ALL: Duration = Duration::from_secs(5);

/// Tells those that come to the group, and those that wait for it to be complete, that `rank` does
/// not, and why: they fail with that, and not with what follows from it. Stays a moment for them to
/// learn it, as this rank may host the store.
pub(crate) async fn refuse(
    store: &dyn Store,
    group_name: &str,
    (rank, world_size): (u32, u32),
    why: &Error,
    timeout: Duration,
) {
    let keys = Keys { group_name };
    let why = explained(why.clone());
    let message = format!("rank {rank} does not join group '{group_name}': {why}");
    let verdict = verdict_of(REFUSED, &message);
    if let Err(error) = tell(store, &keys, world_size, &verdict, timeout).await {
        // It would only hide why this rank does not join.
        tracing::debug!(%error, "could not tell the others why this rank does not join");
    }
}

/// Whether a rank said that it does not join the group.
pub(super) async fn is_refused(store: &dyn Store, group_name: &str) -> Result<bool> {
    let verdict = verdict_so_far(store, group_name).await?;
    Ok(matches!(kind_and_message(&verdict), Some((REFUSED, _))))
}

/// Whether all ranks have heard that one does not join the group.
pub(super) async fn have_all_heard(
    store: &dyn Store,
    group_name: &str,
    world_size: u32,
) -> Result<bool> {
    let told = store.add_async(&Keys { group_name }.of("told"), 0).await?;
    Ok(told >= i64::from(world_size))
}

async fn tell(
    store: &dyn Store,
    keys: &Keys<'_>,
    world_size: u32,
    verdict: &[u8],
    timeout: Duration,
) -> Result<()> {
    let theirs = store.compare_set_async(&keys.of("verdict"), b"", verdict).await?;
    match kind_and_message(&theirs) {
        Some((REFUSED, _)) => linger_for_all(store, keys, world_size, timeout).await,
        // It was decided before; nobody waits for this.
        _ => Ok(()),
    }
}

/// Stays until all ranks have heard that one does not join the group, those too that have not come
/// yet, and no longer than `timeout`; zero is none.
pub(super) async fn linger_for_all(
    store: &dyn Store,
    keys: &Keys<'_>,
    world_size: u32,
    timeout: Duration,
) -> Result<()> {
    let all_told = keys.of("all_told");
    let limit = if timeout.is_zero() { LINGER_FOR_ALL } else { timeout.min(LINGER_FOR_ALL) };
    match store.add_async(&keys.of("told"), 1).await? >= i64::from(world_size) {
        true => store.set_async(&all_told, b"1").await,
        false => store.wait_async(&[&all_told], Some(limit)).await,
    }
}
