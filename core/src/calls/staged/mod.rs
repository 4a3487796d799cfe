//! Operations on tensors that lie in a language's memory, which may go away or move at any time:
//! they work on copies. Prepare, copy in, issue, copy out. Knows no language.
//!
//! Copies are made in slices, so that a thread that has other things to do may do them meanwhile.
//! What the language passes for a copy is checked each time: it must be as long as it was.

mod hooks;
mod layout;
mod lending;
#[cfg(not(target_family = "wasm"))]
mod managed;
mod operation;
mod overlaps;
mod pool;
mod prepared;
mod short;
mod short_groups;
mod short_methods;
mod tensors;
#[cfg(test)]
mod tests;
mod topology;
mod window;

use std::time::Duration;

use super::invocation::Entry;
use super::object::Object;
use super::origin::Origin;
use super::resolve::resolve;
use super::value::{Arguments, Foreign};
use crate::completion::WaitIntent;
use crate::distributed;
use crate::generated::collective::Blocks;
use crate::generated::error::{Error, Result};
use crate::kernels::{self, Stores};
#[cfg(feature = "nccl")]
use crate::process_group::MessageRequest;
use crate::process_group::ProcessGroup;
use crate::request::Role;
pub use crate::tensor::Loan;
use crate::tensor::Region;
use crate::work::Work;
pub use hooks::OperationFacts;
pub use lending::Loans;
#[cfg(not(target_family = "wasm"))]
use operation::on_manager;
use operation::{Operation, on_topology, on_window, operation};
use overlaps::refuse_overlaps;
pub use short::{ShortArray, ShortCall, ShortMethod, ShortNames, ShortOutcome};
pub use short_groups::ShortGroups;
pub use short_methods::ShortMethods;
use tensors::StagedTensor;
pub use tensors::{Memory, TensorDescription, Tensors};

/// Memory of a language, for the moment of a copy.
pub trait CallerMemory {
    /// Its bytes now; 0 if it is gone.
    fn bytes(&self) -> usize;
    /// Copies the bytes from `at` on.
    fn read(&self, at: usize, into: &mut [u8]);
    /// Changes the bytes from `at` on.
    fn write(&self, at: usize, from: &[u8]);
    /// Lends all of it to `region`, which is as long, until the loan ends. None where others may
    /// use it, move it or give it up before that.
    fn lend(&self, region: &Region) -> Option<Loan> {
        let _ = region;
        None
    }
}

/// Copies a part of a tensor that has `whole_bytes` bytes: past the caches, if they could not hold
/// all of it until somebody reads it. Copies as many bytes as both have.
pub fn copy_part(into: &mut [u8], from: &[u8], whole_bytes: usize) {
    let stores = match into.len() {
        // A run of a tensor with strides; nothing is won by leaving the caches for so little.
        ..STREAMED_BYTES => Stores::Cached,
        _ => Stores::of_traffic(whole_bytes),
    };
    kernels::copy(into, from, stores);
}

/// Pieces below this are stored through the caches.
const STREAMED_BYTES: usize = 16 << 10;

/// An operation on tensors, on its way.
#[derive(Debug)]
pub struct StagedOperation {
    name: &'static str,
    /// None for an operation of a group that this process is not a member of.
    group: Option<ProcessGroup>,
    tensors: Tensors,
    /// Positions of the tensors that are read, and of those that are written.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// How many of the last `inputs` are copied in alone so that they stay as they are.
    kept_outputs: usize,
    /// Tensors that are copied by now, and bytes of the next one.
    copied_in: Cursor,
    copied_out: Cursor,
    /// Bytes that were copied in.
    bytes_copied_in: usize,
    timeout: Duration,
    /// Whether no other rank counts on it.
    is_one_sided: bool,
    origin: Origin,
    state: State,
}

#[derive(Debug)]
enum State {
    Prepared(Operation),
    Issued(Work),
    /// The group did not take it: it has begun nowhere, and no harm is done.
    Refused,
    /// Nothing was, or is, to be done.
    Over,
}

#[derive(Debug, Default)]
struct Cursor {
    tensors: usize,
    bytes: usize,
}

impl StagedOperation {
    /// Resolves and checks a call of `entry`, on `this` or on the group among its arguments. The
    /// slot of an object among the arguments is its position in `objects`.
    ///
    /// # Errors
    /// Wrong arguments; [`Error::Unsupported`] for a method that is not an operation on tensors.
    /// Where there is no memory for the copies, the group is aborted, as by
    /// [`StagedOperation::give_up`].
    pub fn prepare(
        entry: &'static Entry,
        this: Option<&Object>,
        arguments: Arguments,
        objects: &[Object],
        mut tensors: Tensors,
    ) -> Result<StagedOperation> {
        let resolved = resolve(entry.method, arguments)?;
        resolved.refuse_read_only_outputs()?;
        let given = match resolved.group() {
            Some(Foreign { slot, .. }) => objects.get(*slot),
            None => None,
        };
        if let Some(Object::NonGroupMember) = this.or(given) {
            return Ok(Self::nothing(entry.method.operation().name));
        }
        let group = match this.or(given) {
            Some(object) => object.operating_group()?.clone(),
            None => distributed::default_group()?,
        };
        if let Some(lack) = tensors.lack.take() {
            could_not(&group, entry.method.operation().name, &lack.to_string());
            return Err(lack);
        }
        let inputs = resolved.positions(&tensors, Role::is_read);
        let outputs = resolved.positions(&tensors, Role::is_written);
        let operation = match this {
            Some(Object::Window(window)) => on_window(window, resolved, &tensors)?,
            Some(Object::Topology(topology)) => on_topology(topology, &resolved)?,
            #[cfg(not(target_family = "wasm"))]
            Some(Object::Manager(manager)) => on_manager(manager, resolved)?,
            _ => operation(resolved, &group, this.is_some())?,
        };
        refuse_overlaps(entry.method.operation().name, &tensors.all, &outputs)?;
        let mut staged = StagedOperation {
            name: entry.method.operation().name,
            tensors,
            inputs,
            outputs,
            kept_outputs: 0,
            copied_in: Cursor::default(),
            copied_out: Cursor::default(),
            bytes_copied_in: 0,
            timeout: group.timeout(),
            is_one_sided: operation.is_one_sided(),
            origin: Origin::here(),
            state: State::Prepared(operation),
            group: Some(group),
        };
        staged.leave_out_needless_copies();
        Ok(staged)
    }

    /// Messages that are prepared, of one group, as one operation: on a device they meet in
    /// whatever order the ranks list them. The tensors are those of all of them, one after the
    /// other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for anything else.
    #[cfg(feature = "nccl")]
    pub fn together(messages: Vec<StagedOperation>) -> Result<StagedOperation> {
        let mut parts = messages.into_iter();
        let mut whole = parts.next().unwrap_or_else(|| Self::nothing("batch_isend_irecv"));
        whole.name = "batch_isend_irecv";
        let mut requests = whole.take_messages()?;
        for mut part in parts {
            distributed::check_one_group([&whole, &part].into_iter().flat_map(|it| &it.group))?;
            requests.extend(part.take_messages()?);
            let before = whole.tensors.all.len();
            whole.tensors.all.append(&mut part.tensors.all);
            whole.inputs.extend(part.inputs.iter().map(|position| position + before));
            whole.outputs.extend(part.outputs.iter().map(|position| position + before));
        }
        if whole.group.is_some() {
            whole.state = State::Prepared(Operation::Messages(requests));
        }
        Ok(whole)
    }

    #[cfg(feature = "nccl")]
    fn take_messages(&mut self) -> Result<Vec<MessageRequest>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Prepared(operation) => operation.into_messages(),
            State::Issued(_) | State::Refused | State::Over => Ok(Vec::new()),
        }
    }

    /// The method that was called, and what [`record_comm`](crate::record_comm) calls it.
    pub fn title(&self) -> String {
        self.origin.beside(self.name)
    }

    /// The limit of the operation.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The group that it runs in; none if this process is not a member of that.
    pub fn group(&self) -> Option<&ProcessGroup> {
        self.group.as_ref()
    }

    /// Positions of the tensors that are written, in the order of the call.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The work, once it is issued.
    pub fn work(&self) -> Option<&Work> {
        if let State::Issued(work) = &self.state { Some(work) } else { None }
    }

    /// Bytes of all its tensors, wherever they lie.
    pub fn bytes(&self) -> usize {
        self.tensors.all.iter().map(|staging| staging.tensor.bytes()).sum()
    }

    /// Whether there is nothing left to issue.
    pub fn is_issued(&self) -> bool {
        !matches!(self.state, State::Prepared(_))
    }

    /// Bytes that are still to be copied in.
    pub fn bytes_in(&self) -> usize {
        if self.is_issued() { 0 } else { self.copied_in.left(&self.inputs, &self.tensors) }
    }

    /// Bytes that were copied in until now.
    pub fn bytes_copied_in(&self) -> usize {
        self.bytes_copied_in
    }

    /// Copies about `budget` bytes of the tensors that are read, `memories[i]` being tensor `i`'s;
    /// bytes that are still to be copied then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a memory is gone or has another length.
    pub fn copy_in<M: CallerMemory>(&mut self, memories: &[M], budget: usize) -> Result<usize> {
        if self.is_issued() {
            return Ok(0);
        }
        let (name, mut copied) = (self.name, 0);
        let left = self.copied_in.advance(
            &self.inputs,
            &self.tensors,
            budget,
            |index, staging, done, budget| {
                let (memory, foreign) = current(name, memories.get(index), staging)?;
                let end = staging.tensor.region().write(|bytes| {
                    foreign.layout.pieces(done, budget, |from, to, length| {
                        memory.read(from, &mut bytes[to..to + length]);
                    })
                });
                copied += end - done;
                Ok(end)
            },
        );
        self.bytes_copied_in += copied;
        left
    }

    /// Issues it, once everything is copied in.
    ///
    /// # Errors
    /// As [`ProcessGroup::issue`].
    pub fn issue(&mut self, waiting: WaitIntent) -> Result<()> {
        let (State::Prepared(_), Some(group)) = (&self.state, &self.group) else { return Ok(()) };
        let left = self.bytes_in();
        if left > 0 {
            let message = format!("{}: {left} bytes are not copied in yet", self.name);
            return Err(Error::InvalidArgument { message });
        }
        // Whatever comes of it, it is not issued again.
        let State::Prepared(operation) = std::mem::replace(&mut self.state, State::Over) else {
            return Ok(());
        };
        let work = self.origin.apply(|| operation.issue(group, waiting));
        match work {
            Ok(work) => self.state = State::Issued(work),
            Err(error) => {
                if is_refusal(&error) {
                    self.state = State::Refused;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives up an operation that is not issued, though the call that prepared it has returned. The
    /// other ranks run it, and would take this rank's next operation for it: the group is aborted,
    /// and `why` is told to every rank; unless it is one of this rank alone, or the group has
    /// refused it, as it does in languages where a call that is wrong raises and nothing else.
    pub fn give_up(&mut self, why: &str) {
        if matches!(self.state, State::Issued(_) | State::Refused) {
            return;
        }
        self.state = State::Over;
        self.tensors = Tensors::default();
        if let Some(group) = self.group.as_ref().filter(|_| !self.is_one_sided) {
            could_not(group, self.name, why);
        }
    }

    /// Bytes that are still to be copied out.
    pub fn bytes_out(&self) -> usize {
        match &self.state {
            State::Issued(_) => self.copied_out.left(&self.outputs, &self.tensors),
            _ => 0,
        }
    }

    /// Copies about `budget` bytes of the result to the tensors that are written; bytes that are
    /// still to be copied then.
    ///
    /// # Errors
    /// What the operation failed with; [`Error::InvalidArgument`] if it is not complete, or if a
    /// memory is gone or has another length.
    pub fn copy_out<M: CallerMemory>(&mut self, memories: &[M], budget: usize) -> Result<usize> {
        let State::Issued(work) = &self.state else { return Ok(0) };
        if let Some(error) = work.error() {
            self.release();
            return Err(error);
        }
        let name = self.name;
        if !work.is_completed() {
            let message = format!("{name} is not complete");
            return Err(Error::InvalidArgument { message });
        }
        let left = self.copied_out.advance(
            &self.outputs,
            &self.tensors,
            budget,
            |index, staging, done, budget| {
                let (memory, foreign) = current(name, memories.get(index), staging)?;
                Ok(staging.tensor.region().read(|bytes| {
                    foreign.layout.pieces(done, budget, |to, from, length| {
                        memory.write(to, &bytes[from..from + length]);
                    })
                }))
            },
        );
        // The copies are not for the language's collector to free, some time: others can use them.
        if !matches!(left, Ok(1..)) {
            self.release();
        }
        left
    }

    /// Gives up the copies, when nothing is to be copied any more.
    fn release(&mut self) {
        self.tensors = Tensors::default();
        self.inputs = Vec::new();
        match &self.state {
            State::Prepared(_) => self.state = State::Over,
            State::Issued(work) if work.is_done() => work.release_outputs(),
            State::Issued(_) | State::Refused | State::Over => {}
        }
    }

    /// What is done for a group that this process is not a member of.
    fn nothing(name: &'static str) -> StagedOperation {
        StagedOperation {
            name,
            group: None,
            tensors: Tensors::default(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            kept_outputs: 0,
            copied_in: Cursor::default(),
            copied_out: Cursor::default(),
            bytes_copied_in: 0,
            timeout: Duration::ZERO,
            is_one_sided: false,
            origin: Origin::default(),
            state: State::Over,
        }
    }

    /// Some tensors are only read, or only written, on one rank: the root of a broadcast reads the
    /// tensor that it sends and writes the others of its list, all other ranks only write; of a
    /// reduction, only the root's tensor for the result is written.
    fn leave_out_needless_copies(&mut self) {
        let is_unwrapped = self.group.as_ref().is_none_or(ProcessGroup::is_unwrapped);
        let ends_grid = match &self.state {
            State::Prepared(Operation::Neighbors(topology, _)) => topology.leaves_outputs(),
            _ => false,
        };
        if ends_grid || !is_unwrapped {
            // Where a grid ends, and of what is not run, an output stays as it is.
            let outputs = self.outputs.iter().filter(|position| !self.inputs.contains(position));
            let outputs: Vec<usize> = outputs.copied().collect();
            self.kept_outputs = outputs.len();
            self.inputs.extend(outputs);
        }
        let (State::Prepared(Operation::Collective(checked)), Some(group)) =
            (&self.state, &self.group)
        else {
            return;
        };
        let request = checked.request();
        self.timeout = request.timeout.unwrap_or(self.timeout);
        let facts = request.collective.facts();
        if !facts.rooted {
            return;
        }
        let is_root = group.rank() == request.root;
        let root_list = request.outputs.get(request.root_tensor as usize);
        let root_tensor =
            root_list.and_then(|list| list.first()).and_then(|it| self.tensors.position(it));
        let is_root_tensor = |position: &usize| Some(*position) == root_tensor;
        if facts.input == Blocks::None && facts.output == Blocks::One && !facts.reduces {
            self.inputs.retain(|position| !is_unwrapped || (is_root && is_root_tensor(position)));
            self.outputs.retain(|position| !is_root || !is_root_tensor(position));
        }
        if facts.output == Blocks::OneAtRoot {
            self.outputs.retain(|position| is_root && is_root_tensor(position));
        }
    }
}

impl Cursor {
    fn left(&self, positions: &[usize], tensors: &Tensors) -> usize {
        let rest = positions.get(self.tensors..).unwrap_or_default();
        let rest = rest.iter().filter_map(|&index| tensors.all.get(index));
        rest.map(StagedTensor::copied_bytes).sum::<usize>().saturating_sub(self.bytes)
    }

    /// Continues for about `budget` bytes: `copy` is given a tensor, the bytes of it that are done,
    /// and how many may be; it returns how many are done then. Bytes that are left.
    fn advance(
        &mut self,
        positions: &[usize],
        tensors: &Tensors,
        budget: usize,
        mut copy: impl FnMut(usize, &StagedTensor, usize, usize) -> Result<usize>,
    ) -> Result<usize> {
        let mut budget = budget;
        while let Some(&index) = positions.get(self.tensors) {
            let Some(staging) = tensors.all.get(index) else { break };
            let all = staging.copied_bytes();
            if self.bytes < all {
                if budget == 0 {
                    break;
                }
                let done = copy(index, staging, self.bytes, budget)?;
                budget = budget.saturating_sub(done - self.bytes);
                self.bytes = done;
            }
            if self.bytes >= all {
                *self = Cursor { tensors: self.tensors + 1, bytes: 0 };
            }
        }
        Ok(self.left(positions, tensors))
    }
}

/// Whether an operation is wrong or not to be had here, rather than something having failed.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument { .. } | Error::Unsupported { .. } | Error::UnsupportedDType { .. }
    )
}

/// Aborts a group that counts on an operation of this rank.
fn could_not(group: &ProcessGroup, name: &str, why: &str) {
    group.abort_next(&format!("could not take part in {name}: {why}"));
}

/// The language's side of a tensor that is copied, if it is still as it was.
fn current<'a, M: CallerMemory>(
    name: &str,
    memory: Option<&'a M>,
    staging: &'a StagedTensor,
) -> Result<(&'a M, &'a tensors::Foreign)> {
    let invalid = |what: &str| Error::InvalidArgument { message: format!("{name}: {what}") };
    let foreign = staging.foreign.as_ref().ok_or_else(|| invalid("there is nothing to copy"))?;
    let memory = memory.ok_or_else(|| invalid("a tensor's memory is not given"))?;
    match (memory.bytes(), foreign.bytes) {
        (now, then) if now == then => Ok((memory, foreign)),
        (0, _) => Err(invalid(
            "the memory of a tensor was given away (transferred or detached) while the operation \
             was in flight",
        )),
        (now, then) => Err(invalid(&format!(
            "the memory of a tensor had {then} bytes when the operation was called, and has {now} \
             bytes now",
        ))),
    }
}
