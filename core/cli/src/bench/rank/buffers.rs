//! The buffers of one case and the calls on them, timed and checked. Knows nothing of the
//! connection to the benchmark.

use std::time::Instant;

use half::{bf16, f16};
use rustix::time::{ClockId, clock_gettime};

use super::storage::{Number, Storage, at_offset};
use crate::bench::library::{CallStyle, Memory};
use crate::bench::messages::{Case, RunTimes};
use crate::bench::operation::{Form, Operation};
use crate::bench::pattern::Pattern;
use polyrank::options::GatherOptions;
use polyrank::{DType, PreparedOperation, ProcessGroup, ReduceOp, Region, Result, Tensor, Window};

/// A case that can be run.
pub(super) trait PreparedCase {
    /// Calls once with known contents, and returns how many elements of the result are wrong.
    fn check(&mut self) -> Result<u64>;
    /// Makes this many calls, and returns what they took together.
    fn run(&mut self, iterations: u64) -> Result<RunTimes>;
    /// Makes this many calls, and returns the seconds of each.
    fn each(&mut self, iterations: u64) -> Result<Vec<f64>>;
    /// Writes what the call of this number reads: all of it, in the order of addresses.
    fn write(&mut self, call: u64, value: i64);
    /// Makes the call of this number.
    fn make(&mut self, call: u64) -> Result<()>;
    /// Elements of the output that are not what comes of ones, after the call of this number.
    fn wrong_after_ones(&self, call: u64) -> u64;
    /// Waits for the others, who may still need this rank.
    fn part(&self) -> Result<()>;
}

/// The rank that measures. Without a group, the operation is a copy of as many bytes.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) group: Option<ProcessGroup>,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) memory: Memory,
    pub(super) call_style: CallStyle,
    /// How many bytes after a cache line's beginning tensors begin.
    pub(super) offset_bytes: usize,
}

/// Makes the buffers of `case`.
///
/// # Errors
/// Why this cannot be measured.
pub(super) fn prepare(
    case: &Case,
    dtype: DType,
    member: &Member,
) -> std::result::Result<Box<dyn PreparedCase>, String> {
    if !case.reduction.supports(dtype) && case.operation.reduces() {
        return Err(format!("{} of {} has no meaning", case.reduction.name(), dtype.name()));
    }
    let is_allreduce = case.operation == Operation::Allreduce && case.form == Form::InPlace;
    if member.call_style == CallStyle::Prepared && !is_allreduce {
        return Err("only an allreduce in place can be prepared".to_owned());
    }
    let place = (case, member);
    match dtype {
        DType::U8 => boxed::<u8>(place),
        DType::I8 => boxed::<i8>(place),
        DType::U16 => boxed::<u16>(place),
        DType::I16 => boxed::<i16>(place),
        DType::U32 => boxed::<u32>(place),
        DType::I32 => boxed::<i32>(place),
        DType::U64 => boxed::<u64>(place),
        DType::I64 => boxed::<i64>(place),
        DType::F16 => boxed::<f16>(place),
        DType::Bf16 => boxed::<bf16>(place),
        DType::F32 => boxed::<f32>(place),
        DType::F64 => boxed::<f64>(place),
        _ => Err(format!("the benchmark has no values of {}", dtype.name())),
    }
}

struct Buffers<T, S> {
    case: Case,
    group: Option<ProcessGroup>,
    rank: u32,
    ranks: u32,
    op: ReduceOp,
    /// What is contributed; empty where the operation is in place.
    input: S,
    /// What is got.
    output: S,
    /// The blocks of the input, where a call takes a list.
    blocks: Vec<Vec<T>>,
    /// The input, where it must be owned while it is under way.
    outgoing: Option<Tensor>,
    /// The call, where it is prepared.
    prepared: Option<PreparedOperation>,
    /// The window, and this rank's memory in it.
    target: Option<(Window, Tensor)>,
    /// Calls so far, which decide on the root where it moves on.
    calls: u64,
}

fn boxed<T: Number>(place: (&Case, &Member)) -> std::result::Result<Box<dyn PreparedCase>, String> {
    let (case, member) = place;
    let count = case.count as usize;
    let (mut input, mut output) = lengths(case, count, member.ranks as usize);
    if member.group.is_none() {
        input = input.max(output);
        output = input;
    }
    let is_language_own = member.memory == Memory::User && member.offset_bytes == 0;
    if member.call_style == CallStyle::Ordinary && is_language_own {
        let made = [input, output].map(|length| vec![T::default(); length]);
        return Ok(Box::new(Buffers::<T, Vec<T>>::new(case, member, made, None)));
    }
    let tensor = |length| {
        let region = |bytes| match member.memory {
            Memory::User => Some(Region::zeroed(bytes)),
            Memory::Polyrank => Region::for_elements(bytes),
        };
        let region = at_offset(length * size_of::<T>(), member.offset_bytes, region)?;
        Some(Tensor::contiguous(region, T::DTYPE, vec![length]))
    };
    let (Some(input), Some(output)) = (tensor(input), tensor(output)) else {
        return Err("not enough memory".to_owned());
    };
    let prepared = match (&member.group, member.call_style) {
        (Some(group), CallStyle::Prepared) => {
            let op = case.reduction.reduce_op();
            let prepared = group.prepare_allreduce(output.clone(), op);
            Some(prepared.map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    Ok(Box::new(Buffers::<T, Tensor>::new(case, member, [input, output], prepared)))
}

impl<T: Number, S: Storage<T>> Buffers<T, S> {
    fn new(
        case: &Case,
        member: &Member,
        [input, output]: [S; 2],
        prepared: Option<PreparedOperation>,
    ) -> Buffers<T, S> {
        let mut buffers = Buffers {
            case: case.clone(),
            group: member.group.clone(),
            rank: member.rank,
            ranks: member.ranks,
            op: case.reduction.reduce_op(),
            input,
            output,
            blocks: Vec::new(),
            outgoing: None,
            prepared,
            target: None,
            calls: 0,
        };
        buffers.arrange();
        buffers
    }

    fn root(&self) -> u32 {
        self.case.root.unwrap_or((self.calls % u64::from(self.ranks)) as u32)
    }

    /// Fills the buffers for a call whose result is known.
    fn fill(&mut self, pattern: &Pattern) {
        let rank = self.rank;
        let value = |index: usize| T::from_whole(pattern.value(rank, index as u64));
        self.input.change(value);
        let is_input = self.case.form == Form::InPlace;
        let nothing = T::from_whole(120);
        self.output.change(|index| if is_input { value(index) } else { nothing });
        self.arrange();
    }

    /// Makes the buffers that depend on the input.
    fn arrange(&mut self) {
        let count = self.case.count as usize;
        match self.case.operation {
            Operation::Scatter => {
                let elements = self.input.elements();
                let block = |rank| elements[rank * count..(rank + 1) * count].to_vec();
                self.blocks = (0..self.ranks as usize).map(block).collect();
            }
            Operation::Sendrecv => self.outgoing = Some(self.input.tensor()),
            _ => {}
        }
    }

    fn call(&mut self) -> Result<()> {
        let Some(group) = &self.group else {
            self.output.copy(&self.input);
            return Ok(());
        };
        if let Some(prepared) = &self.prepared {
            return prepared.run();
        }
        let root = self.root();
        self.calls += 1;
        match self.case.operation {
            Operation::Allreduce => {
                if self.case.form == Form::OutOfPlace {
                    self.output.copy(&self.input);
                }
                group.allreduce(&mut self.output, self.op)
            }
            Operation::Reduce => group.reduce(&mut self.output, (root, self.op)),
            Operation::Broadcast => group.broadcast(&mut self.output, root),
            Operation::Allgather => group.all_gather_single(&mut self.output, &self.input, ()),
            Operation::Gather => {
                let mut nothing = Vec::<Vec<T>>::new();
                let options = GatherOptions::default().root_rank(root);
                match root == self.rank {
                    true => group.gather_single(&mut self.output, &self.input, options),
                    false => group.gather_single(&mut nothing, &self.input, options),
                }
            }
            Operation::Scatter => match root == self.rank {
                true => group.scatter(&mut self.output, &self.blocks, root),
                false => group.scatter(&mut self.output, &Vec::<Vec<T>>::new(), root),
            },
            Operation::ReduceScatter => {
                group.reduce_scatter_single(&mut self.output, &self.input, self.op)
            }
            Operation::Alltoall => group.all_to_all_single(&mut self.output, &self.input, ()),
            Operation::Barrier => group.barrier(()),
            Operation::Sendrecv => self.send_and_receive(),
            Operation::Pingpong => self.ping_and_pong(),
            Operation::Put => self.put(),
        }
    }

    fn send_and_receive(&mut self) -> Result<()> {
        let (Some(group), Some(outgoing)) = (&self.group, &self.outgoing) else { return Ok(()) };
        let (next, last) = (self.rank + 1, self.rank + self.ranks - 1);
        let sent = group.send_async(outgoing.clone(), next % self.ranks, 0)?;
        group.recv(&mut self.output, last % self.ranks, 0)?;
        sent.wait(None)
    }

    fn ping_and_pong(&mut self) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        match self.rank {
            0 => {
                group.send(&self.input, 1, 0)?;
                group.recv(&mut self.output, 1, 0)
            }
            1 => {
                group.recv(&mut self.output, 0, 0)?;
                group.send(&self.input, 0, 0)
            }
            _ => Ok(()),
        }
    }

    fn put(&mut self) -> Result<()> {
        match (&self.target, self.rank) {
            (Some((window, _)), 0) => window.put(&self.input, 1, 0),
            (Some(_), _) => Ok(()),
            (None, _) => {
                self.target = self.open()?;
                self.put()
            }
        }
    }

    /// The window, for memory that all ranks of the host can map, as `MPI_Win_allocate` gives it.
    fn open(&self) -> Result<Option<(Window, Tensor)>> {
        const MIN_BYTES: usize = 64 << 10;
        let Some(group) = &self.group else { return Ok(None) };
        let elements = (self.case.count as usize).max(MIN_BYTES / size_of::<T>());
        let memory = Tensor::zeros(T::DTYPE, &[elements])?;
        let window = group.new_window()?;
        window.tensor_register(memory.clone())?;
        Ok(Some((window, memory)))
    }

    /// Shows what was put, once it is there.
    fn take_in(&mut self) -> Result<()> {
        let Some((window, _)) = &self.target else { return Ok(()) };
        window.fence()?;
        window.get(&mut self.output, self.rank, 0)
    }

    /// Returns when every rank is about to start.
    fn meet(&self) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        // The first brings everybody here, the second lets them go together.
        group.barrier(())?;
        group.barrier(())
    }
}

impl<T: Number, S: Storage<T>> PreparedCase for Buffers<T, S> {
    fn check(&mut self) -> Result<u64> {
        let Buffers { rank, ranks, .. } = *self;
        let Case { operation, reduction, count: block_elements, .. } = self.case;
        let pattern = Pattern { operation, reduction, ranks, block_elements, root: self.root() };
        self.fill(&pattern);
        self.call()?;
        self.take_in()?;
        let mut wrong = 0;
        for (index, found) in (0..).zip(self.output.elements()) {
            let expected = match self.group {
                Some(_) => pattern.expected(rank, index),
                None => Some(pattern.value(rank, index)),
            };
            wrong += u64::from(expected.is_some_and(|value| T::from_whole(value) != found));
        }
        // Sums of nothing stay what they are, however often they are taken.
        self.input.change(|_| T::default());
        self.output.change(|_| T::default());
        self.arrange();
        self.part()?;
        Ok(wrong)
    }

    fn run(&mut self, iterations: u64) -> Result<RunTimes> {
        self.meet()?;
        let cpu = process_seconds();
        let start = Instant::now();
        for _ in 0..iterations {
            self.call()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = process_seconds() - cpu;
        self.part()?;
        Ok(RunTimes { seconds, cpu_seconds })
    }

    fn each(&mut self, iterations: u64) -> Result<Vec<f64>> {
        let mut seconds = Vec::with_capacity(iterations as usize);
        self.meet()?;
        let mut last = Instant::now();
        for _ in 0..iterations {
            self.call()?;
            let now = Instant::now();
            seconds.push((now - last).as_secs_f64());
            last = now;
        }
        self.part()?;
        Ok(seconds)
    }

    fn write(&mut self, call: u64, value: i64) {
        self.calls = call;
        let (value, is_root) = (T::from_whole(value), self.root() == self.rank);
        match self.case.operation {
            Operation::Barrier => {}
            _ if self.group.is_none() => self.input.fill(value),
            Operation::Broadcast | Operation::Scatter if !is_root => {}
            Operation::Scatter => self.blocks.iter_mut().for_each(|block| block.fill(value)),
            // The input's own memory, or a copy that stands for it.
            Operation::Sendrecv => {
                let outgoing = self.outgoing.iter();
                outgoing.for_each(|tensor| tensor.region().write(|bytes| value.repeat(bytes)));
            }
            _ if self.case.form == Form::InPlace => self.output.fill(value),
            _ => self.input.fill(value),
        }
    }

    fn make(&mut self, call: u64) -> Result<()> {
        self.calls = call;
        self.call()
    }

    fn wrong_after_ones(&self, call: u64) -> u64 {
        let Buffers { rank, ranks, .. } = *self;
        let Case { operation, reduction, count: block_elements, .. } = self.case;
        let root = self.case.root.unwrap_or((call % u64::from(ranks)) as u32);
        let pattern = Pattern { operation, reduction, ranks, block_elements, root };
        let expected = match self.group {
            Some(_) => pattern.expected_of_ones(rank),
            None => Some(1),
        };
        expected.map_or(0, |value| self.output.differing(T::from_whole(value)))
    }

    fn part(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.barrier(()))
    }
}

impl<T, S> Drop for Buffers<T, S> {
    /// All ranks let the window of a case go before the next case.
    fn drop(&mut self) {
        if let Some((window, _)) = &self.target {
            let _ = window.tensor_deregister();
        }
    }
}

/// Elements of the input and of the output.
fn lengths(case: &Case, count: usize, ranks: usize) -> (usize, usize) {
    let whole = count * ranks;
    match case.operation {
        Operation::Allreduce if case.form == Form::OutOfPlace => (count, count),
        Operation::Allreduce | Operation::Reduce | Operation::Broadcast => (0, count),
        Operation::Allgather | Operation::Gather => (count, whole),
        Operation::Scatter | Operation::ReduceScatter => (whole, count),
        Operation::Alltoall => (whole, whole),
        Operation::Barrier => (0, 0),
        Operation::Sendrecv | Operation::Pingpong | Operation::Put => (count, count),
    }
}

/// User and system time of this process, seconds.
fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
