//! How groups are made: over a store, and out of other groups. Knows no transport.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::comparisons::OpenComparisons;
use super::group_calls::GroupCalls;
use super::hooks::Hooks;
use super::liveness::Liveness;
use super::reconfigure::{Site, SurvivorCalls};
use super::shared_texts::SharedTexts;
use super::sibling_names::SiblingNames;
use super::{DEFAULT_TIMEOUT, Inner, ProcessGroup, held_names, next_identity};
use crate::backend::memberless::Memberless;
use crate::backend::options::ProgramOptions;
use crate::backend::registration::Bootstrap;
use crate::backend::registry::{self, BackendName, BackendSpec};
use crate::backend::{Backend, BackendOptions, Share};
use crate::blocking::block_on;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::{GroupFacts, Recorder};
use crate::rendezvous;
use crate::rendezvous::keys_of_group;
use crate::store::{Bound, GroupStore, PrefixStore, Store};
use crate::tensor::Device;
use crate::work::group_names;

/// How a group is made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GroupOptions {
    /// Which backend serves which device; `cpu:tcp` by default.
    pub backend: BackendSpec,
    /// Limit of making the group and of its operations; 30 minutes by default.
    pub timeout: Option<Duration>,
    /// Free text that says what the group is for.
    pub description: String,
    /// The device that the group is bound to.
    pub device: Option<Device>,
    /// What is chosen about one of its backends, as `NcclOptions`.
    pub backend_options: Option<BackendOptions>,
}

setters! {
    GroupOptions {
        backend: BackendSpec => backend,
        timeout: Duration => Some(timeout),
        description: impl Into<String> => description.into(),
        device: Device => Some(device),
        backend_options: impl Into<BackendOptions> => Some(backend_options.into()),
    }
}

impl GroupOptions {
    /// Refuses backends for the other kind of device, a device that none of them serves, options of
    /// a backend that the group does not have, and wrong ones: before anybody is waited for.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_options()?;
        self.backend.check()?;
        #[cfg(feature = "tcp")]
        super::chaos::of_environment()?;
        // Without the feature there is no way by the host.
        let is_served = self.backend.serves("cuda") && !self.backend.stages_cuda();
        let is_served = is_served || cfg!(feature = "cuda");
        if matches!(self.device, Some(Device::Cuda(_))) && !is_served {
            let message = format!(
                "the group cannot be bound to a CUDA device: its backends are {}",
                self.backend
            );
            return Err(Error::InvalidArgument { message });
        }
        Ok(())
    }

    fn check_options(&self) -> Result<()> {
        let Some(chosen) = &self.backend_options else { return Ok(()) };
        let (name, backend) = (chosen.name(), chosen.backend());
        if !self.backend.takes(chosen) {
            if let Some(foreign) = chosen.get::<ProgramOptions>() {
                let why = foreign.why_foreign.as_deref().unwrap_or_default();
                let message = format!(
                    "options of a group must be BackendOptions{why}. Others are for backends that \
                     the program registered, and those of this group are {}",
                    self.backend
                );
                return Err(Error::InvalidType { message });
            }
            let message = format!(
                "{name} are for groups in which {backend} serves a device, and the backends of \
                 this one are {}. Give BackendOptions, or a backend as '{backend}'",
                self.backend
            );
            return Err(Error::InvalidArgument { message });
        }
        registry::check(chosen)
    }
}

/// The store of a group, through the connection that its user has too, and through one of its own:
/// a wait in one does not hold up the other.
pub(super) struct Stores {
    pub(super) group: Arc<dyn Store>,
    pub(super) own: Arc<dyn Store>,
}

impl Stores {
    fn with_prefix(self, prefix: &str) -> Stores {
        let under = |store| Arc::new(PrefixStore::new(prefix, store));
        Stores { group: under(self.group), own: under(self.own) }
    }
}

/// What a group takes over from the one that it was split off.
#[derive(Default)]
pub(super) struct Origin {
    /// What is wrong with this rank, if something is.
    pub(super) obstacle: Option<Error>,
    /// Its share of the parent's backend.
    pub(super) share: Option<Share>,
    pub(super) open_comparisons: Arc<OpenComparisons>,
    pub(super) siblings: Arc<SiblingNames>,
    /// Prefix of its keys in the root group's store; empty for the root group.
    pub(super) store_prefix: String,
    /// What is known of the ranks of the root group.
    pub(super) liveness: Option<Arc<Liveness>>,
    /// What its description is said to be if none was given.
    pub(super) undescribed: String,
}

/// Where the ranks of a group that was not made out of another note that they live.
const LIVENESS: &str = "alive";

/// Refuses a rank that no group of `size` ranks has.
fn check_rank(rank: u32, size: u32) -> Result<()> {
    let message = match size {
        0 => "world_size must be at least 1, got 0".to_owned(),
        _ if rank < size => return Ok(()),
        _ => format!("rank must be from 0 to {}, got {rank}", size - 1),
    };
    Err(Error::InvalidArgument { message })
}

/// A connection to `store` for a group of `size` ranks; one rank alone waits for nobody.
pub(super) async fn own_connection(store: &Arc<dyn Store>, size: u32) -> Result<Arc<dyn Store>> {
    if size == 1 { Ok(store.clone()) } else { store.clone_store_async().await }
}

/// Sees that nothing is wrong with this rank (`possible`), that it has its backends, and all ranks
/// the same.
async fn agree_on_backends(
    own: &dyn Store,
    name: &str,
    (rank, size): (u32, u32),
    (spec, possible): (&BackendSpec, Result<()>),
    timeout: Duration,
) -> Result<()> {
    let Err(why) = possible.and_then(|()| spec.available()) else {
        return rendezvous::agree(own, name, (rank, size), &spec.served(), timeout).await;
    };
    // The others would wait for this rank.
    if size > 1 {
        rendezvous::refuse(own, name, (rank, size), &why, timeout).await;
    }
    Err(why)
}

impl ProcessGroup {
    /// Makes a group of `size` ranks that meet in `store` under `name`. Blocks until all are there.
    ///
    /// # Errors
    /// [`Error::RendezvousTimeout`] naming the ranks that did not come within the timeout;
    /// [`Error::BackendUnavailable`]; [`Error::InvalidArgument`] for a rank outside of 0..size, and
    /// for options that are wrong or of a backend that the group does not have;
    /// [`Error::DuplicateGroup`] for the name of a group that this process keeps, and of one that
    /// it is in as this rank in this store. What is wrong with one rank alone, the others learn.
    pub fn new(
        store: Arc<dyn Store>,
        rank: u32,
        size: u32,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        block_on(Self::new_async(store, rank, size, name, options))
    }

    /// As [`ProcessGroup::new`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::new`].
    pub async fn new_async(
        store: Arc<dyn Store>,
        rank: u32,
        size: u32,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        Self::new_if(Ok(()), store, (rank, size), name, options).await
    }

    /// As [`ProcessGroup::new_async`], if it is `possible` for this rank; else the others learn why
    /// it is not.
    pub(crate) async fn new_if(
        possible: Result<()>,
        store: Arc<dyn Store>,
        (rank, size): (u32, u32),
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        check_rank(rank, size)?;
        let bound = Bound::after(options.timeout.unwrap_or(DEFAULT_TIMEOUT));
        let users = store;
        let store = bound.of(&users);
        let own = own_connection(&store, size).await?;
        let is_free = held_names::refuse(name, rank, &users).await;
        let stores = Stores { group: store, own };
        let members = (0..size).collect();
        let origin = Origin { obstacle: possible.and(is_free).err(), ..Origin::default() };
        let made = Self::with_members(stores, rank, members, name, options, origin).await;
        made.inspect(|made| {
            bound.lift();
            made.hold_name_in(&users);
        })
    }

    /// As [`ProcessGroup::new`], for ranks that have the global ranks `members`, and come from
    /// `origin`.
    pub(super) async fn with_members(
        stores: Stores,
        rank: u32,
        members: Vec<u32>,
        name: &str,
        options: GroupOptions,
        origin: Origin,
    ) -> Result<ProcessGroup> {
        let Origin { obstacle, share, store_prefix, liveness, .. } = origin;
        let possible = obstacle.map_or_else(|| options.check(), Err);
        let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let Stores { group: store, own } = stores.with_prefix(&keys_of_group(name));
        let size = members.len() as u32;
        let backends = (&options.backend, possible);
        agree_on_backends(&*own, name, (rank, size), backends, timeout).await?;
        // The backends of a group meet one after the other.
        let meeting_for_cuda = format!("{name}:cuda");
        let connect = |backend: BackendName, store, share, host: Option<Arc<dyn Backend>>| {
            let meeting = if host.is_some() { &meeting_for_cuda } else { name };
            (backend.registration().connect)(Bootstrap {
                backend: backend.as_str(),
                store,
                rank,
                size,
                members: &members,
                group: name,
                meeting,
                generation: 0,
                timeout,
                observer: None,
                device: options.device,
                options: options.backend_options.as_ref(),
                share,
                host,
            })
        };
        let is_root = size > 1 && store_prefix.is_empty();
        let alive: Arc<dyn Store> = Arc::new(PrefixStore::new(LIVENESS, store.clone()));
        if is_root {
            Liveness::announce_host(&*alive, rank).await?;
        }
        // Tensors of the host are needed in every group.
        let cpu = options.backend.backend_for("cpu").unwrap_or_else(BackendName::tcp);
        let cpu = connect(cpu, &own, None, None).await?;
        let cuda = options.backend.backend_for("cuda");
        let cuda = match cuda.filter(|_| !options.backend.stages_cuda()) {
            Some(backend) => Some(connect(backend, &store, share, Some(cpu.clone())).await?),
            None => None,
        };
        let liveness = match is_root {
            true => Some(Liveness::new(name, alive, None).await?),
            false => liveness.as_ref().map(Liveness::share),
        };
        let identity = named_identity(name);
        let store = Arc::new(GroupStore::new(name, store));
        origin.siblings.add(&store);
        let inner = Inner {
            rank,
            members,
            liveness,
            store,
            cuda,
            open_comparisons: origin.open_comparisons,
            siblings: origin.siblings,
            store_prefix,
            undescribed: origin.undescribed,
            ..Inner::first(identity, name, options, cpu)
        };
        Ok(ProcessGroup::of(inner, Site::default()))
    }

    /// A group without members, for [`ProcessGroup::reconfigure`]: until its first call, rank and
    /// size are 0, and operations raise [`Error::NoMembers`]. Waits for nobody. Members of several
    /// hosts reach this process at the interface that leads to the store `near`, or at those that
    /// `POLYRANK_IFNAME` names; with neither, on this host only.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the backend cannot be reconfigured; [`Error::InvalidArgument`] for
    /// wrong options.
    pub fn without_members(
        near: Option<&dyn Store>,
        name: &str,
        options: GroupOptions,
    ) -> Result<ProcessGroup> {
        let site = near.map_or_else(|| Site::at(None, None), Site::near);
        Self::without_members_at(site, name, options, String::new())
    }

    /// As [`ProcessGroup::without_members`], for a process that others meet at `site`. If it has no
    /// description, it is said to be `undescribed`.
    pub(crate) fn without_members_at(
        site: Site,
        name: &str,
        options: GroupOptions,
        undescribed: String,
    ) -> Result<ProcessGroup> {
        options.check()?;
        options.backend.available()?;
        let cpu = options.backend.backend_for("cpu").unwrap_or_else(BackendName::tcp);
        let why = "yet: it was made with enable_reconfigure";
        let identity = next_identity();
        let cpu = Arc::new(Memberless::new(cpu.as_str(), name, why));
        let inner = Inner { undescribed, ..Inner::first(identity, name, options, cpu) };
        let group = ProcessGroup::of(inner, site);
        if !group.supports_reconfigure() {
            let who = format!("a group of {}", group.backend_config());
            return Err(Error::Unsupported { who, operation: "enable_reconfigure".to_owned() });
        }
        group_names::add(identity, name);
        Ok(group)
    }
}

/// A new identity, of a group of this name.
fn named_identity(name: &str) -> u64 {
    let identity = next_identity();
    group_names::add(identity, name);
    identity
}

impl Inner {
    /// That of a new group, without members.
    fn first(identity: u64, name: &str, options: GroupOptions, cpu: Arc<dyn Backend>) -> Inner {
        let timeout = options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let hooks = Arc::<Hooks>::default();
        // What is wrong with them is told when options are checked.
        #[cfg(feature = "tcp")]
        if let Ok(Some(faults)) = super::chaos::of_environment() {
            hooks.set_faults(faults);
        }
        Inner {
            identity,
            epoch: 0,
            name: name.into(),
            shared_name: name.into(),
            origins: None,
            description: options.description.clone(),
            undescribed: String::new(),
            rank: 0,
            members: Vec::new(),
            store: Arc::new(GroupStore::without_members(name)),
            barrier_store: Mutex::default(),
            kept_memory: Arc::default(),
            spec: options.backend.clone(),
            cpu,
            cuda: None,
            timeout_ns: AtomicU64::new(super::nanoseconds(timeout)),
            splits: Mutex::default(),
            group_calls: GroupCalls::default(),
            shared_texts: SharedTexts::default(),
            bound_device: options.device,
            monitored_barriers: AtomicU64::new(0),
            survivor_calls: SurvivorCalls::default(),
            options,
            hooks,
            hints: Arc::default(),
            #[cfg(feature = "tcp")]
            recorder: Recorder::new(GroupFacts { name: name.into(), ..GroupFacts::default() }),
            exchanges_handles: Arc::default(),
            open_comparisons: Arc::default(),
            siblings: Arc::default(),
            store_prefix: String::new(),
            liveness: None,
        }
    }

    /// What the next members take over, without members.
    pub(super) fn successor(&self) -> Inner {
        Inner {
            epoch: self.epoch + 1,
            hooks: self.hooks.clone(),
            hints: self.hints.clone(),
            #[cfg(feature = "tcp")]
            recorder: self.recorder.clone(),
            exchanges_handles: self.exchanges_handles.clone(),
            description: self.description.clone(),
            undescribed: self.undescribed.clone(),
            timeout_ns: AtomicU64::new(self.timeout_ns.load(Ordering::Relaxed)),
            ..Inner::first(self.identity, &self.name, self.options.clone(), self.cpu.clone())
        }
    }
}
