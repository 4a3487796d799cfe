//! One-sided access to memory of other ranks: what may be accessed is checked here, before anything
//! is sent, and what lies in memory of this host that can be mapped is accessed without the target.
//! Knows neither frames nor transports.

mod access;
mod registration;
#[cfg(all(test, feature = "tcp"))]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use self::registration::Registration;
use super::composed::of_whole;
use super::{ProcessGroup, next_identity};
use crate::backend::{
    Backend, ExposedMemory, Fence, Flush, GoneRanks, GoneReason, IssueOptions, WindowOperation,
    Windows, closed_by,
};
use crate::blocking::block_on;
use crate::completion::{Completion, Outcome, WaitIntent};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::request::Request;
use crate::tensor::{OwnedBuffers, Region, SharedBytes, Tensor, single_tensor};
use crate::work::Work;
use crate::work::comm_name::describe_error;

/// Memory of all ranks of a group that each of them can reach without the owner's help.
///
/// All ranks make it together ([`ProcessGroup::new_window`]) and register a tensor each, which may
/// differ in length and type. Then each rank reads and writes the others' tensors, at offsets in
/// elements. The memory of a call of this rank may be used again as soon as the call is over; the
/// elements are in the target's memory then. What the owner reads there is certain after a signal
/// or a fence of those that wrote it.
///
/// Single elements of up to eight bytes are updated atomically, whoever updates them and whichever
/// way. A put of elements that another rank updates at the same moment has no order with that.
///
/// A clone is the same window. When the last is dropped, this rank closes it: what it has
/// registered is given up, and calls of other ranks that need this one fail.
#[derive(Clone)]
pub struct Window {
    inner: Arc<Inner>,
    /// Limit of its calls; none: the group's.
    timeout: Option<Duration>,
}

struct Inner {
    group: ProcessGroup,
    identity: u64,
    /// The members of the group to which it belongs.
    epoch: u64,
    /// This rank among them, and how many there are.
    rank: u32,
    size: u32,
    /// Serves memory of the host.
    backend: Arc<dyn Backend>,
    /// Its number at every rank.
    number: u32,
    /// Ends when the group breaks.
    failure: Option<Arc<Completion>>,
    /// The ranks that have left, or closed it.
    gone: Arc<GoneRanks>,
    registered: RwLock<Registered>,
    /// The last deregistration.
    closing: Mutex<Option<Work>>,
}

/// What a window opens.
#[derive(Default)]
enum Registered {
    #[default]
    Nothing,
    /// A tensor is about to be registered.
    Opening,
    Tensor(Box<Registration>),
}

impl ProcessGroup {
    /// Whether the group has windows.
    pub fn supports_window(&self) -> bool {
        self.inner.cpu.windows().is_some()
    }

    /// Makes a window. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the group's backend has none; [`Error::InvalidArgument`] if
    /// another rank gives a tensor; the failure of a broken group.
    pub fn new_window(&self) -> Result<Window> {
        block_on(self.new_window_async())
    }

    /// As [`ProcessGroup::new_window`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::new_window`].
    pub async fn new_window_async(&self) -> Result<Window> {
        self.new_window_given(Ok(None)).await
    }

    /// Makes a window in which `tensor` is registered, as by [`Window::tensor_register`]. All ranks
    /// call it.
    ///
    /// # Errors
    /// As [`ProcessGroup::new_window`], and as [`Window::tensor_register`], if another rank gives
    /// no tensor or one that cannot be registered.
    pub fn new_window_with(&self, tensor: Tensor) -> Result<Window> {
        block_on(self.new_window_with_async(tensor))
    }

    /// As [`ProcessGroup::new_window_with`], without blocking.
    ///
    /// # Errors
    /// As [`ProcessGroup::new_window_with`].
    pub async fn new_window_with_async(&self, tensor: Tensor) -> Result<Window> {
        self.new_window_given(Ok(Some(tensor))).await
    }

    /// Makes a window, with or without a tensor that is registered in it at once. Where one rank
    /// gives none, or one that cannot be registered, or what is not a tensor, all learn it.
    pub(crate) async fn new_window_given(&self, tensor: Result<Option<Tensor>>) -> Result<Window> {
        let made = self.make_window(tensor).await;
        made.map_err(|error| of_whole(error, "new_window"))
    }

    async fn make_window(&self, tensor: Result<Option<Tensor>>) -> Result<Window> {
        let tensor = tensor.and_then(|tensor| match &tensor {
            Some(given) => registration::check(given).map(|()| tensor),
            None => Ok(None),
        });
        let given = match &tensor {
            Ok(None) => InitialTensor::Absent,
            Ok(Some(_)) => InitialTensor::Usable,
            Err(_) => InitialTensor::Refused,
        };
        let (window, told, work) = self.begin_window(given)?;
        work.settle().await?;
        let tensor = tensor?;
        let window = window.check_told(given, &told)?;
        window.meet(WaitIntent::Later)?.settle().await?;
        if let Some(tensor) = tensor {
            window.issue_register(tensor)?.settle().await?;
        }
        Ok(window)
    }

    /// Opens a window here, and begins to ask whether the others have opened the same.
    fn begin_window(&self, given: InitialTensor) -> Result<(Window, Region, Work)> {
        // One look at them: others may take their place at any time, and count their own windows.
        let members = self.present_members("new_window")?;
        let (epoch, rank, size) = (members.epoch, members.rank, members.size());
        let backend = members.cpu.clone();
        let windows = windows_of(&backend)?;
        let (number, gone) = windows.open();
        let others: Vec<u32> = (0..size).filter(|&other| other != rank).collect();
        let failure = backend.await_failure(&others);
        let inner = Inner {
            group: self.clone(),
            identity: next_identity(),
            epoch,
            rank,
            size,
            backend: backend.clone(),
            number,
            failure,
            gone,
            registered: RwLock::default(),
            closing: Mutex::default(),
        };
        let window = Window { inner: Arc::new(inner), timeout: None };
        let (gathered, work) = window.gather("new_window", told_of(number, given).to_vec())?;
        Ok((window, gathered, work))
    }
}

impl Window {
    /// The group whose ranks have it.
    pub fn group(&self) -> &ProcessGroup {
        &self.inner.group
    }

    /// The same window, whose calls have this limit instead of the group's; zero is none.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Window {
        Window { inner: self.inner.clone(), timeout: Some(timeout) }
    }

    /// A number that no other object of this process ever has.
    pub(crate) fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// Opens a tensor to the other ranks. All ranks call it. The memory is kept until
    /// [`Window::tensor_deregister`] has ended, whoever owns it.
    ///
    /// Ranks of this host read and write it without this rank's help if it is polyrank's own, as
    /// that of [`Tensor::zeros`] is from 32 KiB on; else this process serves them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a tensor is registered already, or the tensor cannot be: it
    /// must be contiguous, aligned, writable, and the host's. The failure of a broken group.
    pub fn tensor_register(&self, tensor: impl OwnedBuffers) -> Result<()> {
        self.tensor_register_async(tensor)?.wait(None)
    }

    /// As [`Window::tensor_register`], without waiting; nothing is accessed before the work is
    /// done.
    ///
    /// # Errors
    /// As [`Window::tensor_register`].
    pub fn tensor_register_async(&self, tensor: impl OwnedBuffers) -> Result<Work> {
        let tensor = single_tensor("tensor_register", tensor.into_tensors())?;
        self.issue_register(tensor)
    }

    pub(crate) fn issue_register(&self, tensor: Tensor) -> Result<Work> {
        let name = "tensor_register";
        registration::check(&tensor)?;
        self.check_members(name)?;
        let closing = self.inner.closing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if closing.is_some_and(|work| !work.is_completed()) {
            // Accesses to the former tensor would go to this one.
            let what = "an earlier tensor_deregister is not complete: wait for its work first";
            return Err(invalid(name, what));
        }
        match &mut *self.registered_mut() {
            place @ Registered::Nothing => *place = Registered::Opening,
            _ => return Err(invalid(name, "a tensor is registered already")),
        }
        // Without the lock: what ends meanwhile may have callbacks, which may use the window.
        let begun = self.begin_registration(tensor);
        let (registered, work) = match begun {
            Ok((begun, work)) => (Registered::Tensor(Box::new(begun)), Ok(work)),
            Err(error) => (Registered::Nothing, Err(error)),
        };
        *self.registered_mut() = registered;
        if work.is_err() {
            self.windows()?.expose(self.inner.number, None);
        }
        work
    }

    fn begin_registration(&self, tensor: Tensor) -> Result<(Registration, Work)> {
        let (windows, region) = (self.windows()?, tensor.region().clone());
        let shared = SharedBytes::of(&region);
        let exposed = ExposedMemory { dtype: tensor.dtype(), shared, region };
        windows.expose(self.inner.number, Some(exposed));
        let sharing = windows.sharing().filter(|_| self.inner.size > 1);
        Registration::begin(self, tensor, sharing)
    }

    /// Closes what [`Window::tensor_register`] opened, after all accesses of all ranks. All ranks
    /// call it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if nothing is registered; the failure of a broken group.
    pub fn tensor_deregister(&self) -> Result<()> {
        self.issue_deregister(WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::tensor_deregister`], without waiting.
    ///
    /// # Errors
    /// As [`Window::tensor_deregister`].
    pub fn tensor_deregister_async(&self) -> Result<Work> {
        self.issue_deregister(WaitIntent::Later)
    }

    pub(crate) fn issue_deregister(&self, waiting: WaitIntent) -> Result<Work> {
        let name = "tensor_deregister";
        let mut ended = match &mut *self.registered_mut() {
            place @ Registered::Tensor(_) => match std::mem::take(place) {
                Registered::Tensor(ended) => Ok(ended),
                _ => Err(not_registered(name)),
            },
            _ => Err(not_registered(name)),
        }?;
        // Before the others can hear of it.
        ended.detach();
        let fence = Fence { window: self.inner.number, name, closes: true };
        // The memory is kept until nobody accesses it any more, and is free then.
        let finish = move || ended.note_agreed_end();
        let work =
            self.issue(name, WindowOperation::Fence(fence), waiting, Some(Box::new(finish)))?;
        let mut closing = self.inner.closing.lock().unwrap_or_else(PoisonError::into_inner);
        *closing = Some(work.clone());
        Ok(work)
    }

    /// Signals `peer`, which may wait for it. What this rank has written before is there when the
    /// signal is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `peer` is not a rank; [`Error::InvalidGroup`] if the group was
    /// destroyed; the failure of a broken group.
    pub fn signal(&self, peer: u32) -> Result<()> {
        self.issue_signal(peer, WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::signal`], without waiting until it is on its way.
    ///
    /// # Errors
    /// As [`Window::signal`].
    pub fn signal_async(&self, peer: u32) -> Result<Work> {
        self.issue_signal(peer, WaitIntent::Later)
    }

    pub(crate) fn issue_signal(&self, peer: u32, waiting: WaitIntent) -> Result<Work> {
        self.check_rank("signal", peer)?;
        self.check_members("signal")?;
        self.check_here("signal", peer)?;
        let operation = WindowOperation::Signal { window: self.inner.number, peer };
        self.issue("signal", operation, waiting, None)
    }

    /// Waits for a signal of `peer`, and takes it: each is taken once.
    ///
    /// # Errors
    /// As [`Window::signal`]; [`Error::CollectiveTimeout`] if none comes in time: the group goes
    /// on, and a signal that comes later is for another call.
    pub fn wait_signal(&self, peer: u32) -> Result<()> {
        self.issue_wait_signal(peer, WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::wait_signal`], without waiting: the work is done when the signal is here.
    ///
    /// # Errors
    /// As [`Window::wait_signal`].
    pub fn wait_signal_async(&self, peer: u32) -> Result<Work> {
        self.issue_wait_signal(peer, WaitIntent::Later)
    }

    pub(crate) fn issue_wait_signal(&self, peer: u32, waiting: WaitIntent) -> Result<Work> {
        self.check_rank("wait_signal", peer)?;
        let operation = WindowOperation::WaitSignal { window: self.inner.number, peer };
        self.issue("wait_signal", operation, waiting, None)
    }

    /// Waits until all that this rank has issued to `peer`, or to any rank, is done.
    ///
    /// # Errors
    /// As [`Window::signal`]; [`Error::RankFailed`] if `peer` has left.
    pub fn flush(&self, peer: Option<u32>) -> Result<()> {
        self.issue_flush(peer, WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::flush`], without waiting.
    ///
    /// # Errors
    /// As [`Window::flush`].
    pub fn flush_async(&self, peer: Option<u32>) -> Result<Work> {
        self.issue_flush(peer, WaitIntent::Later)
    }

    pub(crate) fn issue_flush(&self, peer: Option<u32>, waiting: WaitIntent) -> Result<Work> {
        peer.map_or(Ok(()), |peer| self.check_rank("flush", peer))?;
        self.check_members("flush")?;
        if let Some(rank) = peer.filter(|&peer| self.inner.backend.has_left(peer)) {
            return Err(self.left_by("flush", rank));
        }
        self.issue("flush", WindowOperation::Flush(Flush { peer }), waiting, None)
    }

    /// Waits for all ranks, and until what each of them has issued before is done. All ranks call
    /// it.
    ///
    /// # Errors
    /// The failure of a broken group.
    pub fn fence(&self) -> Result<()> {
        self.issue_fence(WaitIntent::Soon)?.wait(None)
    }

    /// As [`Window::fence`], without waiting.
    ///
    /// # Errors
    /// As [`Window::fence`].
    pub fn fence_async(&self) -> Result<Work> {
        self.issue_fence(WaitIntent::Later)
    }

    pub(crate) fn issue_fence(&self, waiting: WaitIntent) -> Result<Work> {
        let fence = Fence { window: self.inner.number, name: "fence", closes: false };
        self.issue("fence", WindowOperation::Fence(fence), waiting, None)
    }

    /// Waits until all ranks have opened the window, and each is connected to each.
    fn meet(&self, waiting: WaitIntent) -> Result<Work> {
        let fence = Fence { window: self.inner.number, name: "new_window", closes: false };
        self.issue("new_window", WindowOperation::Fence(fence), waiting, None)
    }

    fn issue(
        &self,
        name: &'static str,
        operation: WindowOperation,
        waiting: WaitIntent,
        finish: Option<Outcome>,
    ) -> Result<Work> {
        self.check_members(name)?;
        let group = self.group();
        let options = IssueOptions { deadline: group.deadline(self.timeout), waiting };
        let issued = self.windows()?.issue(operation, options, finish);
        Ok(Work::new(group.label(name), vec![(issued, self.inner.backend.clone())], Vec::new()))
    }

    /// Begins to gather as many bytes of each rank as this one has, by rank: a part of an operation
    /// of this name, and none that hooks see.
    fn gather(&self, name: &'static str, own: Vec<u8>) -> Result<(Region, Work)> {
        let Inner { group, epoch, size, .. } = &*self.inner;
        let bytes = own.len();
        let gathered = Region::zeroed(bytes * *size as usize);
        let block = |rank: usize| {
            let region = gathered.slice(rank * bytes..(rank + 1) * bytes);
            Tensor::contiguous(region, DType::U8, vec![bytes])
        };
        let request = Request {
            name,
            inputs: vec![vec![own.into()]],
            outputs: vec![(0..*size as usize).map(block).collect()],
            timeout: self.timeout,
            epoch: Some(*epoch),
            ..Request::new(Collective::Allgather)
        };
        let work = group.issue_unhooked(request, WaitIntent::Later)?;
        Ok((gathered, work))
    }

    fn registered(&self) -> RwLockReadGuard<'_, Registered> {
        self.inner.registered.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn registered_mut(&self) -> RwLockWriteGuard<'_, Registered> {
        self.inner.registered.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn windows(&self) -> Result<&dyn Windows> {
        windows_of(&self.inner.backend)
    }

    fn check_rank(&self, name: &str, rank: u32) -> Result<()> {
        let size = self.inner.size;
        if rank < size {
            return Ok(());
        }
        Err(outside(name, rank, size))
    }

    /// Fails if the group was left, has other members than those that made the window, or broke.
    fn check_members(&self, name: &str) -> Result<()> {
        self.group().unless_left()?;
        self.group().check_epoch(self.inner.epoch, name)?;
        self.check_unbroken(name)
    }

    /// Fails if the group broke or was left: nobody else would say so of an access to mapped
    /// memory.
    #[inline]
    fn check_unbroken(&self, name: &str) -> Result<()> {
        match self.inner.failure.as_ref().and_then(|failure| failure.error()) {
            None => Ok(()),
            Some(error) => {
                // Leaving broke it, too.
                self.group().unless_left()?;
                self.group().check_epoch(self.inner.epoch, name)?;
                describe_error(Err(of_whole(error, name)))
            }
        }
    }

    /// Fails if `peer` has left the group, or closed the window: its memory is nobody's.
    #[inline]
    fn check_here(&self, name: &str, peer: u32) -> Result<()> {
        match self.inner.gone.of(peer) {
            None => Ok(()),
            Some(GoneReason::Closed) => Err(closed_by(name, peer)),
            Some(GoneReason::Left) => Err(self.left_by(name, peer)),
        }
    }

    fn left_by(&self, name: &str, rank: u32) -> Error {
        Error::RankFailed {
            group: self.group().group_name().to_owned(),
            rank,
            why: "it left the group".to_owned(),
            collective: name.to_owned(),
            sequence: 0,
        }
    }

    /// Sees that all ranks have opened this window, and gave the like of what this one has given.
    fn check_told(self, given: InitialTensor, gathered: &Region) -> Result<Window> {
        let told = |given| told_of(self.inner.number, given);
        let all = gathered.read(|all| all.as_chunks().0.to_vec());
        if all.iter().all(|other| *other == told(given)) {
            return Ok(self);
        }
        let ranks = |given| {
            let numbered = (0..self.inner.size).zip(&all);
            let same = numbered.filter(|(_, other)| **other == told(given));
            same.map(|(rank, _)| rank).collect::<Vec<u32>>()
        };
        let [none, some, refused] =
            [InitialTensor::Absent, InitialTensor::Usable, InitialTensor::Refused].map(ranks);
        let what = match (none.len() + some.len() + refused.len() == all.len(), refused.is_empty())
        {
            (false, _) => {
                "ranks made their windows in different orders, or not all of them".to_owned()
            }
            (true, true) => format!(
                "ranks {some:?} gave a tensor, ranks {none:?} none: expected one of every rank, or \
                 of none"
            ),
            (true, false) => format!("ranks {refused:?} gave a tensor that cannot be registered"),
        };
        Err(invalid("new_window", &what))
    }
}

/// What a rank gives [`ProcessGroup::new_window`], as the others are told.
#[derive(Clone, Copy)]
enum InitialTensor {
    Absent,
    Usable,
    /// It cannot be registered, or is not a tensor.
    Refused,
}

/// What a rank tells the others of a window that it opens.
fn told_of(number: u32, given: InitialTensor) -> [u8; size_of::<u64>()] {
    (u64::from(number) | (given as u64) << u32::BITS).to_le_bytes()
}

fn windows_of(backend: &Arc<dyn Backend>) -> Result<&dyn Windows> {
    backend.windows().ok_or_else(|| Error::Unsupported {
        who: format!("the {} backend", backend.name()),
        operation: "new_window".into(),
    })
}

fn invalid(name: &str, what: &str) -> Error {
    Error::InvalidArgument { message: format!("{name}: {what}") }
}

/// For a rank that is none of so many.
fn outside(name: &str, rank: u32, size: u32) -> Error {
    let last = size.saturating_sub(1);
    invalid(name, &format!("expected a rank from 0 to {last}, got {rank}"))
}

fn not_registered(name: &str) -> Error {
    invalid(name, "no tensor is registered in this window: call tensor_register first")
}

impl Drop for Inner {
    fn drop(&mut self) {
        let registered = self.registered.get_mut().unwrap_or_else(PoisonError::into_inner);
        // What is mapped is detached before the others hear of it.
        drop(std::mem::take(registered));
        // Those whose place others took hear that, and nothing that only follows from it.
        let is_of_former = self.group.epoch() != self.epoch;
        if let Some(windows) = self.backend.windows().filter(|_| !is_of_former) {
            windows.close(self.number);
        }
    }
}

/// A short description for debugging, the same in every language:
/// `Window(1 of default_pg, rank 0 of 2)`.
impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { group, number, rank, size, .. } = &*self.inner;
        let name = group.group_name();
        write!(f, "Window({number} of {name}, rank {rank} of {size})")
    }
}
