//! A rank that cannot be in a group: the others are told where they meet, also those that come
//! later, as long as its process is there. One call of each rank is told one such refusal, so that
//! the ranks' next calls meet each other. Knows not what keeps a rank from a group.

use std::time::Duration;

use super::InitOptions;
use super::formation::meet;
use crate::backend::registry::BackendSpec;
use crate::clock::process_id;
use crate::generated::error::{Error, Result};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::rendezvous::{RankClaim, Rendezvous, incarnation};
use crate::store::Bound;

/// How long a rank that cannot be in a group looks for the others, to tell them: they may not be
/// there yet, and it has its error already.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a rank stays for the others that has another call to make.
const NO_STAY: Duration = Duration::from_millis(1);

static REFUSALS: ProcessMutex<Refusals> =
    ProcessMutex::new(Refusals { process_id: 0, kept: Vec::new(), owed: Vec::new() });

/// The refusals that not all have heard.
struct Refusals {
    process_id: u32,
    /// Those that stand in a store, and the numbers of ranks that are to hear them. With them stays
    /// the store, if this process hosts it.
    kept: Vec<(RankClaim, u32)>,
    /// Those for which no store was found.
    owed: Vec<Owed>,
}

struct Owed {
    name: String,
    at: Place,
    why: Error,
}

/// Where a rank meets the others.
#[derive(PartialEq, Eq)]
struct Place {
    url: Option<String>,
    store: Option<String>,
    rank: Option<u32>,
}

impl Place {
    fn of(options: &InitOptions) -> Place {
        let url = options.init_method.clone().filter(|url| url != "env://");
        let store = options.store.as_ref().map(|store| store.description());
        Place { url, store, rank: options.rank }
    }
}

/// Those of this process: a parent's are forgotten, untouched.
fn lock() -> ProcessMutexGuard<'static, Refusals> {
    let mut refusals = REFUSALS.lock();
    if refusals.process_id != process_id() {
        std::mem::forget(std::mem::take(&mut refusals.kept));
        refusals.owed.clear();
        refusals.process_id = process_id();
    }
    refusals
}

/// Tells the other ranks of group `name` why this one cannot be in it, where they meet: they would
/// wait for it. What goes wrong here would only hide why.
pub(super) async fn tell(options: &InitOptions, name: &str, why: &Error) {
    let limit = options.timeout.filter(|limit| !limit.is_zero()).unwrap_or(LIMIT).min(LIMIT);
    let told = async {
        settle(options, name, limit).await?;
        refuse(options, name, why, limit, limit).await
    };
    let Err(error) = told.await else { return };
    tracing::debug!(%error, "could not tell the others why this rank does not join");
    // They may come later: the next call of this rank is not to meet this one of theirs.
    if is_lateness(&error) {
        let owed = Owed { name: name.to_owned(), at: Place::of(options), why: why.clone() };
        lock().owed.push(owed);
    }
}

/// Whether it fails only because others have not come.
fn is_lateness(error: &Error) -> bool {
    use Error::{Network, RendezvousTimeout, StoreTimeout};
    matches!(error, Network { .. } | RendezvousTimeout { .. } | StoreTimeout { .. })
}

/// Tells the others what is owed to them, before the next call for group `name`, within `timeout`;
/// whether anything was.
///
/// # Errors
/// Those of meeting the others.
pub(super) async fn settle(options: &InitOptions, name: &str, timeout: Duration) -> Result<bool> {
    forget_heard(name).await;
    let (at, mut has_owed) = (Place::of(options), false);
    loop {
        let mut refusals = lock();
        let found = refusals.owed.iter().position(|owed| owed.name == name && owed.at == at);
        let owed = found.map(|found| refusals.owed.remove(found));
        drop(refusals);
        let Some(owed) = owed else { return Ok(has_owed) };
        has_owed = true;
        if let Err(error) = refuse(options, name, &owed.why, timeout, NO_STAY).await {
            if is_lateness(&error) {
                lock().owed.insert(0, owed);
            }
            return Err(error);
        }
    }
}

/// Meets the others within `limit`, and tells them; stays for them as long as `stay`.
async fn refuse(
    options: &InitOptions,
    name: &str,
    why: &Error,
    limit: Duration,
    stay: Duration,
) -> Result<()> {
    // Without a backend, only its launcher's knowledge lacks.
    let none = BackendSpec { devices: Vec::new() };
    let spec = options.backend.as_deref().and_then(|named| named.parse().ok()).unwrap_or(none);
    let bound = Bound::after(limit);
    let store = options.store.as_ref().map(|store| bound.of(store));
    let options = &InitOptions { store, ..options.clone() };
    let find = async |left| meet(options, &spec, left).await;
    let (met, mut claim) = incarnation::meet(limit, name, find).await?;
    let Rendezvous { rank, world_size, .. } = met;
    // One alone has nobody to tell.
    let mut is_told = world_size < 2;
    while !is_told {
        claim.refuse((rank, world_size), why, stay).await;
        is_told = !claim.is_superseded().await;
        if !is_told {
            // Where the store is lost, it is free with this process's connection.
            let _ = claim.release().await;
            claim = incarnation::enter(&met, name, limit).await?;
        }
    }
    bound.lift();
    // Whoever hosts the store may have ended it by now, as all have heard.
    let _ = leave(claim, world_size).await;
    Ok(())
}

/// Leaves a rank's place in a group that was not made: what not all `world_size` ranks have heard
/// is kept for them.
pub(super) async fn leave(claim: RankClaim, world_size: u32) -> Result<()> {
    if let Some(unheard) = claim.leave(world_size).await? {
        lock().kept.push((unheard, world_size));
    }
    Ok(())
}

/// Lets go those refusals of group `name` that all have heard by now.
pub(super) async fn forget_heard(name: &str) {
    let mut refusals = lock();
    let of_group = |kept: &mut (RankClaim, u32)| kept.0.group_name() == name;
    let looked_at: Vec<_> = refusals.kept.extract_if(.., of_group).collect();
    drop(refusals);
    for (claim, world_size) in looked_at {
        // One whose store is gone is nowhere.
        if let Ok(false) = claim.end_if_heard(world_size).await {
            lock().kept.push((claim, world_size));
        }
    }
}
