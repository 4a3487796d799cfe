//! What a backend says of itself to the registry, and what it is given to connect a group.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Backend, BackendOptions, Capabilities, Share};
use crate::generated::error::{Error, Result};
use crate::rendezvous::{JoinObserver, Rendezvous};
use crate::store::Store;
use crate::tensor::Device;

/// A backend: its row in the registry.
pub(crate) struct Registration {
    /// Its name, in lower case.
    pub(crate) name: &'static str,
    /// Other names for it.
    pub(crate) aliases: &'static [&'static str],
    /// The kind of device that it serves, and that its bare name stands for.
    pub(crate) device: &'static str,
    /// Kinds of devices that it may be named for besides.
    pub(crate) other_devices: &'static [&'static str],
    /// Whether it can be used in this process, and if not, why.
    pub(crate) availability: fn() -> Result<()>,
    /// What it can do, in every process. `None` where this build does not have it.
    pub(crate) capabilities: Option<fn() -> Capabilities>,
    /// Initialises what of it there is once in a process, before the first group.
    pub(crate) initialise: fn() -> Result<()>,
    /// Refuses options that it cannot take.
    pub(crate) check: fn(&BackendOptions) -> Result<()>,
    /// Where the launcher of its library says who this process is: finds that out.
    pub(crate) find_place: Option<FindPlace>,
    /// Whether a group over it can be given other members.
    pub(crate) reconfigures: bool,
    /// Joins a group, when all its ranks are there.
    pub(crate) connect: Connect,
}

/// Joins a group.
pub(crate) type Connect = for<'a> fn(Bootstrap<'a>) -> ConnectFuture<'a>;

/// A group that is being joined.
pub(crate) type ConnectFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send + 'a>>;

/// Finds the place of this process in the job, from what the caller says of it.
pub(crate) type FindPlace = fn(&KnownPlace, Duration) -> Result<PlaceInJob>;

/// What a backend needs to join a group.
#[cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "that backend asks for more"))]
pub(crate) struct Bootstrap<'a> {
    /// The name under which the backend was asked for.
    pub(crate) backend: &'static str,
    /// Where the ranks meet.
    pub(crate) store: &'a Arc<dyn Store>,
    /// This rank.
    pub(crate) rank: u32,
    /// The number of ranks.
    pub(crate) size: u32,
    /// Global ranks of the members, by rank in the group.
    #[allow(dead_code, reason = "only registered backends are told")]
    pub(crate) members: &'a [u32],
    /// The group's name.
    pub(crate) group: &'a str,
    /// The name under which its ranks meet in the store.
    pub(crate) meeting: &'a str,
    /// How often, or under which number, the group was reconfigured; 0 as it was made. Frames of
    /// other generations are dropped.
    pub(crate) generation: u32,
    /// How long the others are waited for.
    pub(crate) timeout: Duration,
    /// Who looks out for a reason why the others never come; none: nobody does.
    pub(crate) observer: Option<&'a dyn JoinObserver>,
    /// The device that the group is bound to.
    pub(crate) device: Option<Device>,
    /// What is chosen about the backend.
    pub(crate) options: Option<&'a BackendOptions>,
    /// What was split off the group from which this one comes.
    pub(crate) share: Option<Share>,
    /// The group's backend for the host, for that of another device.
    pub(crate) host: Option<Arc<dyn Backend>>,
}

/// What the caller of `init_process_group` says of this process.
#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "only that backend asks for it"))]
pub(crate) struct KnownPlace {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    /// Whether the ranks have a store, or a URL that leads to one.
    pub(crate) has_store: bool,
}

/// Where this process is in a job that the launcher of a backend's library started.
pub(crate) struct PlaceInJob {
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// The store in which the ranks meet, if the backend found one.
    pub(crate) rendezvous: Option<Rendezvous>,
}

impl Registration {
    /// The row of a backend that needs nothing but to be connected.
    pub(crate) const fn new(name: &'static str, device: &'static str, connect: Connect) -> Self {
        Registration {
            name,
            aliases: &[],
            device,
            other_devices: &[],
            availability: || Ok(()),
            capabilities: Some(Capabilities::complete),
            initialise: || Ok(()),
            check: |_| Ok(()),
            find_place: None,
            reconfigures: false,
            connect,
        }
    }

    /// The row of a backend that this build does not have; `availability` says why.
    #[allow(dead_code, reason = "some build has all backends")]
    pub(crate) const fn missing(
        name: &'static str,
        device: &'static str,
        availability: fn() -> Result<()>,
    ) -> Self {
        let connect: Connect = |bootstrap| {
            let why = "this build of polyrank does not have it".to_owned();
            let error = Error::BackendUnavailable { backend: bootstrap.backend.into(), why };
            Box::pin(std::future::ready(Err(error)))
        };
        let row = Registration::new(name, device, connect);
        Registration { availability, capabilities: None, ..row }
    }
}
