//! The default group, the registry of groups of this process, and the collectives over the default
//! group. Knows no backend.

mod breakpoint;
mod choice;
mod current;
mod formation;
mod joined_groups;
mod leaving;
mod messages;
#[cfg(feature = "tcp")]
mod metrics;
mod options;
mod p2p_op;
mod refusals;
mod registered;
mod sparse;
pub(crate) mod surroundings;
mod without_members;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend;
use crate::backend::registry::BackendSpec;
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
use crate::process_group::{Maker, ProcessGroup, SplitOptions};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::rendezvous::{self, RankClaim};
use crate::sorted::sort;
use crate::store::{PrefixStore, Store};

pub use crate::debug_level::{
    DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env,
};
pub use crate::generated::distributed::*;
pub use crate::process_group::topology::compute_dims;
pub use crate::rendezvous::create_store_client;
#[doc(hidden)]
pub use breakpoint::Breakpoint;
#[cfg(feature = "tcp")]
pub use breakpoint::{BreakpointOptions, breakpoint};
pub use choice::{BackendInfo, BuildInfo, Recommendation, build_info, recommend_backend};
pub use current::{current_process_group, with_process_group, with_process_group_async};
use formation::{form, group_options};
pub(crate) use joined_groups::join_group_if;
pub use joined_groups::{join_group, join_group_async};
use leaving::leave_all;
pub use messages::{
    iprobe, irecv, isend, monitored_barrier, monitored_barrier_async, ppermute, probe, recv, send,
    sendrecv,
};
#[cfg(feature = "tcp")]
pub use metrics::metrics;
pub use options::{InitOptions, NewGroupOptions};
pub use p2p_op::{P2POp, batch_isend_irecv, check_one_group};
#[cfg(feature = "internals")]
pub use registered::with_default_group;
#[cfg(not(feature = "internals"))]
use registered::with_default_group;
pub use sparse::{all_reduce_sparse, all_reduce_sparse_async};
pub use surroundings::{
    get_default_backend_for_device, get_node_local_rank, is_available, is_gloo_available,
    is_launched, is_mpi_available, is_nccl_available, is_torchelastic_launched, is_ucc_available,
    is_xccl_available,
};

struct World {
    process_id: u32,
    /// Whether the store in which the world met ends with this process.
    hosting: bool,
    /// This rank's place in that store; none in a world that was made without members.
    claim: Option<RankClaim>,
    group: ProcessGroup,
    /// Those of [`new_group`], and the default group, in the order in which they were made.
    groups: Vec<ProcessGroup>,
}

impl World {
    /// Keeps `group` no longer; whether it was kept. Names are no help: those of a world that was
    /// left are given again.
    fn forget(&mut self, group: &ProcessGroup) -> bool {
        let identity = group.identity();
        let found = self.groups.iter().position(|kept| kept.identity() == identity);
        found.map(|found| self.groups.remove(found)).is_some()
    }

    /// Whether a group of this name is registered.
    fn has_group(&self, name: &str) -> bool {
        self.groups.iter().any(|group| group.group_name() == name)
    }

    /// Leaves all groups, the default group last. The host of the store stays for a while until the
    /// others are done with it, of a group that broke for `broken_limit` at most; those that died
    /// would be waited for in vain.
    async fn leave(self, broken_limit: Duration) -> Result<()> {
        let World { hosting, claim, group, groups, .. } = self;
        let broken = group.is_broken();
        let mut ended = Ok(());
        let default = group.identity();
        for other in groups.iter().rev().filter(|other| other.identity() != default) {
            ended = ended.and(other.leave(None).await);
        }
        ended = ended.and(group.leave(Some(backend::deadline())).await);
        // Members that came by `reconfigure` have another store, which the group has left.
        let Some(claim) = claim.filter(|_| !group.was_reconfigured()) else { return ended };
        let (name, ranks) = (group.group_name(), (group.rank(), group.size()));
        let free = match broken {
            true => find_free(claim.store()).await.map(|()| claim.store().clone()),
            false => free_store(claim.store()).await,
        };
        let scoped = free.as_ref().map(|store| claim.scoped(store.clone()));
        let mut left = match (&scoped, broken) {
            // The others may be behind, and ask the store for the reason.
            (Ok(store), true) if hosting => {
                rendezvous::leave_async(&**store, name, ranks, hosting, broken_limit).await
            }
            // The host may have left cleanly, and stay for this rank.
            (Ok(store), true) => rendezvous::leave_at_once(&**store, name, ranks.0).await,
            (Ok(store), false) => {
                rendezvous::leave_async(&**store, name, ranks, hosting, LEAVE_LIMIT).await
            }
            // A store that may be silent is not waited for: the place is free when the connection
            // ends.
            (Err(error), _) => Err((*error).clone()),
        };
        if let (true, Ok(store)) = (hosting, &scoped) {
            // Ranks that came late have compared by now.
            let keys = rendezvous::keys_of_group(name);
            let store: Arc<dyn Store> = Arc::new(PrefixStore::new(keys, store.clone()));
            ended = ended.and(group.open_comparisons().look(&store).await);
        }
        if let (Ok(()), Ok(store), false) = (&left, &free, broken) {
            // With the last place, everything goes that the ranks left in the store.
            left = give_back(&claim, &**store).await;
        }
        drop(claim);
        if let Err(error) = left {
            tracing::debug!(%error, "did not leave the store in order");
        }
        ended
    }
}

/// Waits until no other thread uses the connection of this rank, which may wait for a key there.
async fn find_free(store: &Arc<dyn Store>) -> Result<()> {
    rendezvous::find_store_free(&**store, FREE_LIMIT).await
}

/// A handle on the store that does not wait for another thread.
async fn free_store(store: &Arc<dyn Store>) -> Result<Arc<dyn Store>> {
    match find_free(store).await {
        Ok(()) => Ok(store.clone()),
        Err(Error::StoreTimeout { .. }) => store.clone_store_async().await,
        Err(error) => Err(error),
    }
}

/// Leaves the place of a rank in a group that is whole to the rank that comes next.
async fn give_back(claim: &RankClaim, store: &dyn Store) -> Result<()> {
    match claim.release_in(store).await {
        // A store that ended has forgotten it.
        Err(Error::Network { .. }) => Ok(()),
        released => released,
    }
}

/// How long the host of the store stays for the others at most.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// How long it stays for the ranks of a group that broke, some of which may be behind.
const BROKEN_LIMIT: Duration = Duration::from_secs(3);
/// How long it stays after it aborted the group itself, which all ranks were told.
const ABORT_LIMIT: Duration = Duration::from_secs(1);
/// How long another thread may use the store before a rank that leaves takes a connection of its
/// own.
const FREE_LIMIT: Duration = Duration::from_millis(20);

static WORLD: ProcessMutex<Option<World>> = ProcessMutex::new(None);

/// One more than the number of the process whose default group is being made now; zero: none is.
static FORMING: AtomicU64 = AtomicU64::new(0);

/// While it lives, no other thread of this process makes a default group: both would be the same
/// rank's, and each would wait for the other's ranks.
struct FormationGuard;

impl FormationGuard {
    /// None if another thread makes one. What a parent process was making before a fork does not
    /// count.
    fn begin() -> Option<FormationGuard> {
        let ours = u64::from(crate::clock::process_id()) + 1;
        let others = FORMING.swap(ours, Ordering::Relaxed);
        (others != ours).then_some(FormationGuard)
    }
}

impl Drop for FormationGuard {
    fn drop(&mut self) {
        FORMING.store(0, Ordering::Relaxed);
    }
}

/// Name of the default group in its store.
const DEFAULT_NAME: &str = "default_pg";

/// Makes the default group. Blocks until all ranks are there.
///
/// # Errors
/// [`Error::AlreadyInitialized`]; [`Error::DuplicateGroup`] for the name of a group that was
/// joined; [`Error::InvalidArgument`] for both a store and a URL, or a store without rank and size;
/// the errors of the rendezvous, which name missing ranks.
pub fn init_process_group(options: InitOptions) -> Result<ProcessGroup> {
    block_on(init_process_group_async(options))
}

/// As [`init_process_group`], without blocking, but for an MPI library that is initialised: that
/// belongs on the thread that calls.
///
/// # Errors
/// As [`init_process_group`].
pub async fn init_process_group_async(options: InitOptions) -> Result<ProcessGroup> {
    init_process_group_if(Ok(()), options).await
}

/// As [`init_process_group_async`], if it is `possible` for this rank; else the others learn why it
/// is not.
pub(crate) async fn init_process_group_if(
    possible: Result<()>,
    options: InitOptions,
) -> Result<ProcessGroup> {
    let _forming = FormationGuard::begin().ok_or(Error::AlreadyInitialized)?;
    if is_initialized() {
        return Err(Error::AlreadyInitialized);
    }
    let name = options.group_name.as_deref().unwrap_or(DEFAULT_NAME);
    joined_groups::refuse_name(name)?;
    if options.enable_reconfigure {
        possible?;
        let (_, group_options) = group_options(&options, DEFAULT_NAME)?;
        let site = without_members::site(&options)?;
        let group = ProcessGroup::without_members_at(site, name, group_options, String::new())?;
        return without_members::enter(group);
    }
    let made = form(possible, &options, name, DEFAULT_NAME).await?;
    let group = made.group.clone();
    if !enter(made) {
        // Nothing has run in it.
        let _ = group.shutdown_async().await;
        return Err(Error::AlreadyInitialized);
    }
    Ok(group)
}

/// Makes `made` the world, unless there is one.
fn enter(made: World) -> bool {
    let mut world = world();
    let free = world.is_none();
    if free {
        registered::set(made.process_id, made.group.clone());
        made.group.hold_name();
        *world = Some(made);
    }
    free
}

/// Whether the default group exists in this process. A forked child has none.
pub fn is_initialized() -> bool {
    with_default_group(|_| ()).is_some()
}

/// The default group.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn default_group() -> Result<ProcessGroup> {
    with_default_group(ProcessGroup::clone).ok_or(Error::NotInitialized)
}

/// `group`, or the default group.
///
/// # Errors
/// [`Error::NotInitialized`]; [`Error::InvalidGroup`] if the group was destroyed.
pub fn group_or_default(group: Option<&ProcessGroup>) -> Result<ProcessGroup> {
    group.map_or_else(default_group, |group| group.unless_left().map(|()| group.clone()))
}

/// A group of some ranks of the default group; `None` on ranks that are not members. Only members
/// wait for one another; ranks that are in several new groups make them in the same order.
///
/// ```no_run
/// use polyrank::distributed::{NewGroupOptions, new_group};
///
/// let evens = new_group(NewGroupOptions::default().ranks([0, 2]).group_name("evens"))?;
/// # Ok::<(), polyrank::Error>(())
/// ```
///
/// # Errors
/// As [`ProcessGroup::split_group`]; [`Error::DuplicateGroup`] for the name of another group.
pub fn new_group(options: NewGroupOptions) -> Result<Option<ProcessGroup>> {
    block_on(new_group_async(options))
}

/// As [`new_group`], without blocking.
///
/// # Errors
/// As [`new_group`].
pub async fn new_group_async(options: NewGroupOptions) -> Result<Option<ProcessGroup>> {
    new_group_if(Ok(()), options).await
}

/// As [`new_group_async`], if it is `possible` for this rank; else the others learn why it is not.
pub(crate) async fn new_group_if(
    possible: Result<()>,
    options: NewGroupOptions,
) -> Result<Option<ProcessGroup>> {
    let parent = default_group()?;
    let mut ranks = options.ranks.unwrap_or_else(|| parent.ranks().to_vec());
    if !options.keep_order {
        sort(&mut ranks);
    }
    let split = SplitOptions {
        timeout: options.timeout,
        backend: None,
        device: options.device,
        name: options.group_name,
        backend_options: options.backend_options,
        description: options.description,
        ..SplitOptions::default()
    };
    let backend = options.backend.as_deref().map(str::parse::<BackendSpec>).transpose();
    let taken = split
        .name
        .as_ref()
        .filter(|name| world().as_ref().is_some_and(|world| world.has_group(name)));
    let is_free = match taken {
        Some(name) => Err(Error::DuplicateGroup { group_name: name.clone() }),
        None => Ok(()),
    };
    let backend = match possible.and(is_free).and(backend) {
        Ok(backend) => backend,
        // The others may find nothing wrong, and would wait for this rank.
        Err(why) if !options.enable_reconfigure => {
            return Err(parent.refuse_split(Maker::NewGroup, &ranks, split, why).await);
        }
        Err(why) => return Err(why),
    };
    let split = SplitOptions { backend, ..split };
    if options.enable_reconfigure {
        let group = parent.split_without_members(split)?;
        world().iter_mut().for_each(|world| world.groups.push(group.clone()));
        return Ok(Some(group));
    }
    let group = parent.split_by(Maker::NewGroup, &ranks, split).await?;
    if let (Some(group), Some(world)) = (&group, world().as_mut()) {
        world.groups.push(group.clone());
    }
    Ok(group)
}

/// Leaves one group, with the default group those that [`new_group`] made as well; with `None` all
/// groups, also those that were joined. A new default group can be made afterwards. A group of
/// [`new_group`] is left without waiting for other ranks: where they disagree with this one and
/// have not said so yet, it learns that when it leaves the default group.
///
/// # Errors
/// [`Error::NotInitialized`]; [`Error::InvalidGroup`] for a group that was destroyed; that ranks
/// disagree, as [`ProcessGroup::shutdown`].
pub fn destroy_process_group(group: Option<&ProcessGroup>) -> Result<()> {
    block_on(destroy_process_group_async(group))
}

/// As [`destroy_process_group`], without blocking.
///
/// # Errors
/// As [`destroy_process_group`].
pub async fn destroy_process_group_async(group: Option<&ProcessGroup>) -> Result<()> {
    let removed = take(group)?;
    let Some(group) = removed.first() else { return Ok(()) };
    let leave = async {
        match removed {
            RemovedGroups::Group(group) => group.leave(None).await,
            RemovedGroups::Unregistered(group) => group.shutdown_async().await,
            RemovedGroups::Worlds(worlds) => leave_all(worlds, BROKEN_LIMIT).await,
        }
    };
    group.within_call("destroy_process_group", leave).await
}

/// What is not registered any more, and is to be left.
enum RemovedGroups {
    Group(ProcessGroup),
    /// One that was made in another way than by `new_group`.
    Unregistered(ProcessGroup),
    Worlds(Vec<World>),
}

impl RemovedGroups {
    /// The one by which the call that leaves them is known; none if there are none.
    fn first(&self) -> Option<ProcessGroup> {
        match self {
            RemovedGroups::Group(group) | RemovedGroups::Unregistered(group) => Some(group.clone()),
            // The default group is the last one.
            RemovedGroups::Worlds(worlds) => worlds.last().map(|world| world.group.clone()),
        }
    }
}

fn take(group: Option<&ProcessGroup>) -> Result<RemovedGroups> {
    if let Some(joined) = group.and_then(joined_groups::take) {
        return Ok(RemovedGroups::Worlds(vec![joined]));
    }
    let joined = if group.is_none() { joined_groups::take_all() } else { Vec::new() };
    let mut guard = world();
    let Some(world) = guard.as_mut() else {
        return match group {
            Some(group) => take_unregistered(group),
            None if joined.is_empty() => Err(Error::NotInitialized),
            None => Ok(RemovedGroups::Worlds(joined)),
        };
    };
    let default = world.group.identity();
    match group.filter(|group| group.identity() != default) {
        Some(group) if world.forget(group) => Ok(RemovedGroups::Group(group.clone())),
        Some(group) => take_unregistered(group),
        None => {
            let world = guard.take().ok_or(Error::NotInitialized)?;
            registered::clear();
            Ok(RemovedGroups::Worlds(joined.into_iter().chain([world]).collect()))
        }
    }
}

fn take_unregistered(group: &ProcessGroup) -> Result<RemovedGroups> {
    group.unless_left().map(|()| RemovedGroups::Unregistered(group.clone()))
}

/// Aborts a group and forgets it, with the default group those that [`new_group`] made as well;
/// with `None` all groups, also those that were joined. Another default group can be made
/// afterwards. Every operation of it fails, on all ranks. Waits until the others were told, for a
/// second at most.
///
/// # Errors
/// [`Error::NotInitialized`] if there is no group to abort; [`Error::InvalidGroup`] for one that
/// was destroyed.
pub fn abort_process_group(group: Option<&ProcessGroup>) -> Result<()> {
    block_on(abort_process_group_async(group))
}

/// As [`abort_process_group`], without blocking.
///
/// # Errors
/// As [`abort_process_group`].
pub async fn abort_process_group_async(group: Option<&ProcessGroup>) -> Result<()> {
    let left = match group.filter(|group| !is_registered(group)) {
        Some(group) => take_unregistered(group)?,
        None => take(group)?,
    };
    let Some(group) = left.first() else { return Ok(()) };
    let leave = async {
        match left {
            RemovedGroups::Group(group) | RemovedGroups::Unregistered(group) => {
                group.abort();
                group.shutdown_async().await
            }
            RemovedGroups::Worlds(worlds) => {
                worlds.iter().flat_map(|world| &world.groups).for_each(ProcessGroup::abort);
                leave_all(worlds, ABORT_LIMIT).await
            }
        }
    };
    // What the others ran differently matters no more.
    let _ = group.within_call("abort_process_group", leave).await;
    Ok(())
}

/// The groups that destroying `group` leaves, the one that is named first: of the default group,
/// those that were made of it as well; with `None`, all of them.
pub(crate) fn left_with(group: Option<&ProcessGroup>) -> Vec<ProcessGroup> {
    let joined = if group.is_none() { joined_groups::all() } else { Vec::new() };
    let guard = world();
    let Some(world) = guard.as_ref() else {
        return group.cloned().into_iter().chain(joined).collect();
    };
    let default = world.group.identity();
    if let Some(named) = group.filter(|named| named.identity() != default) {
        return vec![named.clone()];
    }
    let others = world.groups.iter().filter(|other| other.identity() != default);
    std::iter::once(&world.group).chain(others).cloned().chain(joined).collect()
}

/// Rank of this process in the default group.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn get_rank() -> Result<u32> {
    Ok(default_group()?.rank())
}

/// Number of ranks of the default group.
///
/// # Errors
/// [`Error::NotInitialized`].
pub fn get_world_size() -> Result<u32> {
    Ok(default_group()?.size())
}

/// Whether the process keeps this group: the default group, those that [`new_group`] made, and
/// those that were joined.
pub fn is_registered(group: &ProcessGroup) -> bool {
    let identity = group.identity();
    joined_groups::has(group)
        || world().as_ref().is_some_and(|world| {
            world.groups.iter().any(|registered| registered.identity() == identity)
        })
}

/// The number of groups that this process made with [`init_process_group`] and [`new_group`], or
/// joined with [`join_group`], and has not destroyed.
pub fn get_pg_count() -> u32 {
    let joined = joined_groups::all().len();
    (joined + world().as_ref().map_or(0, |world| world.groups.len())) as u32
}

/// Whether the backend can be used in this process.
pub fn is_backend_available(name: &str) -> bool {
    name.parse().is_ok_and(|name| crate::backend::registry::available(&name).is_ok())
}

/// Why the backend cannot be used in this process: what was looked for, and what is wrong with
/// what was found. `None` if it can.
pub fn backend_unavailable_reason(name: &str) -> Option<String> {
    let available = name.parse().and_then(|name| crate::backend::registry::available(&name));
    available.err().map(|error| error.to_string())
}

/// The world of this process: what a parent process had before a fork is forgotten, untouched.
fn world() -> ProcessMutexGuard<'static, Option<World>> {
    let mut world = WORLD.lock();
    if world.as_ref().is_some_and(|world| world.process_id != crate::clock::process_id()) {
        registered::forget();
        std::mem::forget(world.take());
    }
    world
}
