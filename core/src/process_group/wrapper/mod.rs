//! Handles on a group that do more with its operations than the group itself: torchft's wrappers.
//! The group knows nothing of them, and other handles on it are as they were. Knows neither
//! schedules nor managers.
//!
//! A handle with a wrapper takes no fast path: each of its operations comes by one of the places
//! that issue operations, and those ask the wrapper.

mod swallowed_error;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::swallowed_error::SwallowedError;
use super::{GroupOptions, ProcessGroup, next_identity};
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::process_group::check::CheckedRequest;
use crate::request::Request;
use crate::store::HashStore;
use crate::tensor::Tensor;
use crate::work::Work;

/// The operations of a managed handle that its manager runs, and checks.
const RUN_BY_MANAGER: [&str; 4] =
    ["allreduce", "allreduce_coalesced", "all_reduce", "all_reduce_coalesced"];

/// What a handle of [`ProcessGroup::managed_by`] needs of what trains with the group.
pub trait GroupManager: fmt::Debug + Send + Sync {
    /// The reduction of these tensors, in place, over those who participate; one operation, which
    /// never ends with an error.
    ///
    /// # Errors
    /// What is wrong with the call.
    fn allreduce(&self, tensors: Vec<Tensor>, op: ReduceOp, is_coalesced: bool) -> Result<Work>;

    /// An operation of the group has failed. Whether anybody is going to be told; if not, the
    /// operation raises.
    fn report_error(&self, error: String) -> bool;

    /// What is known to have failed since the step began.
    fn errored(&self) -> Option<String>;

    /// How many take part.
    fn num_participants(&self) -> u32;
}

/// What a handle does besides.
pub(super) struct Wrapper {
    /// That of the handle, which is not the group's.
    identity: u64,
    kind: Kind,
    /// That of the handle which was wrapped, if it had one.
    beneath: Option<Arc<Wrapper>>,
}

enum Kind {
    /// Nothing.
    Plain,
    /// It keeps the first error for itself, and runs nothing after it.
    Swallowing(Arc<SwallowedError>),
    /// It tells its manager of errors, and has that reduce.
    Managed(Arc<dyn GroupManager>),
    /// It has no other ranks; this is how often it was configured.
    Dummy(AtomicU32),
}

impl ProcessGroup {
    /// A handle on the same group with an identity of its own, which does what this one does.
    #[must_use]
    pub fn wrapped(&self) -> ProcessGroup {
        self.with(Kind::Plain)
    }

    /// A handle on the same group whose operations never fail, as the loop of a training program
    /// wants it. The first failure is kept in [`ProcessGroup::error`], and operations after it are
    /// not run: all end well, with tensors as they were given, until the group has other members
    /// by `configure` or `reconfigure`. Calls that cannot be run, whoever the members are, say so
    /// as always, and so does what returns something else than tensors.
    ///
    /// The other ranks are told of nothing: they wait for an operation that this rank does not run
    /// until its limit, or the failure that this rank has seen is theirs, too.
    ///
    /// ```
    /// # use polyrank::store::HashStore;
    /// # use polyrank::{ProcessGroup, WaitMode};
    /// # use std::sync::Arc;
    /// # let store = Arc::new(HashStore::new());
    /// # let group = ProcessGroup::new(store, 0, 1, "alone", Default::default())?;
    /// let training = group.swallowing_errors();
    /// group.abort();
    /// let mut gradient = [1.0, 2.0];
    /// training.allreduce(&mut gradient, ())?;
    /// assert_eq!(gradient, [1.0, 2.0]);
    /// assert!(training.error().is_some() && group.allreduce(&mut gradient, ()).is_err());
    /// # Ok::<(), polyrank::Error>(())
    /// ```
    #[must_use]
    pub fn swallowing_errors(&self) -> ProcessGroup {
        self.with(Kind::Swallowing(Arc::default()))
    }

    /// A handle on the group of `manager`, whose allreduces are the manager's: among those who
    /// participate, which [`ProcessGroup::participants`] counts. No operation fails; what goes
    /// wrong is the manager's to know.
    #[must_use]
    pub fn managed_by(&self, manager: Arc<dyn GroupManager>) -> ProcessGroup {
        self.with(Kind::Managed(manager))
    }

    /// A group without other ranks: each operation ends at once, as if the others had contributed
    /// nothing. It can be configured, and stays as it is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `rank` is not below `world_size`.
    pub fn dummy(rank: u32, world_size: u32) -> Result<ProcessGroup> {
        let backend = "fake".parse()?;
        let options = GroupOptions { backend, ..GroupOptions::default() };
        let store = Arc::new(HashStore::new());
        let group = ProcessGroup::new(store, rank, world_size, "dummy", options)?;
        Ok(group.with(Kind::Dummy(AtomicU32::new(0))))
    }

    /// The handle that this one wraps; none if it wraps none.
    pub fn parent(&self) -> Option<ProcessGroup> {
        let wrapper = self.wrapper.as_ref()?;
        let is_made_so = matches!(wrapper.kind, Kind::Dummy(_));
        let (inner, wrapper) = (self.inner.clone(), wrapper.beneath.clone());
        (!is_made_so).then_some(ProcessGroup { inner, wrapper })
    }

    /// A number that no other handle that does the same has; that of the group itself is the
    /// group's.
    pub(crate) fn handle_identity(&self) -> u64 {
        self.wrapper.as_ref().map_or_else(|| self.identity(), |it| it.identity)
    }

    /// The interface of the IDL that it is an object of, and those which that inherits from.
    pub(crate) fn interfaces(&self) -> &'static [&'static str] {
        self.wrapper.as_ref().map_or(&["ProcessGroup"], |it| it.interfaces())
    }

    /// What failed first since the group has the members that it has, in a handle that keeps errors
    /// for itself, or that a manager has.
    pub fn error(&self) -> Option<String> {
        match &self.wrapper.as_ref()?.kind {
            Kind::Swallowing(error) => error.of(self.epoch()),
            Kind::Managed(manager) => manager.errored(),
            Kind::Plain | Kind::Dummy(_) => None,
        }
    }

    /// Something has failed that the program noticed by itself: as if it were an operation of this
    /// handle. Without effect in one that does not keep errors.
    pub fn report_error(&self, error: &str) {
        match self.wrapper.as_ref().map(|it| &it.kind) {
            Some(Kind::Swallowing(first)) => first.note(self.epoch(), || error.to_owned()),
            Some(Kind::Managed(manager)) => drop(manager.report_error(error.to_owned())),
            Some(Kind::Plain | Kind::Dummy(_)) | None => {}
        }
    }

    /// By what averages are divided: how many participate in the step of a manager, and otherwise
    /// the number of ranks.
    pub fn participants(&self) -> u32 {
        let manager = self.wrapper.as_ref().and_then(|it| it.manager());
        manager.map_or_else(|| self.size(), |manager| manager.num_participants())
    }

    /// How often a group of [`ProcessGroup::dummy`] was configured.
    pub fn configure_count(&self) -> u32 {
        match self.wrapper.as_ref().map(|it| &it.kind) {
            Some(Kind::Dummy(count)) => count.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Whether the operation `name` is the manager's of this handle, which knows whether there are
    /// members, or will be.
    pub(super) fn is_managers(&self, name: &str) -> bool {
        let manager = self.wrapper.as_ref().and_then(|it| it.manager());
        manager.is_some() && RUN_BY_MANAGER.contains(&name)
    }

    /// Counts that a group without other ranks is configured; whether it is one.
    pub(super) fn is_configured_in_vain(&self) -> bool {
        match self.wrapper.as_ref().map(|it| &it.kind) {
            Some(Kind::Dummy(count)) => {
                count.fetch_add(1, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    fn with(&self, kind: Kind) -> ProcessGroup {
        let beneath = self.wrapper.clone();
        let wrapper = Arc::new(Wrapper { identity: next_identity(), kind, beneath });
        ProcessGroup { inner: self.inner.clone(), wrapper: Some(wrapper) }
    }
}

impl Wrapper {
    fn interfaces(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Plain => &["ProcessGroupWrapper", "ProcessGroup"],
            Kind::Swallowing(_) => &["ErrorSwallowingProcessGroupWrapper", "ProcessGroup"],
            Kind::Managed(_) => &["ManagedProcessGroup", "ProcessGroup"],
            Kind::Dummy(_) => &["ProcessGroupDummy", "ProcessGroup"],
        }
    }

    /// An operation has failed that raises its error, as it returns something else than tensors.
    pub(super) fn note(&self, group: &ProcessGroup, error: &Error) {
        match &self.kind {
            _ if is_the_callers(error) => {}
            Kind::Swallowing(first) => first.note(group.epoch(), || error.to_string()),
            Kind::Managed(manager) => drop(manager.report_error(error.to_string())),
            Kind::Plain | Kind::Dummy(_) => {}
        }
        if let Some(beneath) = &self.beneath {
            beneath.note(group, error);
        }
    }

    /// As [`Wrapper::run`], for a collective.
    pub(super) fn run_collective(
        &self,
        group: &ProcessGroup,
        checked: CheckedRequest,
        waiting: WaitIntent,
        issue: impl FnOnce(CheckedRequest, WaitIntent) -> Result<Work>,
    ) -> Result<Work> {
        let request = checked.request();
        let (name, outputs) = (request.name, outputs_of(request));
        let (tensors, op, is_coalesced) = (outputs.clone(), request.reduce_op, request.coalesced);
        self.run(group, (name, outputs), || match self.manager() {
            Some(manager) if RUN_BY_MANAGER.contains(&name) => {
                manager.allreduce(tensors, op, is_coalesced)
            }
            _ => issue(checked, waiting),
        })
    }

    /// That of this wrapper, or of one beneath it.
    fn manager(&self) -> Option<&Arc<dyn GroupManager>> {
        match &self.kind {
            Kind::Managed(manager) => Some(manager),
            _ => self.beneath.as_ref()?.manager(),
        }
    }

    /// Has `issue` start an operation of this name, whose results are in these tensors.
    pub(super) fn run(
        &self,
        group: &ProcessGroup,
        (name, outputs): (&'static str, Vec<Tensor>),
        issue: impl FnOnce() -> Result<Work>,
    ) -> Result<Work> {
        let issue = || match &self.beneath {
            Some(beneath) => beneath.run(group, (name, outputs.clone()), issue),
            None => issue(),
        };
        let skipped = || Work::of_nothing(name, group.inner.identity, outputs.clone());
        let (is_skipped, keeps): (_, Arc<dyn Fn(String) -> bool + Send + Sync>) = match &self.kind {
            Kind::Plain | Kind::Dummy(_) => return issue(),
            // It knows by itself how that ends.
            Kind::Managed(_) if RUN_BY_MANAGER.contains(&name) => return issue(),
            Kind::Swallowing(first) => {
                let (epoch, first) = (group.epoch(), first.clone());
                let is_skipped = first.of(epoch).is_some();
                let keep = move |error| {
                    first.note(epoch, || error);
                    true
                };
                (is_skipped, Arc::new(keep))
            }
            Kind::Managed(manager) => {
                let manager = manager.clone();
                let is_skipped = manager.errored().is_some();
                (is_skipped, Arc::new(move |error| manager.report_error(error)))
            }
        };
        if is_skipped {
            return Ok(skipped());
        }
        match issue() {
            Ok(work) => Ok(work.followed_by(move |ended| match ended {
                Err(error) if !keeps(error.to_string()) => Err(error.clone()),
                _ => Ok(()),
            })),
            Err(error) if is_the_callers(&error) || !keeps(error.to_string()) => Err(error),
            Err(_) => Ok(skipped()),
        }
    }
}

/// The tensors with the results of a request, as its work gives them.
fn outputs_of(request: &Request) -> Vec<Tensor> {
    match &request.uncut_outputs[..] {
        [] => request.outputs.concat(),
        uncut => uncut.to_vec(),
    }
}

/// Whether an error says that a call cannot be run, whoever the members are and whatever became of
/// them.
fn is_the_callers(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument { .. }
            | Error::InvalidType { .. }
            | Error::InvalidGroup { .. }
            | Error::BackendUnavailable { .. }
            | Error::NoMembers { .. }
            | Error::RankNotInGroup { .. }
            | Error::Unsupported { .. }
            | Error::UnsupportedDType { .. }
    )
}
