//! One collective in flight: its memory, and how far each step is. Knows no peers' state and no
//! transport; decides nothing about frames.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::analysis::Analysis;
use super::direct_exchange::DirectProgress;
use super::direct_parts::DirectCollective;
use super::operation::{Bindings, Operation, SlotProgress};
use super::scratch::ScratchPool;
use super::stores_choice::{StoresClass, StoresKind};
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::dtype::DType;
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Order, Stores};
use crate::schedule::{Action, Block, Buffer, Chunk, Operands, Rank, Scratch};
use crate::sorted::sort;
use crate::tensor::Region;
use crate::wire::frame::Fingerprint;

/// How far a step is. All lengths in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepState {
    /// Length of the step's chunk.
    pub(super) bytes: usize,
    /// The prefix that is finished, so that later steps may use it: received and reduced, copied,
    /// or sent.
    pub(super) finished: usize,
    /// For a send, the prefix that the transport has. For a receive, the prefix that the sender was
    /// allowed to send.
    pub(super) handed: usize,
    /// For a send, the prefix that the receiver allows.
    pub(super) permitted: usize,
    /// Whether a first frame was handed over. For an empty message, this alone says whether it was
    /// sent.
    pub(super) begun: bool,
    /// Whether nothing is left to do.
    pub(super) done: bool,
    /// Whether it is in the list of steps to move.
    pub(super) listed: bool,
    /// Whether the frame waits until the peer has issued the operation.
    pub(super) held: bool,
}

/// How much of a step may be done now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The prefix, bytes.
    pub(super) bytes: usize,
    /// Whether all earlier steps are done; an empty step starts only then.
    pub(super) all: bool,
}

/// A collective in flight.
pub(super) struct RunningOperation {
    pub(super) sequence: u64,
    pub(super) fingerprint: Fingerprint,
    pub(super) analysis: Arc<Analysis>,
    pub(super) steps: Vec<StepState>,
    /// Steps that are not done.
    pub(super) remaining: usize,
    pub(super) started: Instant,
    /// When something moved last.
    pub(super) progressed: Instant,
    /// On the board, the rank that was missing when this one last looked.
    #[cfg(feature = "tcp")]
    pub(super) missing: Option<Rank>,
    pub(super) deadline: Instant,
    pub(super) finish: Option<Outcome>,
    pub(super) completion: Arc<Completion>,
    /// Set if it goes over the board.
    pub(super) slot_progress: Option<SlotProgress>,
    /// What it has taken out of the memory of others.
    pub(super) direct: DirectProgress,
    /// Whether the operation that makes its input has not ended: it only receives.
    pub(super) awaits_input: bool,
    /// Messages that arrived before their step was allowed to take them.
    pub(super) early: Vec<(u32, Vec<u8>)>,
    pub(super) bindings: Bindings,
    scratch: Vec<Region>,
    dtype: DType,
    reduce_op: ReduceOp,
    /// How to store data that no later step reads.
    pub(super) result_stores: Stores,
    /// Set when that was chosen, if it is measured how long the operation takes.
    pub(super) stores_chosen: Option<Instant>,
}

impl RunningOperation {
    /// Starts `operation`. The error says what is wrong, and which completion to fail. `steps` is
    /// reused memory.
    pub(super) fn new(
        operation: Operation,
        analysis: Arc<Analysis>,
        mut steps: Vec<StepState>,
        pool: &mut ScratchPool,
        now: Instant,
    ) -> Result<RunningOperation, (Arc<Completion>, String)> {
        steps.clear();
        let mut running = RunningOperation {
            sequence: operation.sequence,
            fingerprint: operation.fingerprint,
            remaining: 0,
            result_stores: Stores::Cached,
            stores_chosen: None,
            analysis,
            steps,
            started: now,
            progressed: now,
            #[cfg(feature = "tcp")]
            missing: None,
            deadline: operation.deadline,
            finish: operation.finish,
            completion: operation.completion,
            slot_progress: operation.slot_progress,
            direct: DirectProgress::default(),
            awaits_input: false,
            early: Vec::new(),
            bindings: operation.bindings,
            scratch: Vec::new(),
            dtype: operation.dtype,
            reduce_op: operation.reduce_op,
        };
        if running.slot_progress.is_some() {
            // An operation over the board counts as one step, which is in no schedule.
            running.remaining = 1;
            return Ok(running);
        }
        match running.prepare(pool) {
            Ok(()) => Ok(running),
            Err(why) => Err((running.release(pool).completion, why)),
        }
    }

    /// Prepares for running the schedule: takes scratch memory and measures the steps.
    pub(super) fn prepare(&mut self, pool: &mut ScratchPool) -> Result<(), String> {
        self.slot_progress = None;
        let schedule = self.analysis.schedule.clone();
        self.remaining = schedule.steps.len();
        for Scratch { like, times } in &schedule.scratch {
            let bytes = self.block(*like)?.len().checked_mul(*times as usize);
            let bytes = bytes.ok_or_else(|| format!("{times} times {like} is too much"))?;
            self.scratch.push(pool.take(bytes));
        }
        for step in &schedule.steps {
            let bytes = match step.action {
                Action::Send { from: chunk, .. } | Action::Recv { into: chunk, .. } => {
                    self.range(chunk)?.len()
                }
                Action::RecvReduce { local, into, .. } => self.pair(local, into, true)?,
                Action::Copy { from, into } => self.pair(from, into, true)?,
                Action::Reduce { from, into, .. } => self.pair(from, into, false)?,
            };
            self.steps.push(StepState { bytes, ..StepState::default() });
        }
        Ok(())
    }

    /// What operations store alike that are like this one, if `ranks` ranks share a cache.
    pub(super) fn stores_class(&self, ranks: usize) -> StoresClass {
        let collective = self.fingerprint.collective;
        let kind = match self.slot_progress {
            Some(_) => StoresKind::Direct(collective),
            None => StoresKind::Schedule(collective),
        };
        StoresClass { kind, traffic: self.bindings.traffic(ranks) }
    }

    /// What it is to a rank that reads the memory of others; none if it runs its schedule.
    pub(super) fn direct_collective(&self) -> Option<DirectCollective<'_>> {
        let SlotProgress { small, .. } = self.slot_progress?;
        Some(DirectCollective { small, bindings: &self.bindings })
    }

    /// The common length of two chunks, which are either disjoint or, if `allowed`, the same
    /// memory.
    fn pair(&self, one: Chunk, other: Chunk, allowed: bool) -> Result<usize, String> {
        let (bytes, other_bytes) = (self.range(one)?.len(), self.range(other)?.len());
        if bytes != other_bytes {
            return Err(format!("chunks of {bytes} and {other_bytes} bytes meet"));
        }
        if bytes > 0 && !(allowed && one == other) {
            let (one, other) = (self.chunk(one)?, self.chunk(other)?);
            if one.overlaps(&other) && !(allowed && one.same_memory(&other)) {
                return Err("input and output memory overlap in part".to_owned());
            }
        }
        Ok(bytes)
    }

    fn block(&self, block: Block) -> Result<&Region, String> {
        let blocks = match block.buffer {
            Buffer::Input => &self.bindings.input,
            Buffer::Output => &self.bindings.output,
            Buffer::Scratch => &self.scratch,
        };
        blocks.get(block.index as usize).ok_or_else(|| format!("no memory is bound to {block}"))
    }

    /// The bytes of its block that a chunk covers. Blocks are cut between elements.
    fn range(&self, chunk: Chunk) -> Result<Range<usize>, String> {
        if chunk.is_nothing() {
            return Ok(0..0);
        }
        if u64::from(chunk.part) + u64::from(chunk.count) > u64::from(chunk.parts) {
            return Err(format!("{chunk} is outside of its block"));
        }
        let element_bytes = self.element_bytes();
        let elements = chunk.elements(self.block(chunk.block)?.len() / element_bytes);
        Ok(elements.start * element_bytes..elements.end * element_bytes)
    }

    /// The memory of a chunk.
    fn chunk(&self, chunk: Chunk) -> Result<Region, String> {
        let range = self.range(chunk)?;
        if range.is_empty() {
            Ok(Region::zeroed(0))
        } else {
            Ok(self.block(chunk.block)?.slice(range))
        }
    }

    /// The memory that a send reads, or a receive writes.
    pub(super) fn memory(&self, step: u32) -> Region {
        let chunk = match self.action(step) {
            Action::Send { from: chunk, .. }
            | Action::Recv { into: chunk, .. }
            | Action::RecvReduce { into: chunk, .. }
            | Action::Reduce { into: chunk, .. }
            | Action::Copy { into: chunk, .. } => chunk,
        };
        self.region(chunk)
    }

    /// The memory of a chunk that `prepare` has checked.
    fn region(&self, chunk: Chunk) -> Region {
        // `prepare` refuses operations for which this could fail: the empty region is never used.
        self.chunk(chunk).unwrap_or_else(|_| Region::zeroed(0))
    }

    /// What the step does.
    pub(super) fn action(&self, step: u32) -> Action {
        self.analysis.schedule.steps[step as usize].action
    }

    /// The state of a step.
    pub(super) fn step(&mut self, step: u32) -> &mut StepState {
        &mut self.steps[step as usize]
    }

    /// How much of `step` its predecessors allow.
    pub(super) fn allowed(&self, step: u32) -> Allowance {
        let mut allowed = Allowance { bytes: self.steps[step as usize].bytes, all: true };
        for edge in self.analysis.predecessors(step) {
            let earlier = &self.steps[edge.step as usize];
            if !earlier.done {
                allowed.all = false;
                allowed.bytes = if edge.overlaps { allowed.bytes.min(earlier.finished) } else { 0 };
            }
        }
        allowed
    }

    /// Notes that `bytes` more of `step` are finished and lists the steps that may now continue.
    pub(super) fn progress(&mut self, step: u32, bytes: usize, work: &mut VecDeque<(u64, u32)>) {
        let state = &mut self.steps[step as usize];
        if state.done {
            return;
        }
        state.finished += bytes;
        if state.finished >= state.bytes {
            state.done = true;
            self.remaining -= 1;
        }
        let done = state.done;
        for edge in self.analysis.successors(step) {
            let later = &mut self.steps[edge.step as usize];
            if (done || edge.overlaps) && !later.done && !later.listed {
                later.listed = true;
                work.push_back((self.sequence, edge.step));
            }
        }
    }

    /// Puts `incoming` at `offset` of a receiving step's chunk: copies or reduces.
    pub(super) fn take_in(&self, step: u32, offset: usize, incoming: &[u8]) {
        let range = offset..offset + incoming.len();
        match self.action(step) {
            Action::Recv { into, .. } => {
                let stores = self.stores(step);
                let into = self.region(into).slice(range);
                into.write(|into| kernels::copy(into, incoming, stores));
            }
            Action::RecvReduce { local, into, operands, .. } => {
                let into = self.region(into).slice(range.clone());
                let local = self.region(local).slice(range);
                self.reduce_incoming(step, &into, &local, incoming, operands);
            }
            Action::Send { .. } | Action::Reduce { .. } | Action::Copy { .. } => {}
        }
    }

    /// How `step` stores: data that is soon sent or reduced again should stay in the cache.
    pub(super) fn stores(&self, step: u32) -> Stores {
        let last = self.analysis.successors(step).is_empty();
        if last { self.result_stores } else { Stores::Cached }
    }

    fn reduce_incoming(
        &self,
        step: u32,
        into: &Region,
        local: &Region,
        incoming: &[u8],
        operands: Operands,
    ) {
        let (op, dtype) = (self.reduce_op, self.dtype);
        if into.is_empty() {
            return;
        }
        if into.same_memory(local) {
            let order = order(operands);
            into.write(|into| kernels::reduce(op, dtype, into, incoming, order));
        } else {
            let stores = self.stores(step);
            into.write_from(local, |into, local| {
                let (left, right) = match operands {
                    Operands::LocalFirst => (local, incoming),
                    Operands::IncomingFirst => (incoming, local),
                };
                kernels::reduce_into(op, dtype, into, left, right, stores);
            });
        }
    }

    /// Runs `bytes` bytes at `offset` of a step that needs no peer.
    pub(super) fn run_locally(&self, step: u32, offset: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let range = offset..offset + bytes;
        match self.action(step) {
            Action::Copy { from, into } => {
                let (from, into) =
                    (self.region(from).slice(range.clone()), self.region(into).slice(range));
                if !from.same_memory(&into) {
                    let stores = self.stores(step);
                    into.write_from(&from, |into, from| kernels::copy(into, from, stores));
                }
            }
            Action::Reduce { from, into, operands } => {
                let (from, into) =
                    (self.region(from).slice(range.clone()), self.region(into).slice(range));
                let (op, dtype) = (self.reduce_op, self.dtype);
                into.write_from(&from, |into, from| {
                    kernels::reduce(op, dtype, into, from, order(operands));
                });
            }
            Action::Send { .. } | Action::Recv { .. } | Action::RecvReduce { .. } => {}
        }
    }

    /// Bytes between which a message may be cut.
    pub(super) fn element_bytes(&self) -> usize {
        let operand = if self.reduce_op.takes_pairs() { 2 } else { 1 };
        operand * self.dtype.size_bytes()
    }

    /// Notes the rank that is missing on the board. Nobody asks for it in a browser.
    #[cfg_attr(not(feature = "tcp"), allow(clippy::unused_self, unused_variables))]
    pub(super) fn set_missing(&mut self, missing: Option<Rank>) {
        #[cfg(feature = "tcp")]
        {
            self.missing = missing;
        }
    }

    /// The rank that was missing when this one last looked, which has come.
    #[cfg_attr(not(feature = "tcp"), allow(clippy::unused_self))]
    pub(super) fn take_missing(&mut self) -> Option<Rank> {
        #[cfg(feature = "tcp")]
        return self.missing.take();
        #[cfg(not(feature = "tcp"))]
        return None;
    }

    /// The ranks that unfinished steps wait for, in order, each once.
    pub(super) fn waits_for(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = self
            .unfinished()
            .filter_map(|step| super::analysis::peer_of(&self.action(step)))
            .map(|(peer, _)| peer)
            .collect();
        sort(&mut ranks);
        ranks.dedup();
        ranks
    }

    /// The steps that are not done.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = u32> {
        (0..self.steps.len() as u32).filter(|&step| !self.steps[step as usize].done)
    }

    /// Releases all memory; hands back what can be used again.
    pub(super) fn release(mut self, pool: &mut ScratchPool) -> ReleasedOperation {
        self.bindings = Bindings::default();
        pool.give_back(&mut self.scratch);
        self.steps.clear();
        ReleasedOperation { steps: self.steps, completion: self.completion, finish: self.finish }
    }
}

/// What is left of an operation that is over.
pub(super) struct ReleasedOperation {
    pub(super) steps: Vec<StepState>,
    pub(super) completion: Arc<Completion>,
    pub(super) finish: Option<Outcome>,
}

/// The order for a kernel that reduces arriving data into the local operand's own memory.
fn order(operands: Operands) -> Order {
    match operands {
        Operands::LocalFirst => Order::IntoFirst,
        Operands::IncomingFirst => Order::FromFirst,
    }
}
