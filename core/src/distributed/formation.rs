//! How a group forms whose ranks meet in a store or at a URL: the default group, and groups that
//! stand alone. Knows not who keeps it.

use std::time::Duration;

use super::choice::default_backend;
use super::{InitOptions, World, refusals};
use crate::backend::registration::KnownPlace;
use crate::backend::registry::BackendSpec;
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::process_group::{DEFAULT_TIMEOUT, GroupOptions, ProcessGroup};
use crate::rendezvous::{self, Rendezvous, incarnation};
use crate::store::Bound;

/// The backends that `options` name, and the options of a group described so.
pub(super) fn group_options(
    options: &InitOptions,
    description: &str,
) -> Result<(BackendSpec, GroupOptions)> {
    let spec: BackendSpec = match &options.backend {
        Some(named) => named.parse()?,
        // Those of other devices cannot be given other members.
        None if options.enable_reconfigure && options.device.is_none() => BackendSpec::default(),
        None => default_backend(options.device)?,
    };
    let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let mut made =
        GroupOptions::default().backend(spec.clone()).timeout(timeout).description(description);
    made.device = options.device;
    made.backend_options = options.backend_options.clone();
    made.check()?;
    Ok((spec, made))
}

/// Meets the other ranks of group `name`, and makes it: with this rank's place in the store. Where
/// that is not `possible` for this rank, the others learn why.
pub(super) async fn form(
    possible: Result<()>,
    options: &InitOptions,
    name: &str,
    description: &str,
) -> Result<World> {
    let (spec, group_options) = match possible.and_then(|()| group_options(options, description)) {
        Ok(found) => found,
        Err(why) => {
            refusals::tell(options, name, &why).await;
            return Err(why);
        }
    };
    let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let start = Instant::now();
    let left = match refusals::settle(options, name, timeout).await? {
        true => incarnation::remaining(timeout, start),
        false => timeout,
    };
    // A store whose own limit is longer holds no rank up.
    let bound = Bound::after(left);
    let store = options.store.as_ref().map(|store| bound.of(store));
    let options = &InitOptions { store, ..options.clone() };
    let find = async |left| meet(options, &spec, left).await;
    let met = incarnation::meet(left, name, find).await;
    let (met, mut claim) = met.map_err(rendezvous::explained)?;
    if options.store.is_none() {
        met.store.set_timeout(timeout);
    }
    let Rendezvous { rank, world_size, hosting, .. } = met;
    let group = loop {
        let (store, options) = (claim.scoped_store(), group_options.clone());
        match ProcessGroup::new_async(store, rank, world_size, name, options).await {
            Ok(group) => break group,
            // The store is silent: it is not asked for more.
            Err(error @ Error::StoreTimeout { .. }) => return Err(error),
            Err(error) => {
                claim.fail(rank, &error).await;
                // It may have told the others itself.
                if rendezvous::is_shortage(&error) && !claim.is_decided().await {
                    claim.refuse((rank, world_size), &error, timeout).await;
                }
                let is_superseded = claim.is_superseded().await;
                // Where the store is lost, it is free with this process's connection.
                let _ = refusals::leave(claim, world_size).await;
                if !is_superseded {
                    return Err(incarnation::lost(error, hosting));
                }
            }
        }
        claim = incarnation::enter(&met, name, incarnation::remaining(timeout, start)).await?;
    };
    bound.lift();
    refusals::forget_heard(name).await;
    let groups = vec![group.clone()];
    let process_id = crate::clock::process_id();
    Ok(World { process_id, hosting, claim: Some(claim), group, groups })
}

pub(super) async fn meet(
    options: &InitOptions,
    spec: &BackendSpec,
    timeout: Duration,
) -> Result<Rendezvous> {
    let met = find(options, spec, timeout).await?;
    Ok(Rendezvous { version: options.version.clone(), ..met })
}

async fn find(options: &InitOptions, spec: &BackendSpec, timeout: Duration) -> Result<Rendezvous> {
    let invalid = |message: &str| Err(Error::InvalidArgument { message: message.into() });
    if options.store.is_some() && options.init_method.is_some() {
        return invalid("Cannot specify both init_method and store.");
    }
    let KnownRank { rank, world_size, met } = known_rank(options, spec, timeout)?;
    if let Some(met) = met {
        return Ok(met);
    }
    let Some(store) = &options.store else {
        let url = options.init_method.as_deref().unwrap_or("env://");
        return rendezvous::find_store(url, rank, world_size, timeout).await;
    };
    match (rank, world_size) {
        (Some(rank), Some(world_size)) => {
            Ok(Rendezvous::new(store.clone(), rank, world_size)?.with_environment())
        }
        _ => invalid("rank and world_size must be given with an explicit store"),
    }
}

/// Who this process is, where that is known before the ranks meet; with a meeting, if they met.
struct KnownRank {
    rank: Option<u32>,
    world_size: Option<u32>,
    met: Option<Rendezvous>,
}

/// What the options say of this process; with a backend whose launcher knows it, what that says.
fn known_rank(options: &InitOptions, spec: &BackendSpec, timeout: Duration) -> Result<KnownRank> {
    let (rank, world_size) = (options.rank, options.world_size);
    let backends = spec.devices.iter().map(|(_, backend)| backend.registration());
    let Some(find_place) = backends.filter_map(|backend| backend.find_place).next() else {
        return Ok(KnownRank { rank, world_size, met: None });
    };
    let url = options.init_method.as_deref().filter(|url| *url != "env://");
    let has_store = options.store.is_some() || url.is_some();
    let place = find_place(&KnownPlace { rank, world_size, has_store }, timeout)?;
    // A URL may say rank and size itself, and must then be the only one that does.
    let in_url = url.is_some_and(|url| url.contains("rank="));
    let known = |number| if in_url { None } else { Some(number) };
    let (rank, world_size) = (known(place.rank), known(place.world_size));
    Ok(KnownRank { rank, world_size, met: place.rendezvous })
}
