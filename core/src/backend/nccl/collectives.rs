//! Each collective as calls of NCCL, in one group of calls. Whatever decides between two ways is
//! known to all ranks alike: sizes on which they agree, never where a tensor lies. Knows no
//! waiting.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::abort_watch::WaitLimit;
use super::communicator::{Communicator, stream_of};
use super::functions::{Comm, FACTOR_IN_HOST, Functions, Op, Type, code, ops, types};
use super::reductions::{Operator, Reduction, reduction};
use crate::backend::Call;
use crate::generated::collective::Collective;
use crate::generated::error::{Error, Result};
use crate::tensor::Region;
use crate::tensor::cuda::{Scratch, copy};

/// Calls of NCCL that are enqueued together.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<One>,
    /// Copies after the calls: from, into, bytes.
    after: Vec<(usize, usize, usize)>,
    /// Memory that is needed until all is over.
    pub(super) scratch: Vec<Scratch>,
    operators: Vec<Op>,
}

/// One call. Addresses are of the device; counts are of NCCL's elements.
#[derive(Clone, Copy)]
enum One {
    AllReduce { from: usize, into: usize, count: usize, nccl_type: Type, op: Op },
    Reduce { from: usize, into: usize, count: usize, nccl_type: Type, op: Op, root: u32 },
    ReduceScatter { from: usize, into: usize, count: usize, nccl_type: Type, op: Op },
    Broadcast { from: usize, into: usize, bytes: usize, root: u32 },
    AllGather { from: usize, into: usize, bytes: usize },
    Send { from: usize, bytes: usize, peer: u32 },
    Recv { into: usize, bytes: usize, peer: u32 },
}

/// How the calls of one collective are added.
type Add = fn(&mut Calls, &Communicator, &Call) -> Result<()>;

/// How NCCL's calls for a collective are added; none if NCCL does not have it.
pub(super) fn adder(collective: Collective) -> Option<Add> {
    match collective {
        Collective::Barrier => Some(|calls, on, _| calls.barrier(on)),
        Collective::Broadcast => Some(Calls::broadcast),
        Collective::Allreduce => Some(Calls::allreduce),
        Collective::Reduce => Some(Calls::reduce),
        Collective::Allgather => Some(Calls::allgather),
        Collective::ReduceScatter => Some(Calls::reduce_scatter),
        Collective::Gather | Collective::Scatter | Collective::Alltoall => Some(Calls::exchange),
        #[allow(unreachable_patterns, reason = "a collective that is new has no arm here")]
        _ => None,
    }
}

impl Calls {
    /// Adds what `call` needs; copies before it are enqueued immediately.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what NCCL does not have; what the library or the driver says.
    pub(super) fn add(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        match adder(call.collective) {
            Some(add) => add(self, on, call),
            None => {
                let who = "the nccl backend".to_owned();
                Err(Error::Unsupported { who, operation: call.name.into() })
            }
        }
    }

    fn broadcast(&mut self, _: &Communicator, call: &Call) -> Result<()> {
        let region = &call.output[0];
        let (at, bytes) = (region.address(), region.len());
        self.calls.push(One::Broadcast { from: at, into: at, bytes, root: call.root });
        Ok(())
    }

    fn allreduce(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        let region = &call.output[0];
        let (nccl_type, op, count) = self.reduction(on, call, region)?;
        let at = region.address();
        self.calls.push(One::AllReduce { from: at, into: at, count, nccl_type, op });
        Ok(())
    }

    fn reduce(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        let input = &call.input[0];
        let (nccl_type, op, count) = self.reduction(on, call, input)?;
        let from = input.address();
        let into = call.output.first().map_or(from, Region::address);
        self.calls.push(One::Reduce { from, into, count, nccl_type, op, root: call.root });
        Ok(())
    }

    /// Adds the sending of a message.
    pub(super) fn send(&mut self, memory: &Region, peer: u32) {
        self.calls.push(One::Send { from: memory.address(), bytes: memory.len(), peer });
    }

    /// Adds the receiving of a message.
    pub(super) fn recv(&mut self, memory: &Region, peer: u32) {
        self.calls.push(One::Recv { into: memory.address(), bytes: memory.len(), peer });
    }

    /// Enqueues all, on the communicator's stream.
    ///
    /// # Errors
    /// What the library or the driver says, or that it did not take them in time. A part may
    /// be enqueued then.
    pub(super) fn enqueue(&mut self, on: &Communicator, limit: WaitLimit<'_>) -> Result<()> {
        let stream = stream_of(on.stream.raw());
        on.call("an NCCL operation", |functions, comm| {
            // SAFETY: groups have no arguments; the calls between are of memory that is kept until
            // they are over.
            let started = unsafe { (functions.group_start)() };
            let failed = |answer: c_int| !matches!(answer, code::SUCCESS | code::IN_PROGRESS);
            let called = match failed(started) {
                true => started,
                false => {
                    let mut answers =
                        self.calls.iter().map(|one| one.call(functions, comm, stream));
                    answers.find(|answer| failed(*answer)).unwrap_or(code::SUCCESS)
                }
            };
            // SAFETY: as above.
            let ended = unsafe { (functions.group_end)() };
            if failed(called) { called } else { ended }
        })?;
        on.settle(limit)?;
        for op in self.operators.drain(..) {
            on.call("ncclRedOpDestroy", |functions, comm| {
                // SAFETY: it was made for these calls, which the library has taken.
                unsafe { (functions.op_destroy)(op, comm) }
            })?;
        }
        for (from, into, bytes) in self.after.drain(..) {
            // SAFETY: both places are kept until all is over, and do not overlap.
            unsafe { copy(&on.gpu, (from, into), bytes, on.stream.raw()) }?;
        }
        Ok(())
    }

    fn barrier(&mut self, on: &Communicator) -> Result<()> {
        let scratch = Scratch::new(&on.stream, 1)?;
        let at = scratch.address();
        let (nccl_type, op) = (types::U8, ops::MAX);
        self.calls.push(One::AllReduce { from: at, into: at, count: 1, nccl_type, op });
        self.scratch.push(scratch);
        Ok(())
    }

    fn allgather(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        let input = &call.input[0];
        let Some(bytes) = equal(&call.output) else {
            for (root, block) in (0..).zip(&call.output) {
                let from = if root == on.rank { input.address() } else { block.address() };
                let (into, bytes) = (block.address(), block.len());
                self.calls.push(One::Broadcast { from, into, bytes, root });
            }
            return Ok(());
        };
        let into = match side_by_side(&call.output) {
            Some(start) => start,
            None => {
                let start = self.stage(on, bytes * call.output.len())?;
                let places = (0..).map(|place| start + place * bytes);
                self.after
                    .extend(places.zip(&call.output).map(|(from, to)| (from, to.address(), bytes)));
                start
            }
        };
        self.calls.push(One::AllGather { from: input.address(), into, bytes });
        Ok(())
    }

    fn reduce_scatter(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        let output = &call.output[0];
        let Some(bytes) = equal(&call.input) else {
            let mut made = None;
            for (root, block) in (0..).zip(&call.input) {
                let (nccl_type, op, count) = match made {
                    None => self.reduction(on, call, block)?,
                    // One operator serves all blocks.
                    Some((nccl_type, op)) => (nccl_type, op, elements(call, block)?),
                };
                made = Some((nccl_type, op));
                let from = block.address();
                let into = if root == on.rank { output.address() } else { from };
                self.calls.push(One::Reduce { from, into, count, nccl_type, op, root });
            }
            return Ok(());
        };
        let (nccl_type, op, count) = self.reduction(on, call, output)?;
        let from = match side_by_side(&call.input) {
            Some(start) => start,
            None => {
                let start = self.stage(on, bytes * call.input.len())?;
                for (place, block) in call.input.iter().enumerate() {
                    let into = start + place * bytes;
                    let places = (block.address(), into);
                    // SAFETY: the block and the place for it are kept until all is over.
                    unsafe { copy(&on.gpu, places, bytes, on.stream.raw()) }?;
                }
                start
            }
        };
        let into = output.address();
        self.calls.push(One::ReduceScatter { from, into, count, nccl_type, op });
        Ok(())
    }

    /// Blocks go from ranks to ranks, each pair with its own size: gather, scatter, alltoall.
    fn exchange(&mut self, on: &Communicator, call: &Call) -> Result<()> {
        let own = on.rank;
        let at_root = own == call.root;
        let place = own as usize;
        let ours = match call.collective {
            Collective::Gather if at_root => Some((&call.input[0], &call.output[place])),
            Collective::Scatter if at_root => Some((&call.input[place], &call.output[0])),
            Collective::Alltoall => Some((&call.input[place], &call.output[place])),
            _ => None,
        };
        if let Some((from, into)) = ours
            && !from.same_memory(into)
        {
            let places = (from.address(), into.address());
            // SAFETY: both are kept until all is over; a call's blocks do not overlap otherwise.
            unsafe { copy(&on.gpu, places, from.len(), on.stream.raw()) }?;
        }
        let of_all = |blocks| (0..).zip::<&[Region]>(blocks).collect::<Vec<(u32, &Region)>>();
        let of_root = |block| vec![(call.root, block)];
        let (sent, received) = match (call.collective, at_root) {
            (Collective::Gather, true) => (Vec::new(), of_all(&call.output)),
            (Collective::Gather, false) => (of_root(&call.input[0]), Vec::new()),
            (Collective::Scatter, true) => (of_all(&call.input), Vec::new()),
            (Collective::Scatter, false) => (Vec::new(), of_root(&call.output[0])),
            _ => (of_all(&call.input), of_all(&call.output)),
        };
        let with_others = |(peer, block): &(u32, &Region)| *peer != own && !block.is_empty();
        sent.iter().copied().filter(with_others).for_each(|(peer, block)| self.send(block, peer));
        let received = received.into_iter().filter(with_others);
        received.for_each(|(peer, block)| self.recv(block, peer));
        Ok(())
    }

    /// The type, the operator and the number of elements of `region`. An operator that has to be
    /// made is made.
    fn reduction(
        &mut self,
        on: &Communicator,
        call: &Call,
        region: &Region,
    ) -> Result<(Type, Op, usize)> {
        let Reduction { nccl_type, operator, parts } =
            reduction(call.name, call.reduce_op, call.dtype)?;
        let count = region.len() / call.dtype.size_bytes() * parts;
        let mut factor = match operator {
            Operator::Known(op) => return Ok((nccl_type, op, count)),
            Operator::PremulSum(factor) => factor,
        };
        let mut op: Op = 0;
        on.call("ncclRedOpCreatePreMulSum", |functions, comm| {
            let factor = factor.as_mut_ptr().cast::<c_void>();
            // SAFETY: the factor is an element of the type, and is read during the call.
            unsafe {
                (functions.op_create_premul_sum)(
                    &raw mut op,
                    factor,
                    nccl_type,
                    FACTOR_IN_HOST,
                    comm,
                )
            }
        })?;
        self.operators.push(op);
        Ok((nccl_type, op, count))
    }

    /// Memory for so many bytes until all is over.
    fn stage(&mut self, on: &Communicator, bytes: usize) -> Result<usize> {
        let scratch = Scratch::new(&on.stream, bytes)?;
        let start = scratch.address();
        self.scratch.push(scratch);
        Ok(start)
    }
}

impl One {
    fn call(self, nccl: &Functions, comm: Comm, stream: *mut c_void) -> c_int {
        let at = |address: usize| address as *mut c_void;
        let rank = |rank: u32| rank as c_int;
        // SAFETY: so many elements lie at the addresses, which are kept until the stream has done
        // with them; communicator and stream are of one device.
        unsafe {
            match self {
                One::AllReduce { from, into, count, nccl_type, op } => {
                    (nccl.all_reduce)(at(from), at(into), count, nccl_type, op, comm, stream)
                }
                One::Reduce { from, into, count, nccl_type, op, root } => {
                    let root = rank(root);
                    (nccl.reduce)(at(from), at(into), count, nccl_type, op, root, comm, stream)
                }
                One::ReduceScatter { from, into, count, nccl_type, op } => {
                    (nccl.reduce_scatter)(at(from), at(into), count, nccl_type, op, comm, stream)
                }
                One::Broadcast { from, into, bytes, root } => {
                    let root = rank(root);
                    (nccl.broadcast)(at(from), at(into), bytes, types::U8, root, comm, stream)
                }
                One::AllGather { from, into, bytes } => {
                    (nccl.all_gather)(at(from), at(into), bytes, types::U8, comm, stream)
                }
                One::Send { from, bytes, peer } => {
                    (nccl.send)(at(from), bytes, types::U8, rank(peer), comm, stream)
                }
                One::Recv { into, bytes, peer } => {
                    (nccl.recv)(at(into), bytes, types::U8, rank(peer), comm, stream)
                }
            }
        }
    }
}

fn elements(call: &Call, region: &Region) -> Result<usize> {
    let parts = reduction(call.name, call.reduce_op, call.dtype)?.parts;
    Ok(region.len() / call.dtype.size_bytes() * parts)
}

/// The size of all blocks, if it is one.
fn equal(blocks: &[Region]) -> Option<usize> {
    let first = blocks.first()?.len();
    blocks.iter().all(|block| block.len() == first).then_some(first)
}

/// Where the first block begins, if each of the others begins where the one before ends.
fn side_by_side(blocks: &[Region]) -> Option<usize> {
    let joined = blocks.windows(2).all(|two| two[0].address() + two[0].len() == two[1].address());
    joined.then(|| blocks.first().map(Region::address)).flatten()
}
