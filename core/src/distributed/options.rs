//! How the default group and the groups out of it are made. Knows nothing of how they meet.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::BackendOptions;
use crate::store::Store;
use crate::tensor::Device;

/// How the default group is made.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct InitOptions {
    /// `tcp`, or pairs as `cpu:tcp`. By default those that serve the kind of `device`, else the
    /// accelerator that is found here: `cpu:tcp,cuda:nccl` for CUDA devices where NCCL can be
    /// used, else `tcp`.
    pub backend: Option<String>,
    /// Where ranks meet: `env://` (the default), `tcp://host:port`, `file:///path`.
    pub init_method: Option<String>,
    /// Limit of the rendezvous and of operations; 30 minutes by default.
    pub timeout: Option<Duration>,
    /// Number of ranks; from the URL or the environment by default.
    pub world_size: Option<u32>,
    /// This rank; from the URL or the environment by default.
    pub rank: Option<u32>,
    /// The store to meet in, instead of an URL; needs `rank` and `world_size`.
    pub store: Option<Arc<dyn Store>>,
    /// Name of the group, `default_pg` by default.
    pub group_name: Option<String>,
    /// The device of this rank.
    pub device: Option<Device>,
    /// What is chosen about one of its backends, as `NcclOptions`.
    pub backend_options: Option<BackendOptions>,
    /// The version of what this program has to say to the others: a rank of another one is refused.
    /// One that gives none belongs to any.
    pub version: Option<String>,
    /// Whether the group is made without members, which it gets by
    /// [`reconfigure`](crate::ProcessGroup::reconfigure): then no rank is waited for, and rank and
    /// size have no meaning.
    pub enable_reconfigure: bool,
}

setters! {
    InitOptions {
        backend: impl Into<String> => Some(backend.into()),
        init_method: impl Into<String> => Some(init_method.into()),
        timeout: Duration => Some(timeout),
        world_size: u32 => Some(world_size),
        rank: u32 => Some(rank),
        store: Arc<dyn Store> => Some(store),
        group_name: impl Into<String> => Some(group_name.into()),
        device: Device => Some(device),
        backend_options: impl Into<BackendOptions> => Some(backend_options.into()),
        version: impl Into<String> => Some(version.into()),
        enable_reconfigure: bool => enable_reconfigure,
    }
}

/// How [`new_group`](super::new_group) makes a group.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewGroupOptions {
    /// Global ranks of the members; all by default.
    pub ranks: Option<Vec<u32>>,
    /// Limit of operations; the default group's by default.
    pub timeout: Option<Duration>,
    /// Free text.
    pub description: Option<String>,
    /// Whether members keep the order of `ranks` instead of being sorted.
    pub keep_order: bool,
    /// `tcp`, or pairs as `cpu:tcp`; the default group's by default.
    pub backend: Option<String>,
    /// The device of this rank; the default group's by default.
    pub device: Option<Device>,
    /// Name of the group; made of the members by default.
    pub group_name: Option<String>,
    /// What is chosen about one of its backends, as `NcclOptions`; the default group's by default.
    pub backend_options: Option<BackendOptions>,
    /// Whether the group is made without members, as with [`InitOptions::enable_reconfigure`]:
    /// `ranks` have no meaning then.
    pub enable_reconfigure: bool,
}

setters! {
    NewGroupOptions {
        ranks: impl Into<Vec<u32>> => Some(ranks.into()),
        timeout: Duration => Some(timeout),
        description: impl Into<String> => Some(description.into()),
        keep_order: bool => keep_order,
        backend: impl Into<String> => Some(backend.into()),
        device: Device => Some(device),
        group_name: impl Into<String> => Some(group_name.into()),
        backend_options: impl Into<BackendOptions> => Some(backend_options.into()),
        enable_reconfigure: bool => enable_reconfigure,
    }
}
