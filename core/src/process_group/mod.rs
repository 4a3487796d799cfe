//! A group of ranks, and its calls: check, stage, choose a backend, issue. Knows neither schedules
//! nor transports.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::registry::BackendSpec;
use crate::backend::{Backend, Transfer, Waiting};
use crate::blocking::Way;
use crate::clock::{self, Instant};
use crate::store::Store;
use crate::tensor::{ConstBuffers, OwnedBuffers, lend, lend_mut};
use crate::{Buffers, Device, Error, Region, Request, Result, Tensor, Work};

mod at_once;
mod check;
mod create;
mod disjoint;
mod monitored_barrier;
mod prepared;
mod scope;
mod split;
mod stage;

pub use at_once::{Begun, Kept, Plain, Tried};
pub use create::GroupOptions;
pub use prepared::PreparedOperation;
pub use scope::{Scope, ScopedWork};
pub use split::SplitOptions;

/// Limit of an operation where none is given: 30 minutes, as in c10d.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long operations may still go on when their group is left.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A group of ranks that call collectives together. Cheap to clone: a clone is the same group.
#[derive(Clone)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
}

struct Inner {
    identity: u64,
    name: String,
    description: String,
    rank: u32,
    /// Global ranks of the members, by group rank.
    members: Vec<u32>,
    store: Arc<dyn Store>,
    spec: BackendSpec,
    cpu: Arc<dyn Backend>,
    timeout_ms: AtomicU64,
    /// How often each membership was split off, so that equal memberships give distinct groups.
    splits: Mutex<std::collections::HashMap<String, u32>>,
    bound_device: Option<Device>,
    /// How many monitored barriers this rank called.
    monitored_barriers: AtomicU64,
    options: GroupOptions,
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

    /// Free text that says what the group is for.
    pub fn group_desc(&self) -> &str {
        &self.inner.description
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

    /// The store behind the group; its keys are the group's own.
    pub fn get_group_store(&self) -> Arc<dyn Store> {
        self.inner.store.clone()
    }

    /// Name of the backend for CPU tensors.
    pub fn backend_name(&self) -> &str {
        self.inner.cpu.name()
    }

    /// Which backend serves which device: `cpu:tcp`.
    pub fn backend_config(&self) -> String {
        self.inner.spec.to_string()
    }

    /// Limit of operations that have none of their own.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.inner.timeout_ms.load(Ordering::Relaxed))
    }

    /// Sets the limit of later operations.
    pub fn set_timeout(&self, timeout: Duration) {
        self.inner.timeout_ms.store(timeout.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether the group failed, was aborted or was left, so that every call raises.
    pub fn is_broken(&self) -> bool {
        self.inner.cpu.is_broken()
    }

    /// Fails everything in flight and everything later, on all ranks.
    pub fn abort(&self) {
        self.inner.cpu.abort(&format!("rank {} called abort()", self.rank()));
    }

    /// As [`ProcessGroup::abort`], for a reason that every rank's error names.
    pub(crate) fn abort_because(&self, why: &str) {
        self.inner.cpu.abort(why);
    }

    /// Leaves the group in order. Operations in flight may still finish, for a moment.
    pub fn shutdown(&self) {
        self.inner.cpu.shutdown(SHUTDOWN_LIMIT);
    }

    /// As [`ProcessGroup::shutdown`], with this long for the operations in flight; those that are
    /// not done by then fail, on all ranks.
    pub fn shutdown_within(&self, limit: Duration) {
        self.inner.cpu.shutdown(limit);
    }

    /// As [`ProcessGroup::shutdown`], without blocking.
    pub async fn shutdown_async(&self) {
        self.inner.cpu.shutdown_async(SHUTDOWN_LIMIT).await;
    }

    pub(crate) async fn shutdown_in(&self, way: Way) {
        match way {
            Way::Blocking => self.shutdown(),
            Way::Awaiting => self.shutdown_async().await,
        }
    }

    /// Whether `request` makes sense on this rank: what issuing it would raise at once.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn check(&self, request: &Request) -> Result<()> {
        check::check(request, self.rank(), self.size()).map(drop)
    }

    /// Issues `request`, whose tensors own their memory.
    ///
    /// # Errors
    /// What is wrong with the request, or the failure of a broken group.
    pub fn issue(&self, request: Request) -> Result<Work> {
        self.issue_as(request, Waiting::Later)
    }

    /// As [`ProcessGroup::issue`], for a caller who says whether it waits at once: then the
    /// background thread is left asleep.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`].
    pub fn issue_as(&self, request: Request, waiting: Waiting) -> Result<Work> {
        let (rank, size) = (self.rank(), self.size());
        let deadline = self.deadline(request.timeout);
        let mut issued = Vec::with_capacity(1);
        let mut outputs = Vec::new();
        let checked = check::check(&request, rank, size)?;
        for checked in checked {
            let mut call = stage::stage(&request, checked, rank, size)?;
            outputs.append(&mut call.outputs);
            issued.push((self.inner.cpu.collective(call, deadline, waiting)?, self.cpu()));
        }
        Ok(Work::new(request.name, issued, outputs))
    }

    /// Issues `request` and waits. Returns when nobody touches its memory any more.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`], and the operation's own failure.
    pub fn run(&self, request: Request) -> Result<()> {
        self.issue_as(request, Waiting::Soon)?.wait(None)
    }

    /// Sends a tensor to `peer` (a rank of this group). Returns when the memory may be reused,
    /// which for small messages is before the receiver has them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a peer that is no other rank; the failure of the message.
    pub fn send<I: ConstBuffers + ?Sized>(&self, tensor: &I, peer: u32, tag: u32) -> Result<()> {
        let tensor = single("send", lend(tensor))?;
        self.issue_send(tensor, peer, tag, None, Waiting::Soon)?.wait(None)
    }

    /// Receives a tensor from `peer` (a rank of this group).
    ///
    /// # Errors
    /// As [`ProcessGroup::send`]; [`Error::MessageSize`] if the message does not fit exactly.
    pub fn recv<B: Buffers + ?Sized>(&self, tensor: &mut B, peer: u32, tag: u32) -> Result<()> {
        let tensor = single("recv", lend_mut(tensor))?;
        self.issue_recv(tensor, Some(peer), tag, None, Waiting::Soon)?.wait(None)
    }

    /// Receives a tensor from whoever sends one with `tag`; the sender's rank.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn recv_anysource<B: Buffers + ?Sized>(&self, tensor: &mut B, tag: u32) -> Result<u32> {
        let tensor = single("recv_anysource", lend_mut(tensor))?;
        let work = self.issue_recv(tensor, None, tag, None, Waiting::Soon)?;
        work.wait(None)?;
        Ok(work.source_rank().unwrap_or(self.rank()))
    }

    /// As [`ProcessGroup::send`], owning the tensor until the work is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`].
    pub fn send_async(&self, tensor: impl OwnedBuffers, peer: u32, tag: u32) -> Result<Work> {
        let tensor = single("send", tensor.into_tensors())?;
        self.issue_send(tensor, peer, tag, None, Waiting::Later)
    }

    /// As [`ProcessGroup::recv`] (from anybody without `peer`), owning the tensor until the work
    /// is done.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn recv_async(
        &self,
        tensor: impl OwnedBuffers,
        peer: Option<u32>,
        tag: u32,
    ) -> Result<Work> {
        let tensor = single("recv", tensor.into_tensors())?;
        self.issue_recv(tensor, peer, tag, None, Waiting::Later)
    }

    /// Issues the sending of `tensor`.
    ///
    /// # Errors
    /// As [`ProcessGroup::send`].
    pub fn issue_send(
        &self,
        tensor: Tensor,
        peer: u32,
        tag: u32,
        timeout: Option<Duration>,
        waiting: Waiting,
    ) -> Result<Work> {
        self.check_peer("send", "destination", peer)?;
        let memory = if tensor.is_contiguous() {
            tensor.region().clone()
        } else {
            tensor.to_contiguous().into_region()
        };
        let transfer = Transfer { peer: Some(peer), tag, memory, finish: None };
        let issued = self.inner.cpu.send(transfer, self.deadline(timeout), waiting)?;
        Ok(Work::new("send", vec![(issued, self.cpu())], vec![tensor]))
    }

    /// Issues the receiving of `tensor`.
    ///
    /// # Errors
    /// As [`ProcessGroup::recv`].
    pub fn issue_recv(
        &self,
        tensor: Tensor,
        peer: Option<u32>,
        tag: u32,
        timeout: Option<Duration>,
        waiting: Waiting,
    ) -> Result<Work> {
        if let Some(peer) = peer {
            self.check_peer("recv", "source", peer)?;
        }
        let mut transfer = Transfer { peer, tag, memory: tensor.region().clone(), finish: None };
        if !tensor.is_contiguous() {
            let staged = Region::zeroed(tensor.bytes());
            transfer.memory = staged.clone();
            let into = tensor.clone();
            transfer.finish = Some(Box::new(move || into.copy_from(&staged)));
        }
        let issued = self.inner.cpu.recv(transfer, self.deadline(timeout), waiting)?;
        Ok(Work::new("recv", vec![(issued, self.cpu())], vec![tensor]))
    }

    /// Whether a message can be exchanged with `peer`, this rank's `role` for it.
    pub(crate) fn check_peer(&self, name: &str, role: &str, peer: u32) -> Result<()> {
        let message = if peer == self.rank() {
            format!(
                "Invalid {role} rank: {role} rank should not be the same as the rank of the \
                 current process ({peer})"
            )
        } else if peer >= self.size() {
            format!("{name}: {role} rank must be in 0..{}, got {peer}", self.size())
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument { message })
    }

    fn deadline(&self, timeout: Option<Duration>) -> Instant {
        let timeout = timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(self.timeout());
        clock::after(timeout)
    }

    fn cpu(&self) -> Arc<dyn Backend> {
        self.inner.cpu.clone()
    }

    fn count_split(&self, membership: &str) -> u32 {
        let mut splits = self.inner.splits.lock().unwrap_or_else(PoisonError::into_inner);
        let count = splits.entry(membership.into()).or_insert(0);
        *count += 1;
        *count
    }
}

/// A number that nothing else of this process was given; from 1 on.
pub(crate) fn next_identity() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, rank, members, spec, .. } = &*self.inner;
        write!(f, "ProcessGroup('{name}', rank {rank} of {}, {spec})", members.len())
    }
}

fn single(name: &str, mut tensors: Vec<Tensor>) -> Result<Tensor> {
    match (tensors.pop(), tensors.len()) {
        (Some(tensor), 0) => Ok(tensor),
        (tensor, more) => {
            let got = more + usize::from(tensor.is_some());
            let message = format!("{name}: expected one tensor, got a list of {got}");
            Err(Error::InvalidArgument { message })
        }
    }
}
