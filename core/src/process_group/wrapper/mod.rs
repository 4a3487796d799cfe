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

    /// The step that is under way, by a number of its own; none between two of them.
    fn step(&self) -> Option<u64>;

    /// An operation of the group has failed that was issued in this step. Whether somebody is going
    /// to be told; if not, as the step is over, the operation raises.
    fn note_error(&self, step: u64, error: String) -> bool;

    /// The program has noticed a failure by itself.
    fn report_error(&self, error: String);

    /// What is known to have failed since the step began.
    fn errored(&self) -> Option<String>;

    /// How many take part.
    fn num_participants(&self) -> u32;
}

/// What a handle does besides running operations of the group.
pub(super) struct Wrapper {
    /// That of the handle, which is not the group's.
    identity: u64,
    kind: Kind,
    /// That of the handle which was wrapped, if it had one.
    beneath: Option<Arc<Wrapper>>,
}

/// Keeps an error for itself, if it does.
type Keeper = Box<dyn Fn(&Error) -> bool + Send + Sync>;

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
    /// # use polyrank::ProcessGroup;
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
    /// participate, which [`ProcessGroup::participants`] counts. In a step of the manager no
    /// operation fails; what goes wrong is the manager's to know. Between two steps operations fail
    /// as those of the group.
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
        let wraps_nothing = matches!(wrapper.kind, Kind::Dummy(_));
        let (inner, wrapper) = (self.inner.clone(), wrapper.beneath.clone());
        (!wraps_nothing).then_some(ProcessGroup { inner, wrapper })
    }

    /// A number that only clones of this handle have; handles without a wrapper have the group's.
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
            Some(Kind::Managed(manager)) => manager.report_error(error.to_owned()),
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

    /// Counts that a group without other ranks is configured, if this is a handle on one; whether
    /// it is.
    pub(super) fn configure_dummy(&self) -> bool {
        let mut chain = self.wrapper.iter().flat_map(|it| it.chain());
        let count = chain.find_map(|it| match &it.kind {
            Kind::Dummy(count) => Some(count),
            _ => None,
        });
        count.is_some_and(|count| {
            count.fetch_add(1, Ordering::Relaxed);
            true
        })
    }

    /// Nobody is a member, as of `epoch`. Whether this handle keeps that for itself, or has an
    /// error already.
    pub(super) fn keeps_refusal(&self, refusal: &Error, epoch: u64) -> bool {
        if !matches!(refusal, Error::NoMembers { .. }) {
            return false;
        }
        let mut is_kept = false;
        for wrapper in self.wrapper.iter().flat_map(|it| it.chain()) {
            if let Kind::Swallowing(first) = &wrapper.kind {
                first.note(epoch, || refusal.to_string());
                is_kept = true;
            }
            is_kept |= wrapper.skips(epoch);
        }
        is_kept
    }

    /// Whether this handle keeps errors for itself, whatever they are.
    pub(super) fn swallows(&self) -> bool {
        let mut chain = self.wrapper.iter().flat_map(|it| it.chain());
        chain.any(|it| matches!(it.kind, Kind::Swallowing(_)))
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

    /// This one, and those beneath it.
    fn chain(&self) -> impl Iterator<Item = &Wrapper> {
        std::iter::successors(Some(self), |it| it.beneath.as_deref())
    }

    /// The manager of this one, or of one beneath it.
    fn manager(&self) -> Option<&Arc<dyn GroupManager>> {
        self.chain().find_map(|it| match &it.kind {
            Kind::Managed(manager) => Some(manager),
            _ => None,
        })
    }

    /// Whether it runs no operations among the members of `epoch`.
    fn skips(&self, epoch: u64) -> bool {
        match &self.kind {
            Kind::Swallowing(first) => first.of(epoch).is_some(),
            Kind::Managed(manager) => manager.step().is_some() && manager.errored().is_some(),
            Kind::Plain | Kind::Dummy(_) => false,
        }
    }

    /// What keeps the error of an operation that is issued now among the members of `epoch`.
    fn keeper(&self, epoch: u64) -> Option<Keeper> {
        match &self.kind {
            Kind::Swallowing(first) => {
                let first = first.clone();
                Some(Box::new(move |error| {
                    first.note(epoch, || error.to_string());
                    true
                }))
            }
            Kind::Managed(manager) => {
                let (manager, step) = (manager.clone(), manager.step()?);
                Some(Box::new(move |error| manager.note_error(step, error.to_string())))
            }
            Kind::Plain | Kind::Dummy(_) => None,
        }
    }

    /// An operation among the members of `epoch` has failed that raises its error, as it returns
    /// something else than tensors.
    pub(super) fn note(&self, epoch: u64, error: &Error) {
        if !is_the_callers(error) {
            let keepers = self.chain().filter_map(|it| it.keeper(epoch));
            keepers.for_each(|keep| {
                keep(error);
            });
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
        let manager = self.manager().filter(|_| RUN_BY_MANAGER.contains(&name));
        if let Some(manager) = manager {
            // Whatever becomes of it, it ends well.
            let (op, is_coalesced) = (request.reduce_op, request.coalesced);
            return match self.chain().any(|it| it.skips_all(group.epoch())) {
                true => Ok(Work::of_nothing(name, group.inner.identity, outputs)),
                false => manager.allreduce(outputs, op, is_coalesced),
            };
        }
        self.run(group, checked.epoch, (name, outputs), || issue(checked, waiting))
    }

    /// Whether it runs no operations, not even those of a manager.
    fn skips_all(&self, epoch: u64) -> bool {
        matches!(self.kind, Kind::Swallowing(_)) && self.skips(epoch)
    }

    /// Has `issue` start an operation of this name, whose results are in these tensors, among the
    /// members of `epoch`.
    pub(super) fn run(
        &self,
        group: &ProcessGroup,
        epoch: u64,
        operation: (&'static str, Vec<Tensor>),
        issue: impl FnOnce() -> Result<Work>,
    ) -> Result<Work> {
        let mut works = self.run_all(group, epoch, vec![operation], || Ok(vec![issue()?]))?;
        works.pop().ok_or_else(|| Error::InvalidArgument {
            message: "an operation has one work".to_owned(),
        })
    }

    /// As [`Wrapper::run`], of several that go together.
    pub(super) fn run_all(
        &self,
        group: &ProcessGroup,
        epoch: u64,
        operations: Vec<(&'static str, Vec<Tensor>)>,
        issue: impl FnOnce() -> Result<Vec<Work>>,
    ) -> Result<Vec<Work>> {
        let nothing = |operations: Vec<(&'static str, Vec<Tensor>)>| {
            let identity = group.inner.identity;
            let work = |(name, outputs)| Work::of_nothing(name, identity, outputs);
            operations.into_iter().map(work).collect()
        };
        if self.chain().any(|it| it.skips(group.epoch())) {
            return Ok(nothing(operations));
        }
        // The one beneath all others hears of an error first, and the others of what it lets pass.
        let mut keepers: Vec<Keeper> = self.chain().filter_map(|it| it.keeper(epoch)).collect();
        keepers.reverse();
        let keepers: Arc<[Keeper]> = keepers.into();
        if keepers.is_empty() {
            return issue();
        }
        let are_kept = |error: &Error| keepers.iter().any(|keep| keep(error));
        let follow = |work: Work| {
            let keepers = keepers.clone();
            work.followed_by(move |ended| match ended {
                Err(error) if !keepers.iter().any(|keep| keep(error)) => Err(error.clone()),
                _ => Ok(()),
            })
        };
        match issue() {
            Ok(works) => Ok(works.into_iter().map(follow).collect()),
            Err(error) if is_the_callers(&error) || !are_kept(&error) => Err(error),
            Err(_) => Ok(nothing(operations)),
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
            | Error::HookFailed { .. }
            | Error::NonFiniteInput { .. }
            | Error::RankNotInGroup { .. }
            | Error::Unsupported { .. }
            | Error::UnsupportedDType { .. }
    )
}
