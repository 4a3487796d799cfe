//! Backends from outside the crate: how they are registered, what their factories are told, and how
//! the ranks of a group of one come together. Knows no particular backend.
//!
//! A factory is called on every rank of a new group, and makes the part of the backend that runs
//! there. What it makes is driven by [`Guarded`], which gives its operations what those of every
//! backend have: numbers, deadlines, errors that say where, and an end when the group is aborted or
//! left.

mod apart;
mod deadlines;
mod guarded;
mod outside;
mod waiting;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use self::guarded::Guarded;
pub use self::outside::{BackendFactory, FactoryFuture};

pub(crate) use self::waiting::until_ended;
use super::registration::{Bootstrap, ConnectFuture, Registration};
use super::{
    Backend, BackendOptions, Call, Capabilities, Direction, EndFuture, IssueOptions,
    IssuedOperation, Leaving, Transfer, registry,
};
use crate::generated::error::{Error, Result};
use crate::process_mutex::{ProcessMutex, ProcessMutexGuard};
use crate::rendezvous;
use crate::store::Store;

/// Kinds of devices that a backend can be named for.
const DEVICES: [&str; 2] = ["cpu", "cuda"];

/// What the factory of a backend is told of the group that is being made, and of this rank of it.
#[derive(Clone)]
#[non_exhaustive]
pub struct BackendContext {
    /// The name under which the backend was registered.
    pub backend: String,
    /// The store of the group: no other group has these keys.
    pub store: Arc<dyn Store>,
    /// This process's rank in the group.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// Limit of making the group and of its operations; zero is none.
    pub timeout: Duration,
    /// The group's name.
    pub group_name: String,
    /// Global ranks of the members, by rank in the group.
    pub global_ranks_in_group: Vec<u32>,
    /// What was chosen about a backend of the group, as `NcclOptions`.
    pub options: Option<BackendOptions>,
}

/// What runs operations in memory of its own: a backend from outside, as [`Guarded`] needs it.
pub(crate) trait Driver: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::complete()
    }
    /// Issues a collective. `place` says which it is: what it fails with begins with that.
    fn collective(&self, place: &str, call: Call, options: IssueOptions)
    -> Result<IssuedOperation>;
    /// Issues a message, as [`Driver::collective`].
    fn message(
        &self,
        place: &str,
        direction: Direction,
        transfer: Transfer,
        options: IssueOptions,
    ) -> Result<IssuedOperation>;
    /// Is told that the group is aborted, or broke.
    fn abort(&self, why: &str);
    /// Leaves the group.
    fn leave(&self, leaving: Leaving) -> EndFuture;
}

/// A driver that is being made.
pub(crate) type DriverFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Driver>>> + Send>>;

/// Makes a driver for each new group.
pub(crate) trait DriverFactory: Send + Sync {
    /// That of this rank.
    fn make(&self, context: BackendContext) -> DriverFuture;
}

/// Registers a backend for all later groups of this process, and for good: its name can be given
/// wherever a backend is named, alone, as `mine`, or for a kind of device, as
/// `cpu:mine,cuda:nccl`.
///
/// - `name`: begins with a letter; case does not matter.
/// - `devices`: kinds of devices that it may be named for, `cpu` and `cuda`; none: both. The name
///   alone stands for all of them. Tensors of a CUDA device go by way of memory of the host, where
///   it serves `cpu` and no other backend serves `cuda`; one that serves `cuda` alone is not given
///   them.
///
/// # Errors
/// [`Error::DuplicateBackend`] if there is a backend of this name; [`Error::InvalidArgument`] for
/// what cannot be a name, and for other devices.
pub fn register_backend(name: &str, devices: &[&str], factory: impl BackendFactory) -> Result<()> {
    register(name, &devices.join(","), Arc::new(outside::Factory(Arc::new(factory))))
}

/// As [`register_backend`], of any factory; devices are separated by commas.
pub(crate) fn register(name: &str, devices: &str, factory: Arc<dyn DriverFactory>) -> Result<()> {
    check_name(name)?;
    let mut known = Vec::new();
    let devices = if devices.is_empty() { "cpu,cuda" } else { devices };
    for device in devices.split(',') {
        let Some(kind) = DEVICES.into_iter().find(|kind| kind.eq_ignore_ascii_case(device)) else {
            let message = format!(
                "register_backend: '{name}' cannot serve devices of kind '{device}'; expected cpu \
                 or cuda"
            );
            return Err(Error::InvalidArgument { message });
        };
        known.push(kind);
    }
    let name: &'static str = name.to_ascii_lowercase().leak();
    let device = known.first().copied().unwrap_or(DEVICES[0]);
    let registration =
        Registration { other_devices: known.leak(), ..Registration::new(name, device, connect) };
    // Before anybody can ask for it.
    let mut factories = factories();
    registry::add(registration)?;
    factories.push((name, factory));
    Ok(())
}

/// Refuses what could not be told from something else where a backend is named.
fn check_name(name: &str) -> Result<()> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let lower = name.to_ascii_lowercase();
    let why = match &*lower {
        "undefined" | "none" | "null" => ": it stands for no backend",
        kind if DEVICES.contains(&kind) => ": it is a kind of device, which backends are named for",
        _ if begins_well && name.chars().all(is_of_name) => return Ok(()),
        _ => "; expected a letter, and letters, digits, '_', '-' and '.' after it",
    };
    let message = format!("register_backend: '{name}' is not a name for a backend{why}");
    Err(Error::InvalidArgument { message })
}

/// The factories, by the names of their backends.
static FACTORIES: ProcessMutex<Vec<(&str, Arc<dyn DriverFactory>)>> = ProcessMutex::new(Vec::new());

fn factories() -> ProcessMutexGuard<'static, Vec<(&'static str, Arc<dyn DriverFactory>)>> {
    FACTORIES.lock()
}

fn factory_of(backend: &str) -> Option<Arc<dyn DriverFactory>> {
    let factories = factories();
    let found = factories.iter().find(|(name, _)| *name == backend);
    found.map(|(_, factory)| factory.clone())
}

/// Makes this rank's part of a group, and learns whether the others could make theirs.
fn connect(bootstrap: Bootstrap<'_>) -> ConnectFuture<'_> {
    let factory = factory_of(bootstrap.backend);
    Box::pin(async move {
        let Bootstrap { backend, store, rank, size, group, meeting, timeout, .. } = bootstrap;
        let Some(factory) = factory else {
            let why = "it is not registered".to_owned();
            return Err(Error::BackendUnavailable { backend: backend.into(), why });
        };
        let context = BackendContext {
            backend: backend.to_owned(),
            store: store.clone(),
            rank,
            size,
            timeout,
            group_name: group.to_owned(),
            global_ranks_in_group: bootstrap.members.to_vec(),
            options: bootstrap.options.cloned(),
        };
        let made = factory.make(context).await;
        let ranks = (rank, size);
        match made {
            Err(why) => {
                let why = explained(why, backend, group, rank);
                if size > 1 {
                    rendezvous::refuse(&**store, meeting, ranks, &why, timeout).await;
                }
                Err(why)
            }
            Ok(made) => {
                if size > 1 {
                    rendezvous::join_async(&**store, meeting, rank, size, timeout).await?;
                }
                let guarded: Arc<dyn Backend> = Guarded::new(backend, group, ranks, made);
                Ok(guarded)
            }
        }
    })
}

/// What a factory failed with, with the backend and the rank.
fn explained(why: Error, backend: &str, group: &str, rank: u32) -> Error {
    let message = match why {
        Error::Backend { message, .. } => message,
        kept @ (Error::Unsupported { .. } | Error::BackendUnavailable { .. }) => return kept,
        other => other.to_string(),
    };
    let message = format!("{}: {message}", place_of_making(group, rank));
    Error::Backend { backend: backend.to_owned(), message }
}

/// What begins that with which a factory failed.
pub(crate) fn place_of_making(group: &str, rank: u32) -> String {
    format!("cannot be made for group '{group}' on rank {rank}")
}

impl fmt::Debug for BackendContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackendContext { backend, rank, size, group_name, .. } = self;
        write!(f, "BackendContext({backend} for {group_name}, rank {rank} of {size})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::backend::registry::BackendSpec;

    fn none(_: BackendContext) -> Result<Arc<dyn Backend>> {
        Err(Error::Unsupported { who: "a test".into(), operation: "it".into() })
    }

    #[test]
    fn a_name_is_registered_once_in_any_case() {
        register_backend("Twice-Named", &["cpu"], none).unwrap();
        let again = register_backend("tWICE-nAMED", &[], none).unwrap_err();
        assert_eq!(again, Error::DuplicateBackend { backend: "twice-named".into() });
        for known in ["tcp", "GLOO", "nccl", "fake"] {
            let error = register_backend(known, &[], none).unwrap_err();
            assert!(matches!(error, Error::DuplicateBackend { .. }), "{known}: {error}");
        }
        let spec: BackendSpec = "TWICE-named".parse().unwrap();
        assert_eq!(spec.to_string(), "cpu:twice-named");
        assert_eq!(spec.check(), Ok(()));
        let elsewhere: BackendSpec = "cpu:tcp,cuda:twice-named".parse().unwrap();
        assert!(elsewhere.check().unwrap_err().to_string().contains("serves cpu tensors"));
    }

    #[test]
    fn other_names_and_devices_are_refused() {
        let odd =
            ["", "-", "_", "2d", "a:b", "a,b", "a b", "é", "cpu", "CUDA", "undefined", "None"];
        for name in odd {
            let error = register_backend(name, &[], none).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "'{name}': {error}");
        }
        let error = register_backend("on-tpus", &["tpu"], none).unwrap_err().to_string();
        assert!(error.contains("devices of kind 'tpu'"), "{error}");
        assert!("on-tpus".parse::<BackendSpec>().is_err());
    }

    #[test]
    fn the_name_alone_is_for_all_its_devices_and_each_may_be_named() {
        register_backend("of-any", &[], none).unwrap();
        let elsewhere: BackendSpec = "cpu:tcp,cuda:of-any".parse().unwrap();
        assert_eq!(elsewhere.check(), Ok(()));
        register_backend("of-two", &["CPU", "cuda"], none).unwrap();
        let spec: BackendSpec = "of-two".parse().unwrap();
        assert_eq!(spec.to_string(), "cpu:of-two,cuda:of-two");
        assert_eq!((spec.check(), spec.stages_cuda()), (Ok(()), true));
        // Whether CUDA devices are named or not, ranks have the same.
        assert_eq!(spec.served(), "cpu:of-two".parse::<BackendSpec>().unwrap().served());
        assert_eq!("cuda:of-two,cpu:of-two".parse::<BackendSpec>().unwrap().check(), Ok(()));
    }
}
