//! Operations that are checked once and started often. Knows no backend.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::check::CheckedRequest;
use super::custom_reduction::reduction_of;
use super::fast_path::HeldBuffers;
use super::messages::MessageRequest;
use super::{Inner, ProcessGroup};
use crate::completion::WaitIntent;
use crate::generated::collective::Blocks;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::request::{CustomReduction, Request, SingleTensorRequest, TypedCall};
use crate::tensor::{LentMemory, OwnedBuffers, Region, Tensor, single_tensor};
use crate::work::Work;

/// An operation that is started again and again: its arguments are checked when it is made, and its
/// tensors are kept.
///
/// Each start is a call like any other: it has the next sequence number, and other ranks may take
/// part in it by an ordinary call. Between the end of one start and the next, the elements of the
/// tensors may be changed.
pub struct PreparedOperation {
    group: ProcessGroup,
    /// The members for which it was prepared: it ends with them.
    epoch: u64,
    call: PreparedCall,
    /// As they were given, at least one; those that are written come first.
    tensors: Vec<Tensor>,
    started: Mutex<PreparedRun>,
}

/// What every start does.
enum PreparedCall {
    Collective {
        checked: Box<CheckedRequest>,
        /// The call on whole pieces of memory, if it is one.
        plain: Option<PlainCall>,
        /// What has the function of its operator, if that is one.
        _reduction: Option<CustomReduction>,
    },
    Message(MessageRequest),
}

/// A collective of equal parts on whole pieces of the host's memory, which needs no lists.
pub(crate) struct PlainCall {
    pub(crate) request: SingleTensorRequest,
    /// What is read, if that is not what is written.
    pub(crate) input: Option<Region>,
    pub(crate) output: Region,
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
}

impl ProcessGroup {
    /// Prepares a message to a rank of the group. Each start is a message, for an ordinary or a
    /// prepared receive.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `dst_rank` is not a rank of the group, or there is not one
    /// tensor; [`Error::InvalidGroup`] if the group was destroyed.
    pub fn prepare_send(
        &self,
        tensor: impl OwnedBuffers,
        dst_rank: u32,
        tag: u32,
    ) -> Result<PreparedOperation> {
        let tensor = single_tensor("send", tensor.into_tensors())?;
        self.prepare_message(MessageRequest::send(tensor, dst_rank, tag))
    }

    /// Prepares the receive of a message from a rank of the group.
    ///
    /// # Errors
    /// As [`ProcessGroup::prepare_send`].
    pub fn prepare_recv(
        &self,
        tensor: impl OwnedBuffers,
        src_rank: u32,
        tag: u32,
    ) -> Result<PreparedOperation> {
        let tensor = single_tensor("recv", tensor.into_tensors())?;
        self.prepare_message(MessageRequest::receive(tensor, Some(src_rank), tag))
    }

    /// Prepares a collective.
    pub(crate) fn prepare_call(&self, call: TypedCall) -> Result<PreparedOperation> {
        self.prepare_collective(|| self.request(call))
    }

    /// Prepares the collective that `request` makes, for the members of now.
    pub(crate) fn prepare_collective(
        &self,
        request: impl FnOnce() -> Result<Request>,
    ) -> Result<PreparedOperation> {
        let epoch = self.epoch();
        self.unless_left()?;
        let checked = Box::new(self.check(request()?)?);
        let request = checked.request();
        self.check_epoch(epoch, request.name)?;
        let _reduction = reduction_of(request)?;
        let (plain, tensors) = (PlainCall::of(&checked), tensors_of(request));
        let call = PreparedCall::Collective { checked, plain, _reduction };
        Ok(PreparedOperation::new(self, epoch, call, tensors))
    }

    /// Prepares a message.
    pub(crate) fn prepare_message(&self, message: MessageRequest) -> Result<PreparedOperation> {
        let epoch = self.epoch();
        self.check_message_of(&message)?;
        let tensors = vec![message.tensor.clone()];
        Ok(PreparedOperation::new(self, epoch, PreparedCall::Message(message), tensors))
    }
}

impl PreparedOperation {
    /// Starts the operation. Its outcome is in [`PreparedOperation::tensors`]; that work's
    /// [`Work::result`] may be empty.
    ///
    /// While an earlier start continues, a message to or from one rank is issued behind it, and so
    /// is a collective of a device. A collective of the host is refused: the ranks number what they
    /// issue, so it can be issued neither later nor, on the same tensors, now.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if an earlier start continues, as above, or another thread is
    /// starting it; [`Error::Reconfigured`] if the group has other members by now. That the group
    /// is broken, or was left, is said here or by the work.
    pub fn start(&self) -> Result<Work> {
        // A loop that repeats one call waits for each before the next.
        self.start_by(|_| self.issue(WaitIntent::Likely), unless_over)
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
        let start = |members: &Inner| match &self.call {
            PreparedCall::Message(message)
                if self.group.is_unwrapped() && members.exchange_short(message) =>
            {
                Ok(None)
            }
            _ => self.issue(WaitIntent::Soon).map(|work| unless_over(&work)),
        };
        self.start_by(start, Option::clone)
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

    /// All tensors, as they were given; those that are written come first. Their elements are
    /// defined while nothing that was started continues.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The first of [`PreparedOperation::tensors`]. That of a barrier has no elements.
    pub fn tensor(&self) -> &Tensor {
        &self.tensors[0]
    }

    /// The group in which it runs.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// The limit of each start; zero is none.
    pub fn timeout(&self) -> Duration {
        let own = match &self.call {
            PreparedCall::Collective { checked, .. } => checked.request().timeout,
            PreparedCall::Message(_) => None,
        };
        own.unwrap_or_else(|| self.group.timeout())
    }

    fn new(
        group: &ProcessGroup,
        epoch: u64,
        call: PreparedCall,
        mut tensors: Vec<Tensor>,
    ) -> PreparedOperation {
        if tensors.is_empty() {
            tensors.push(Tensor::contiguous(Region::zeroed(0), DType::U8, vec![0]));
        }
        let (group, started) = (group.clone(), Mutex::default());
        PreparedOperation { group, epoch, call, tensors, started }
    }

    /// The method whose calls its starts are: `all_gather_single`.
    fn name(&self) -> &'static str {
        match &self.call {
            PreparedCall::Collective { checked, .. } => checked.request().name,
            PreparedCall::Message(message) => message.name(),
        }
    }

    /// Has `start` make the next, of which `work` continues, unless an earlier one is in its way.
    fn start_by<T>(
        &self,
        start: impl FnOnce(&Inner) -> Result<T>,
        work: impl FnOnce(&T) -> Option<Work>,
    ) -> Result<T> {
        let mut started = self.started();
        if started.starting {
            return Err(self.is_being_started());
        }
        started.starting = true;
        let last = started.last.clone();
        drop(started);
        // A hook of the user may panic.
        let _unwinding = EndOfStart(self);
        let is_free = !self.is_one_by_one() || last.is_none_or(|work| work.is_completed());
        let free = if is_free { Ok(()) } else { Err(self.is_running()) };
        let result = free.and_then(|()| {
            let members = &**self.group.inner;
            members.check_epoch(self.epoch, self.name(), &self.group.inner)?;
            start(members)
        });
        let mut started = self.started();
        started.starting = false;
        if let Ok(result) = &result {
            started.last = work(result);
        }
        result
    }

    /// Whether there is no start before the one before is over.
    fn is_one_by_one(&self) -> bool {
        match &self.call {
            // What comes from one rank comes in order, as into the tensor; what comes from several
            // could come into it at the same time.
            PreparedCall::Message(message) => message.peer.is_none(),
            // A device does in order what it is told in order.
            PreparedCall::Collective { .. } => {
                let is_on_host = self.tensor().region().device().is_none();
                is_on_host || self.group.inner.cuda.is_none()
            }
        }
    }

    /// Issues the next, by no other members than those for which it was prepared.
    fn issue(&self, waiting: WaitIntent) -> Result<Work> {
        let group = &self.group;
        match &self.call {
            PreparedCall::Collective { checked, plain, .. } => {
                let issued = plain.as_ref().and_then(|plain| plain.issue(group, waiting));
                issued.unwrap_or_else(|| {
                    group.require_members(self.name())?;
                    group.issue_checked(CheckedRequest::clone(checked), waiting)
                })
            }
            PreparedCall::Message(message) => {
                group.require_members(self.name())?;
                group.issue_message_among(message.clone(), self.epoch, None, waiting)
            }
        }
    }

    fn is_running(&self) -> Error {
        let name = self.name();
        let message =
            format!("{name}: its last start is still running; wait for that one before the next");
        Error::InvalidArgument { message }
    }

    fn is_being_started(&self) -> Error {
        let name = self.name();
        let message = format!("{name}: another thread is starting it; start it from one at a time");
        Error::InvalidArgument { message }
    }

    fn started(&self) -> MutexGuard<'_, PreparedRun> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlainCall {
    /// What was checked, if it is such a call.
    pub(crate) fn of(checked: &CheckedRequest) -> Option<PlainCall> {
        let request = checked.request();
        let facts = request.collective.facts();
        let input = whole(facts.input, &request.inputs, &request.uncut_inputs)?;
        let output = whole(facts.output, &request.outputs, &request.uncut_outputs)?;
        let (input, output) = match (input, output) {
            // What a root's tensor holds is read where the result goes.
            (Some(given), Some(taken)) if facts.output == Blocks::OneAtRoot => {
                given.region().same_memory(taken.region()).then_some((None, output))?
            }
            (Some(given), Some(taken)) => {
                (!given.region().overlaps(taken.region())).then_some((input, output))?
            }
            (Some(_), None) => return None,
            (None, _) => (None, output),
        };
        let dtype = output.map_or(DType::U8, Tensor::dtype);
        let is_plain = |tensor: &Tensor| {
            let is_here = tensor.region().device().is_none();
            is_here && tensor.is_contiguous() && tensor.dtype() == dtype
        };
        let all_are_plain = input.into_iter().chain(output).all(is_plain);
        let is_whole = !request.coalesced && request.form().is_none();
        if !is_whole || !all_are_plain || output.is_some_and(Tensor::is_read_only) {
            return None;
        }
        let request = SingleTensorRequest {
            collective: request.collective,
            name: request.name,
            dtype,
            reduce_op: request.reduce_op,
            root: request.root,
            timeout: request.timeout,
            waiting: WaitIntent::Later,
            epoch: Some(checked.epoch),
        };
        let region = |tensor: &Tensor| tensor.region().clone();
        let output = output.map_or_else(|| Region::zeroed(0), region);
        Some(PlainCall { request, input: input.map(region), output })
    }

    /// Runs or issues it; none if nothing was done.
    fn issue(&self, group: &ProcessGroup, waiting: WaitIntent) -> Option<Result<Work>> {
        let request = SingleTensorRequest { waiting, ..self.request };
        let kept = || HeldBuffers { input: self.input.clone(), output: self.output.clone() };
        let mut memory = LentMemory::Shared(self.input.as_ref(), &self.output);
        match group.try_plain(&request, &mut memory) {
            // What continues has given its part, and writes when the others' are there.
            Some(tried) => Some(Ok(tried.work(kept))),
            None => group.issue_plain(&request, kept()),
        }
    }
}

/// The one tensor that all blocks of a buffer are, in equal parts, if it has blocks; none if they
/// are no such tensor.
fn whole<'a>(
    rule: Blocks,
    lists: &'a [Vec<Tensor>],
    uncut: &'a [Tensor],
) -> Option<Option<&'a Tensor>> {
    match (rule, lists, uncut) {
        (Blocks::None, ..) => Some(None),
        (Blocks::One | Blocks::OneAtRoot, [list], _) => match &list[..] {
            [one] => Some(Some(one)),
            _ => None,
        },
        (Blocks::All, [blocks], [one]) => {
            let elements = blocks.first().map(Tensor::elements);
            blocks.iter().all(|block| Some(block.elements()) == elements).then_some(Some(one))
        }
        _ => None,
    }
}

/// The tensors of a request, as they were given, those that are written first.
fn tensors_of(request: &Request) -> Vec<Tensor> {
    let given = |lists: &[Vec<Tensor>], uncut: &[Tensor]| match uncut {
        [] => lists.concat(),
        _ => uncut.to_vec(),
    };
    let mut tensors = given(&request.outputs, &request.uncut_outputs);
    for input in given(&request.inputs, &request.uncut_inputs) {
        if !tensors.iter().any(|known| known.region().is(input.region())) {
            tensors.push(input);
        }
    }
    tensors
}

fn unless_over(work: &Work) -> Option<Work> {
    (!work.is_success()).then(|| work.clone())
}

impl fmt::Debug for PreparedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedOperation({}", self.name())?;
        let tensor = self.tensor();
        let is_barrier = self.name() == "barrier";
        if !is_barrier {
            write!(f, " of {} {}", tensor.elements(), tensor.dtype().name())?;
        }
        write!(f, " in {})", self.group.group_name())
    }
}
