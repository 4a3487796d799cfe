//! Operations that are checked once and started often. Knows no backend.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::custom_reduction::reduction_of;
use super::fast_path::{FastPathResult, HeldBuffers};
use super::{Inner, ProcessGroup, check};
use crate::backend::FAST_PATH_BYTES;
use crate::completion::WaitIntent;
use crate::generated::arguments::AllreduceArguments;
use crate::generated::error::{Error, Result};
use crate::request::{CustomReduction, Request, Role, SingleTensorRequest, TypedCall, tables};
use crate::tensor::{LentMemory, OwnedBuffers, Region, Tensor, single_tensor};
use crate::work::Work;

/// An operation on one tensor that is started again and again: arguments are checked when it is
/// made, and the tensor is kept.
///
/// Each start is a call like any other: it has the next sequence number, and other ranks may take
/// part in it by an ordinary call. Between the end of one start and the next, the tensor's
/// elements may be changed.
pub struct PreparedOperation {
    group: ProcessGroup,
    /// The members for which it was prepared: it ends with them.
    epoch: u64,
    request: Request,
    /// What has the function of its operator, if that is one.
    _reduction: Option<CustomReduction>,
    tensor: Tensor,
    /// The call on the tensor's memory, if that is contiguous.
    plain: Option<(SingleTensorRequest, Region)>,
    started: Mutex<PreparedRun>,
}

/// Lets others start the operation if this thread panics.
struct EndOfStart<'a>(&'a PreparedOperation);

impl Drop for EndOfStart<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.started().starting = false;
        }
    }
}

/// What was started of a prepared operation.
#[derive(Default)]
struct PreparedRun {
    /// What was started last, unless it succeeded immediately.
    last: Option<Work>,
    /// Whether a thread is in between: nobody holds the lock while callbacks may run.
    starting: bool,
    /// Where what can be done immediately is done, as long as the tensor's bytes: other operations
    /// on the same memory may have to move meanwhile.
    scratch: Vec<u8>,
}

impl ProcessGroup {
    /// Prepares an allreduce of one tensor, in place.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] and [`Error::UnsupportedDType`], as
    /// [`ProcessGroup::allreduce_async`] raises them; [`Error::InvalidGroup`] if the group was
    /// destroyed.
    pub fn prepare_allreduce(
        &self,
        tensor: impl OwnedBuffers,
        arguments: impl AllreduceArguments,
    ) -> Result<PreparedOperation> {
        self.unless_left()?;
        let call = TypedCall::new(&tables::PROCESS_GROUP_ALLREDUCE, arguments);
        let plain = call.plain(&[Role::InOut]);
        let tensor = single_tensor("prepare_allreduce", tensor.into_tensors())?;
        let call = call.tensors(Role::InOut, vec![tensor.clone()]);
        let epoch = self.inner.epoch;
        let request = call.request(self.rank(), self.size())?;
        check::check(&request, self.rank(), self.size())?;
        let reduction = reduction_of(&request)?;
        let plain = plain.filter(|_| tensor.is_contiguous() && tensor.region().device().is_none());
        let plain = plain.map(|plain| {
            let plain =
                SingleTensorRequest { dtype: tensor.dtype(), waiting: WaitIntent::Later, ..plain };
            (plain, tensor.region().clone())
        });
        let group = self.clone();
        let (started, _reduction) = (Mutex::default(), reduction);
        Ok(PreparedOperation { group, epoch, request, _reduction, tensor, plain, started })
    }
}

impl PreparedOperation {
    /// Starts the operation. Its outcome is in [`PreparedOperation::tensor`]; that
    /// work's [`Work::result`] is empty if the tensor is contiguous.
    ///
    /// An earlier start that continues is waited for first: starts are as many operations on every
    /// rank, whichever is faster.
    ///
    /// # Errors
    /// That of an earlier start; [`Error::InvalidArgument`] if another thread is starting it;
    /// [`Error::Reconfigured`] if the group has other members by now. That the group is broken, or
    /// was left, is said here or by the work.
    pub fn start(&self) -> Result<Work> {
        // A loop that repeats one call waits for each before the next.
        self.start_as(WaitIntent::Likely)
    }

    /// Starts the operation and waits for it.
    ///
    /// # Errors
    /// As [`PreparedOperation::start`], and the operation's own failure.
    pub fn run(&self) -> Result<()> {
        self.start_soon()?.map_or(Ok(()), |work| work.wait(None))
    }

    /// Starts the operation for a caller that waits for it next, in its own way; none if it
    /// succeeded immediately.
    ///
    /// # Errors
    /// As [`PreparedOperation::start`].
    pub fn start_soon(&self) -> Result<Option<Work>> {
        Ok(Some(self.start_as(WaitIntent::Soon)?).filter(|work| !work.is_success()))
    }

    /// Waits for what was started last; nothing if nothing was.
    ///
    /// # Errors
    /// As [`Work::wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let last = self.last_started();
        last.map_or(Ok(()), |work| work.wait(timeout))
    }

    /// What was started last, unless it succeeded immediately.
    pub fn last_started(&self) -> Option<Work> {
        self.started().last.clone()
    }

    /// The tensor. Its elements are defined while nothing that was started continues.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The group in which it runs.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    fn start_as(&self, waiting: WaitIntent) -> Result<Work> {
        let mut started = self.started();
        if started.starting {
            return Err(self.is_being_started());
        }
        started.starting = true;
        let last = started.last.clone();
        let mut scratch = std::mem::take(&mut started.scratch);
        drop(started);
        // A device does in order what it is told in order.
        let is_staged = self.tensor.region().device().is_none() || self.group.inner.cuda.is_none();
        let last = last.filter(|work| work.is_done() || is_staged);
        let over = last.map_or(Ok(()), |work| work.wait(None));
        // A hook of the user may panic.
        let _unwinding = EndOfStart(self);
        let result = over.and_then(|()| self.start_anew(waiting, &mut scratch));
        let mut started = self.started();
        started.starting = false;
        started.scratch = scratch;
        if let Ok(work) = &result {
            started.last = (!work.is_success()).then(|| work.clone());
        }
        result
    }

    fn start_anew(&self, waiting: WaitIntent, scratch: &mut Vec<u8>) -> Result<Work> {
        let (group, name) = (&self.group, self.request.name);
        let members = &**group.inner;
        members.check_epoch(self.epoch, name, &group.inner)?;
        if let Some(work) = self.try_at_once(members, waiting, scratch) {
            return Ok(work);
        }
        let issued = self.plain.as_ref().and_then(|(plain, region)| {
            let kept = HeldBuffers { input: None, output: region.clone() };
            let plain = SingleTensorRequest { waiting, ..*plain };
            group.issue_plain_among(members, &plain, kept)
        });
        issued.unwrap_or_else(|| {
            let checked = group.check(self.request.clone())?;
            // What is checked for one membership runs in no other.
            if checked.epoch != self.epoch {
                group.check_epoch(self.epoch, name)?;
            }
            group.issue_checked(checked, waiting)
        })
    }

    fn try_at_once(
        &self,
        members: &Inner,
        waiting: WaitIntent,
        scratch: &mut Vec<u8>,
    ) -> Option<Work> {
        let (plain, region) = self.plain.as_ref().filter(|it| it.1.len() <= FAST_PATH_BYTES)?;
        let plain = SingleTensorRequest { waiting, ..*plain };
        scratch.resize(region.len(), 0);
        region.read(|bytes| scratch.copy_from_slice(bytes));
        let mut memory = LentMemory::InPlace(scratch);
        let tried = self.group.try_plain_among(members, &plain, &mut memory)?;
        if matches!(tried, FastPathResult::Done(_)) {
            region.write(|bytes| bytes.copy_from_slice(scratch));
        }
        // What continues has given its part, and writes the tensor when the others' are there.
        Some(tried.work(|| HeldBuffers { input: None, output: region.clone() }))
    }

    fn is_being_started(&self) -> Error {
        let name = self.request.name;
        let message = format!("{name}: another thread is starting it; start it from one at a time");
        Error::InvalidArgument { message }
    }

    fn started(&self) -> MutexGuard<'_, PreparedRun> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PreparedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, elements) = (self.request.name, self.tensor.elements());
        let dtype = self.tensor.dtype().name();
        let group = self.group.group_name();
        write!(f, "PreparedOperation({name} of {elements} {dtype} in {group})")
    }
}
