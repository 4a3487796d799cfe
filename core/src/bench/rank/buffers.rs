//! The buffers of one case and the calls on them, timed and checked. Knows nothing of the
//! connection to the benchmark.

use std::time::Instant;

use half::{bf16, f16};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::messages::Case;
use crate::bench::operation::{Form, Operation};
use crate::bench::pattern::Pattern;
use crate::options::GatherOptions;
use crate::{DType, Element, ProcessGroup, ReduceOp, Result, Tensor};

/// A case that can be carried out.
pub(super) trait Prepared {
    /// Calls once with known contents; how many elements of the result are wrong.
    fn check(&mut self) -> Result<u64>;
    /// Calls so many times: seconds of the clock, and of the process.
    fn run(&mut self, iterations: u64) -> Result<(f64, f64)>;
    /// Calls so many times: the seconds of each.
    fn each(&mut self, iterations: u64) -> Result<Vec<f64>>;
}

/// Makes the buffers of `case`. Without a group, the operation is a copy of as many bytes.
///
/// # Errors
/// Why this cannot be measured.
pub(super) fn prepare(
    case: &Case,
    dtype: DType,
    group: Option<&ProcessGroup>,
    rank: u32,
    ranks: u32,
) -> std::result::Result<Box<dyn Prepared>, String> {
    if !case.reduction.fits(dtype) && case.operation.reduces() {
        return Err(format!("{} of {} has no meaning", case.reduction.name(), dtype.name()));
    }
    let place = (case, group.cloned(), rank, ranks);
    Ok(match dtype {
        DType::U8 => Buffers::<u8>::boxed(place),
        DType::I8 => Buffers::<i8>::boxed(place),
        DType::U16 => Buffers::<u16>::boxed(place),
        DType::I16 => Buffers::<i16>::boxed(place),
        DType::U32 => Buffers::<u32>::boxed(place),
        DType::I32 => Buffers::<i32>::boxed(place),
        DType::U64 => Buffers::<u64>::boxed(place),
        DType::I64 => Buffers::<i64>::boxed(place),
        DType::F16 => Buffers::<f16>::boxed(place),
        DType::Bf16 => Buffers::<bf16>::boxed(place),
        DType::F32 => Buffers::<f32>::boxed(place),
        DType::F64 => Buffers::<f64>::boxed(place),
        _ => return Err(format!("the benchmark has no values of {}", dtype.name())),
    })
}

/// An element type that small whole numbers fit.
trait Number: Element + PartialEq + Default {
    fn from_whole(value: i64) -> Self;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn from_whole(value: i64) -> Self {
                value as $ty
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Number for f16 {
    fn from_whole(value: i64) -> Self {
        f16::from_f32(value as f32)
    }
}

impl Number for bf16 {
    fn from_whole(value: i64) -> Self {
        bf16::from_f32(value as f32)
    }
}

struct Buffers<T> {
    case: Case,
    group: Option<ProcessGroup>,
    rank: u32,
    ranks: u32,
    op: ReduceOp,
    /// What is contributed; empty where the operation is in place.
    input: Vec<T>,
    /// What is got.
    output: Vec<T>,
    /// The blocks of the input, where a call takes a list.
    blocks: Vec<Vec<T>>,
    /// The input, where it must be owned while it is under way.
    outgoing: Option<Tensor>,
    /// Calls so far, which decide on the root where it moves on.
    calls: u64,
}

impl<T: Number> Buffers<T> {
    fn boxed(place: (&Case, Option<ProcessGroup>, u32, u32)) -> Box<dyn Prepared> {
        let (case, group, rank, ranks) = place;
        let count = case.count as usize;
        let (mut input, mut output) = lengths(case, count, ranks as usize);
        if group.is_none() {
            input = input.max(output);
            output = input;
        }
        Box::new(Buffers {
            case: case.clone(),
            group,
            rank,
            ranks,
            op: case.reduction.reduce_op(),
            input: vec![T::from_whole(1); input],
            output: vec![T::default(); output],
            blocks: Vec::new(),
            outgoing: None,
            calls: 0,
        })
    }

    fn root(&self) -> u32 {
        self.case.root.unwrap_or((self.calls % u64::from(self.ranks)) as u32)
    }

    /// Fills the buffers for a call whose result is known.
    fn fill(&mut self, pattern: &Pattern) {
        let rank = self.rank;
        let value = |index: usize| T::from_whole(pattern.value(rank, index as u64));
        (0..).zip(&mut self.input).for_each(|(index, element)| *element = value(index));
        let is_input = self.case.form == Form::InPlace;
        let nothing = T::from_whole(120);
        for (index, element) in self.output.iter_mut().enumerate() {
            *element = if is_input { value(index) } else { nothing };
        }
        self.arrange();
    }

    /// Makes the buffers that depend on the input.
    fn arrange(&mut self) {
        let count = self.case.count.max(1) as usize;
        match self.case.operation {
            Operation::Scatter => {
                self.blocks = self.input.chunks(count).map(<[T]>::to_vec).collect();
            }
            Operation::Sendrecv => self.outgoing = Some(Tensor::from(self.input.clone())),
            _ => {}
        }
    }

    fn call(&mut self) -> Result<()> {
        let Some(group) = &self.group else {
            self.output.copy_from_slice(&self.input);
            return Ok(());
        };
        let root = self.root();
        self.calls += 1;
        match self.case.operation {
            Operation::Allreduce => {
                if self.case.form == Form::OutOfPlace {
                    self.output.copy_from_slice(&self.input);
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

    /// Returns when every rank is about to start.
    fn meet(&self) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        // The first brings everybody here, the second lets them go together.
        group.barrier(())?;
        group.barrier(())
    }

    /// Waits for the others, who may still need this rank.
    fn part(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.barrier(()))
    }
}

impl<T: Number> Prepared for Buffers<T> {
    fn check(&mut self) -> Result<u64> {
        let Buffers { rank, ranks, .. } = *self;
        let Case { operation, reduction, count, .. } = self.case;
        let pattern = Pattern { operation, reduction, ranks, count, root: self.root() };
        self.fill(&pattern);
        self.call()?;
        let mut wrong = 0;
        for (index, found) in (0..).zip(&self.output) {
            let expected = match self.group {
                Some(_) => pattern.expected(rank, index),
                None => Some(pattern.value(rank, index)),
            };
            wrong += u64::from(expected.is_some_and(|value| T::from_whole(value) != *found));
        }
        // Sums of nothing stay what they are, however often they are taken.
        self.input.fill(T::default());
        self.output.fill(T::default());
        self.arrange();
        self.part()?;
        Ok(wrong)
    }

    fn run(&mut self, iterations: u64) -> Result<(f64, f64)> {
        self.meet()?;
        let cpu = process_seconds();
        let start = Instant::now();
        for _ in 0..iterations {
            self.call()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let cpu = process_seconds() - cpu;
        self.part()?;
        Ok((seconds, cpu))
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
        Operation::Sendrecv | Operation::Pingpong => (count, count),
    }
}

/// User and system time of this process, seconds.
fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
