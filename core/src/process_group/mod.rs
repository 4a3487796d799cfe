//! A group of ranks, and its calls: check, stage, choose a backend, issue. Knows neither schedules
//! nor transports.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use crate::backend::Envelope;
use crate::backend::registry::BackendSpec;
use crate::backend::{Backend, Capabilities, IssueOptions, Leaving};
use crate::blocking::{WaitMode, block_on};
use crate::clock::{self, Instant};
use crate::completion::WaitIntent;
use crate::generated::error::{Error, Result};
#[cfg(feature = "tcp")]
use crate::recorder::Recorder;
use crate::request::Request;
use crate::sorted::SortedMap;
use crate::store::{GroupStore, Store};
use crate::tensor::Device;
use crate::work::Work;

mod assembly;
#[cfg(feature = "tcp")]
mod chaos;
mod check;
mod check_lists;
mod comparisons;
mod composed;
mod compression;
mod create;
mod custom_reduction;
mod device_backend;
mod disjoint;
#[cfg(feature = "tcp")]
mod dump;
mod failure_watch;
mod fast_path;
mod group_calls;
mod held_names;
mod hints;
mod hook_arguments;
mod hooks;
#[cfg(feature = "cuda")]
mod host_staging;
mod kept_memory;
mod labels;
mod late_ranks;
mod left_out;
mod liveness;
mod memberships;
mod messages;
mod monitored_barrier;
mod nan_check;
mod permute;
mod prepared;
mod probe;
mod reconfigure;
mod requests;
mod scope;
mod sendrecv;
mod shared_texts;
mod sibling_names;
mod sparse;
mod split;
mod stage;
mod state_refusal;
#[cfg(feature = "tcp")]
mod state_sync;
#[cfg(feature = "tcp")]
mod statistics;
mod symmetric_memory;
pub(crate) mod topology;
pub(crate) mod window;
#[cfg(not(target_family = "wasm"))]
mod wrapper;

pub use check::CheckedRequest;
use comparisons::OpenComparisons;
pub(crate) use composed::{of_whole, room_for};
pub use create::GroupOptions;
pub use device_backend::DeviceBackend;
pub use fast_path::{FastPathResult, HeldBuffers, PendingFastPath};
pub use hints::GroupHints;
use memberships::Memberships;
pub use messages::MessageRequest;
pub use nan_check::{check_input, nan_check, nan_check_allowing_infinity};
pub(crate) use prepared::PlainCall;
pub use prepared::PreparedOperation;
pub(crate) use reconfigure::Site;
pub use reconfigure::{ConfigureOptions, ReconfigureOptions};
pub use scope::{Scope, ScopedWork};
pub use sendrecv::ExchangeRequest;
use sibling_names::SiblingNames;
pub use sparse::SparseOptions;
pub(crate) use split::Maker;
pub use split::SplitOptions;
#[cfg(feature = "tcp")]
pub use state_sync::StateSyncOptions;
pub use window::Window;
#[cfg(not(target_family = "wasm"))]
pub use wrapper::GroupManager;

/// Limit of an operation where none is given: 30 minutes, as in c10d.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long operations in flight may take to finish when their group is left.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A group of ranks that call collectives together. Cheap to clone: a clone is the same group.
#[derive(Clone)]
pub struct ProcessGroup {
    inner: Arc<Memberships>,
    /// What this handle does besides running operations of the group.
    #[cfg(not(target_family = "wasm"))]
    wrapper: Option<Arc<wrapper::Wrapper>>,
}

/// The members of a group, and what it has as long as it has these.
struct Inner {
    identity: u64,
    /// How often the members had been replaced before.
    epoch: u64,
    name: String,
    /// The name that all members know it by, who may have come with different ones.
    shared_name: String,
    /// Where the members come from, if the group was reconfigured.
    origins: Option<reconfigure::Origins>,
    /// Empty if none was given.
    description: String,
    /// What it is said to be then.
    undescribed: String,
    rank: u32,
    /// Global ranks of the members, by group rank.
    members: Vec<u32>,
    /// Rejects every request once the group was left.
    store: Arc<GroupStore>,
    /// For monitored barriers, opened by the first: another thread may block the group's own.
    barrier_store: Mutex<Option<Arc<dyn Store>>>,
    /// What compressed operations are compressed into.
    kept_memory: Arc<kept_memory::KeptMemory>,
    spec: BackendSpec,
    cpu: Arc<dyn Backend>,
    /// For tensors of CUDA devices.
    cuda: Option<Arc<dyn Backend>>,
    timeout_ns: AtomicU64,
    /// How often each membership was split off: equal ones give distinct groups.
    splits: Mutex<SortedMap<String, u32>>,
    bound_device: Option<Device>,
    group_calls: group_calls::GroupCalls,
    shared_texts: shared_texts::SharedTexts,
    /// How many monitored barriers this rank called.
    monitored_barriers: AtomicU64,
    /// The calls that only those make who live.
    survivor_calls: reconfigure::SurvivorCalls,
    options: GroupOptions,
    /// They stay when the members change.
    hooks: Arc<hooks::Hooks>,
    /// They stay, too.
    hints: Arc<hints::Hints>,
    /// What has been called; it stays, too.
    #[cfg(feature = "tcp")]
    recorder: Arc<Recorder>,
    /// What the program has said of symmetric memory; it stays, too.
    exchanges_handles: Arc<AtomicBool>,
    /// Open comparisons of all groups split from the same root group.
    open_comparisons: Arc<OpenComparisons>,
    /// The names of the root group and of all groups split from it.
    siblings: Arc<SiblingNames>,
    /// Prefix of this group's keys in the root group's store; empty for the root group.
    store_prefix: String,
    /// Which ranks of the root group live; none where it has one rank.
    liveness: Option<Arc<liveness::Liveness>>,
}

impl ProcessGroup {
    /// This process's rank in the group.
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.inner.members.len() as u32
    }

    /// A number that no other group of this process ever has.
    pub fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// The name, the same on all ranks.
    pub fn group_name(&self) -> &str {
        &self.inner.name
    }

    /// Free text that describes what the group is for.
    pub fn group_desc(&self) -> &str {
        let Inner { description, undescribed, .. } = &**self.inner;
        if description.is_empty() { undescribed } else { description }
    }

    /// The device that the group was bound to, if any.
    pub fn bound_device_id(&self) -> Option<Device> {
        self.inner.bound_device
    }

    /// Global ranks of the members, by group rank.
    pub fn ranks(&self) -> &[u32] {
        &self.inner.members
    }

    /// The group rank of a global rank.
    ///
    /// # Errors
    /// [`Error::RankNotInGroup`].
    pub fn group_rank(&self, global_rank: u32) -> Result<u32> {
        let found = self.inner.members.iter().position(|&member| member == global_rank);
        found.map(|rank| rank as u32).ok_or_else(|| Error::RankNotInGroup {
            message: format!(
                "Global rank {global_rank} is not part of group '{}' of ranks {:?}",
                self.inner.name, self.inner.members
            ),
        })
    }

    /// The global rank of a group rank.
    ///
    /// # Errors
    /// [`Error::RankNotInGroup`].
    pub fn global_rank(&self, group_rank: u32) -> Result<u32> {
        self.inner.members.get(group_rank as usize).copied().ok_or_else(|| Error::RankNotInGroup {
            message: format!(
                "Group rank {group_rank} is not part of group '{}', which has {} ranks",
                self.inner.name,
                self.size()
            ),
        })
    }

    /// The group's store; its keys are private to the group. Once the group is left, every handle
    /// fails, including requests that are waiting.
    pub fn get_group_store(&self) -> Arc<dyn Store> {
        self.inner.store.clone()
    }

    /// Name of the backend for CPU tensors, or of the one for CUDA tensors if only that was
    /// requested.
    pub fn backend_name(&self) -> &str {
        match &self.inner.cuda {
            Some(cuda) if !self.inner.spec.serves("cpu") => cuda.name(),
            _ => self.inner.cpu.name(),
        }
    }

    /// Which backend serves which device: `cpu:tcp`.
    pub fn backend_config(&self) -> String {
        self.inner.spec.to_string()
    }

    /// What the backend for CPU tensors supports in this group.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.cpu.capabilities()
    }

    /// Whether memory of operations on the host may move while they are in flight.
    pub(crate) fn takes_loans(&self) -> bool {
        self.inner.cpu.takes_loans()
    }

    /// The memory of an operation on the host has moved. Nobody may have changed what lies where it
    /// was, which other ranks may read.
    pub(crate) fn note_moved(&self, sequence: u64) {
        self.inner.cpu.note_moved(sequence);
    }

    /// Limit of operations that have none of their own; zero is none.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.inner.timeout_ns.load(Ordering::Relaxed))
    }

    /// Sets the limit of later operations.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`] if the group was destroyed.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        self.unless_left()?;
        self.inner.timeout_ns.store(nanoseconds(timeout), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the group failed, was aborted or was left, so that every call fails.
    pub fn is_broken(&self) -> bool {
        self.inner.backends().any(|backend| backend.is_broken())
    }

    /// Fails everything in flight and everything later, on all ranks.
    pub fn abort(&self) {
        self.abort_because("it called abort()");
    }

    /// As [`ProcessGroup::abort`], for a reason that every rank's error names.
    pub(crate) fn abort_because(&self, why: &str) {
        self.end_by(|backend| backend.abort(why));
    }

    /// As [`ProcessGroup::abort_because`], as this rank does not run its next operation: those that
    /// it has issued may end well.
    pub(crate) fn abort_next(&self, why: &str) {
        self.end_by(|backend| backend.abort_from(None, why));
    }

    fn end_by(&self, end: impl Fn(&dyn Backend)) {
        // The group is not the child's to abort.
        if self.inner.is_inherited() {
            return;
        }
        self.inner.hooks.note_own_end();
        self.inner.backends().for_each(|backend| end(&**backend));
    }

    /// Leaves the group cleanly; operations in flight get a short time to finish. A split-off group
    /// does not wait for other ranks; disagreements not yet reported surface when its parent is
    /// left.
    ///
    /// # Errors
    /// The group is left in any case. [`Error::CollectiveMismatch`],
    /// [`Error::MessageSize`] or [`Error::MessageDType`] if ranks disagree on what they ran and no
    /// operation of this rank has reported it: the root of a broadcast, say, finishes before the
    /// others have looked at it. The error of a collective of this rank that failed without anybody
    /// asking for its outcome.
    pub fn shutdown(&self) -> Result<()> {
        self.shutdown_within(SHUTDOWN_LIMIT)
    }

    /// As [`ProcessGroup::shutdown`], with this long for the operations in flight; those that are
    /// not done by then fail, on all ranks.
    ///
    /// # Errors
    /// As [`ProcessGroup::shutdown`].
    pub fn shutdown_within(&self, limit: Duration) -> Result<()> {
        self.unless_inherited()?;
        self.run_within_call("shutdown", || self.shutdown_by(limit))
    }

    fn shutdown_by(&self, limit: Duration) -> Result<()> {
        let compare_until = self.comparison_deadline();
        let settled = match compare_until {
            Some(until) if !limit.is_zero() => block_on(self.settle_comparisons(until)),
            _ => Ok(()),
        };
        let broken = self.is_broken();
        if !limit.is_zero() {
            let _ = block_on(self.note_departure());
        }
        let leaving = Leaving { limit, compare_until };
        let ended = block_on(self.end_as(self.shutdown_backends(settled, leaving)));
        if !limit.is_zero() {
            let _ = block_on(self.leave_meeting(broken));
        }
        self.close_meeting();
        ended
    }

    /// How it ended, after what is known of that already.
    fn shutdown_backends(&self, settled: Result<()>, leaving: Leaving) -> Result<()> {
        self.inner.backends().fold(settled, |ended, backend| ended.and(backend.shutdown(leaving)))
    }

    /// As [`ProcessGroup::shutdown`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::shutdown`].
    pub async fn shutdown_async(&self) -> Result<()> {
        self.within_call("shutdown", self.leave(self.comparison_deadline())).await
    }

    /// As [`ProcessGroup::shutdown_async`]. Waits until `compare_until` for ranks that have not
    /// published what they ran; with `None` it does not wait for them.
    pub(crate) async fn leave(&self, compare_until: Option<Instant>) -> Result<()> {
        self.unless_inherited()?;
        let settled = match compare_until {
            Some(until) => self.settle_comparisons(until).await,
            None => Ok(()),
        };
        let leaving = Leaving { limit: SHUTDOWN_LIMIT, compare_until };
        let broken = self.is_broken();
        let _ = self.note_departure().await;
        let mut ended = settled;
        if WaitMode::current() == WaitMode::Block {
            ended = self.shutdown_backends(ended, leaving);
        } else {
            for backend in self.inner.backends() {
                ended = ended.and(backend.clone().shutdown_async(leaving).await);
            }
        }
        let ended = self.end_as(ended).await;
        let _ = self.leave_meeting(broken).await;
        self.close_meeting();
        ended
    }

    /// The group was left, and that `ended` so.
    async fn end_as(&self, ended: Result<()>) -> Result<()> {
        // Before the store is closed: the others are asked there.
        let ended = self.located(ended).await;
        self.end();
        ended
    }

    /// The group was left.
    fn end(&self) {
        self.inner.open_comparisons.add(self);
        self.inner.hooks.clear();
        self.close_store();
    }

    /// Closes the store, even if somebody still holds the group or its store.
    fn close_store(&self) {
        self.inner.close_stores();
    }

    /// Issues `request`, whose tensors own their memory.
    ///
    /// # Errors
    /// What is wrong with the request, or the failure of a broken group.
    pub fn issue(&self, request: Request) -> Result<Work> {
        self.issue_as(request, WaitIntent::Later)
    }

    /// As [`ProcessGroup::issue`]; for a caller that waits at once, no background thread is woken.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`].
    pub fn issue_as(&self, request: Request, waiting: WaitIntent) -> Result<Work> {
        self.issue_checked(self.check(request)?, waiting)
    }

    /// As [`ProcessGroup::issue_as`], for a request that this group has checked.
    ///
    /// # Errors
    /// No backend serves its tensors; the failure of a broken group.
    pub fn issue_checked(&self, checked: CheckedRequest, waiting: WaitIntent) -> Result<Work> {
        let issue = |checked: CheckedRequest, waiting| {
            let hooked = self.before(|| self.hook_arguments(checked.request(), waiting))?;
            Self::after(hooked, self.issue_checked_unhooked(checked, waiting))
        };
        #[cfg(not(target_family = "wasm"))]
        if let Some(wrapper) = &self.wrapper {
            return wrapper.run_collective(self, checked, waiting, issue);
        }
        issue(checked, waiting)
    }

    /// As [`ProcessGroup::issue_as`], as a part of an operation that has hooks itself.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`].
    pub(crate) fn issue_unhooked(&self, request: Request, waiting: WaitIntent) -> Result<Work> {
        self.issue_checked_unhooked(self.check(request)?, waiting)
    }

    fn issue_checked_unhooked(&self, checked: CheckedRequest, waiting: WaitIntent) -> Result<Work> {
        #[cfg(feature = "cuda")]
        if self.goes_over_host(&checked.request)? {
            return self.issue_over_host(&checked, waiting);
        }
        let CheckedRequest { request, operations, epoch } = checked;
        let members = self.members_of(epoch, request.name)?;
        let (rank, size) = (members.rank, members.size());
        let options = IssueOptions { deadline: self.deadline(request.timeout), waiting };
        let backend = members.backend_for(request.name, request.tensors())?;
        let on_device = members.cuda.as_ref().is_some_and(|cuda| Arc::ptr_eq(cuda, &backend));
        let stage = if on_device { stage::stage_on_device } else { stage::stage };
        let devices = request.tensors().filter_map(|tensor| tensor.region().device()).collect();
        if let Some(reduction) = custom_reduction::reduction_of(&request)? {
            return self.issue_custom(
                members,
                (&request, operations),
                &reduction,
                (backend, options),
            );
        }
        if let Some(compression) = request.form() {
            return self.issue_compressed(
                members,
                (&request, operations),
                compression,
                (backend, options),
            );
        }
        let is_regrouped = operations.iter().any(|it| !it.local_lists.is_empty());
        let mut outputs = Vec::new();
        let mut calls = Vec::with_capacity(operations.len());
        for operation in operations {
            let mut call = stage(&request, operation, rank, size)?;
            outputs.append(&mut call.outputs);
            calls.push(call);
        }
        if is_regrouped {
            outputs = request.outputs.concat();
        }
        let label = self.request_label(&request);
        let issued = match calls.len() {
            1 => calls
                .into_iter()
                .map(|call| backend.collective(call, options))
                .collect::<Result<Vec<_>>>(),
            _ => backend.together(calls, options),
        }?;
        let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
        Ok(Work::on_devices(label, issued, outputs, devices))
    }

    /// Issues `request` and waits. When it returns, nothing accesses its memory any more.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`], and the operation's own failure.
    pub fn run(&self, request: Request) -> Result<()> {
        self.issue_as(request, WaitIntent::Soon)?.wait(None)
    }

    fn deadline(&self, timeout: Option<Duration>) -> Instant {
        deadline(timeout.unwrap_or_else(|| self.timeout()))
    }

    fn cpu(&self) -> Arc<dyn Backend> {
        self.inner.cpu.clone()
    }
}

impl Inner {
    fn backends(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.cuda.iter().chain(std::iter::once(&self.cpu))
    }
}

/// The time at which `timeout` from now has passed; zero means no limit.
fn deadline(timeout: Duration) -> Instant {
    clock::after(if timeout.is_zero() { Duration::MAX } else { timeout })
}

/// A timeout as the group keeps it; what is beyond 584 years is that.
fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// A number that is unique in this process; from 1 on.
pub(crate) fn next_identity() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A short description for debugging, the same in every language:
/// `ProcessGroup(default_pg, rank 0 of 2, tcp)`.
impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, rank, members, spec, store, .. } = &**self.inner;
        let left = match (store.is_closed(), store.lacks_members()) {
            (_, true) => ", no members",
            (true, _) => ", left",
            _ => "",
        };
        let spec = spec.to_string();
        // With one backend, its name is enough.
        let backends = if spec.contains(',') { &spec } else { self.backend_name() };
        #[cfg(not(target_family = "wasm"))]
        let class = self.interfaces()[0];
        #[cfg(target_family = "wasm")]
        let class = "ProcessGroup";
        write!(f, "{class}({name}, rank {rank} of {}, {backends}{left})", members.len())
    }
}
