//! Each collective as calls of MPI that do not block. Whatever decides between two ways is known to
//! all ranks alike: sizes on which they agree, never where a tensor lies. Knows no waiting.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::abi::Handle;
use super::functions::ReduceFunction;
use super::group::Group;
use super::job::Job;
use super::layout::{scattered, side_by_side, start_of};
use super::pieces::{MAX_ELEMENTS, Start, elements, nth, pieces, started};
use super::reductions::{Reduction, mpi_type, reduction};
use super::running_operation::{DRAIN, Lists, RequestBuffers, Requests, RunningOperation};
use crate::backend::{Call, SmallCall};
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::tensor::Region;

/// Requests that were posted to MPI.
pub(super) struct StartedRequests<H> {
    pub(super) requests: Requests<H>,
    pub(super) kept: RequestBuffers<H>,
    pub(super) finish: Option<Outcome>,
    /// Why the rest was not: what was continues, and uses the memory.
    pub(super) failed: Option<Error>,
}

/// Who takes part.
pub(super) struct Ranks<'a, H: Handle> {
    pub(super) job: &'a Job<H>,
    pub(super) comm: H,
    pub(super) rank: u32,
    pub(super) size: u32,
}

/// How the operations of one collective are started.
pub(super) type Starter<H> = fn(&Ranks<'_, H>, Call) -> Result<StartedRequests<H>>;

/// How MPI's operation of a collective is started; none if MPI has none.
pub(super) fn starter<H: Handle>(collective: Collective) -> Option<Starter<H>> {
    match collective {
        Collective::Barrier => Some(|ranks, _| ranks.barrier()),
        Collective::Broadcast => Some(|ranks, call| ranks.broadcast(&call)),
        Collective::Allreduce => Some(|ranks, call| {
            ranks.reduce_in_place("MPI_Iallreduce", ranks.job.functions.iallreduce, call)
        }),
        Collective::Scan => {
            Some(|ranks, call| ranks.reduce_in_place("MPI_Iscan", ranks.job.functions.iscan, call))
        }
        Collective::Exscan => Some(|ranks, call| ranks.exscan(call)),
        Collective::Reduce => Some(|ranks, call| ranks.reduce(&call)),
        Collective::Allgather => Some(|ranks, call| ranks.allgather(call)),
        Collective::ReduceScatter => Some(|ranks, call| ranks.reduce_scatter(call)),
        Collective::Gather | Collective::Scatter | Collective::Alltoall => {
            Some(|ranks, call| ranks.exchange(&call))
        }
        #[allow(unreachable_patterns, reason = "a collective that is new has no arm here")]
        _ => None,
    }
}

/// Starts `call`.
///
/// # Errors
/// [`Error::Unsupported`] for a collective that MPI does not have; what MPI says of it.
pub(super) fn start<H: Handle>(ranks: &Ranks<'_, H>, mut call: Call) -> Result<StartedRequests<H>> {
    let finish = call.finish.take();
    let start = starter(call.collective).ok_or_else(|| lacks(call.name))?;
    let mut started = start(ranks, call)?;
    started.finish = match (started.finish, finish) {
        (Some(first), Some(second)) => Some(Box::new(move || {
            first();
            second();
        })),
        (first, second) => first.or(second),
    };
    Ok(started)
}

/// Starts a small collective in place on `bytes` bytes at `memory`, kept until the request ends.
///
/// # Errors
/// What MPI says of it.
pub(super) fn in_place<H: Handle>(
    ranks: &Ranks<'_, H>,
    call: &SmallCall,
    memory: *mut u8,
    bytes: usize,
) -> Result<H> {
    let Ranks { job, comm, .. } = *ranks;
    let functions = &job.functions;
    let count = |parts: usize| (bytes / call.dtype.size_bytes() * parts) as c_int;
    match call.collective {
        Collective::Broadcast => {
            let (mpi_type, parts) = mpi_type(job, call.dtype);
            let (count, root) = (count(parts), call.root as c_int);
            ranks.request("MPI_Ibcast", |request| {
                // SAFETY: so many elements lie there, until the request ends.
                unsafe { (functions.ibcast)(memory.cast(), count, mpi_type, root, comm, request) }
            })
        }
        Collective::Allreduce => {
            let Reduction { mpi_type, op, parts } = reduction(job, call.reduce_op, call.dtype)?;
            let (from, into) = (job.constants.in_place as *const c_void, memory.cast());
            let count = count(parts);
            ranks.request("MPI_Iallreduce", |request| {
                // SAFETY: as above.
                unsafe { (functions.iallreduce)(from, into, count, mpi_type, op, comm, request) }
            })
        }
        _ => ranks.request("MPI_Ibarrier", |request| {
            // SAFETY: the communicator is the group's.
            unsafe { (functions.ibarrier)(comm, request) }
        }),
    }
}

impl<H: Handle> Ranks<'_, H> {
    fn barrier(&self) -> Result<StartedRequests<H>> {
        let request = self.request("MPI_Ibarrier", |request| {
            // SAFETY: the communicator is the group's.
            unsafe { (self.job.functions.ibarrier)(self.comm, request) }
        })?;
        Ok(StartedRequests::new((Requests::One(request), None), Vec::new()))
    }

    fn broadcast(&self, call: &Call) -> Result<StartedRequests<H>> {
        let (mpi_type, parts) = mpi_type(self.job, call.dtype);
        let region = &call.output[0];
        let requests = pieces(elements(region, call.dtype, parts)).map(|(first, count)| {
            let at = nth(start_of(region), first, call.dtype, parts);
            self.request("MPI_Ibcast", |request| {
                // SAFETY: so many elements lie there, and are kept until the request ends.
                unsafe {
                    (self.job.functions.ibcast)(
                        at.cast(),
                        count,
                        mpi_type,
                        call.root as c_int,
                        self.comm,
                        request,
                    )
                }
            })
        });
        Ok(StartedRequests::new(started(requests)?, call.output.clone()))
    }

    /// Reduces the tensor where it lies, by a function of MPI that can.
    fn reduce_in_place(
        &self,
        name: &'static str,
        function: ReduceFunction<H>,
        call: Call,
    ) -> Result<StartedRequests<H>> {
        let Reduction { mpi_type, op, parts } = reduction(self.job, call.reduce_op, call.dtype)?;
        let in_place = self.job.constants.in_place as *const c_void;
        let region = &call.output[0];
        let requests = pieces(elements(region, call.dtype, parts)).map(|(first, count)| {
            let at = nth(start_of(region), first, call.dtype, parts);
            self.request(name, |request| {
                // SAFETY: so many elements lie there, and are kept until the request ends.
                unsafe { function(in_place, at.cast(), count, mpi_type, op, self.comm, request) }
            })
        });
        Ok(StartedRequests::new(started(requests)?, call.output))
    }

    /// Rank 0 keeps its tensor, of which MPI would say only that its content is undefined.
    fn exscan(&self, mut call: Call) -> Result<StartedRequests<H>> {
        let function = self.job.functions.iexscan;
        if self.rank > 0 {
            return self.reduce_in_place("MPI_Iexscan", function, call);
        }
        let Reduction { mpi_type, op, parts } = reduction(self.job, call.reduce_op, call.dtype)?;
        let region = call.output[0].clone();
        let unused = Region::zeroed(region.len());
        let requests = pieces(elements(&region, call.dtype, parts)).map(|(first, count)| {
            let at = |region| nth(start_of(region), first, call.dtype, parts);
            let (from, into) = (at(&region).cast_const().cast(), at(&unused).cast());
            self.request("MPI_Iexscan", |request| {
                // SAFETY: as above, in both regions.
                unsafe { function(from, into, count, mpi_type, op, self.comm, request) }
            })
        });
        let requests = started(requests)?;
        call.output.push(unused.clone());
        Ok(StartedRequests::new(requests, call.output))
    }

    fn reduce(&self, call: &Call) -> Result<StartedRequests<H>> {
        let input = &call.input[0];
        let output = call.output.first();
        let requests = self.reduce_to(call.root, input, output, call.reduce_op, call.dtype)?;
        let regions = call.input.iter().chain(&call.output).cloned().collect();
        Ok(StartedRequests::new(requests, regions))
    }

    /// Reduces `input` to rank `root`, which has the `output`.
    fn reduce_to(
        &self,
        root: u32,
        input: &Region,
        output: Option<&Region>,
        reduce_op: ReduceOp,
        dtype: DType,
    ) -> Result<Start<H>> {
        let Reduction { mpi_type, op, parts } = reduction(self.job, reduce_op, dtype)?;
        let in_place = output.is_some_and(|output| output.same_memory(input));
        let requests = pieces(elements(input, dtype, parts)).map(|(first, count)| {
            let from = match in_place {
                true => self.job.constants.in_place as *const c_void,
                false => nth(start_of(input), first, dtype, parts).cast_const().cast(),
            };
            let into = output
                .map_or(std::ptr::null_mut(), |output| nth(start_of(output), first, dtype, parts));
            self.request("MPI_Ireduce", |request| {
                // SAFETY: so many elements lie there, and are kept until the request ends.
                unsafe {
                    (self.job.functions.ireduce)(
                        from,
                        into.cast(),
                        count,
                        mpi_type,
                        op,
                        root as c_int,
                        self.comm,
                        request,
                    )
                }
            })
        });
        started(requests)
    }

    fn allgather(&self, call: Call) -> Result<StartedRequests<H>> {
        let (mpi_type, parts) = mpi_type(self.job, call.dtype);
        let counts: Vec<usize> =
            call.output.iter().map(|block| elements(block, call.dtype, parts)).collect();
        if counts.iter().sum::<usize>() > MAX_ELEMENTS {
            return self.exchange(&call);
        }
        let blocks = Blocks::of(&call.output);
        let input = &call.input[0];
        // MPI wants to be told where what is sent is in what is received.
        let own = &call.output[self.rank as usize];
        let in_place = blocks.staged.is_none() && own.same_memory(input) && !own.is_empty();
        let (from, sent) = match in_place {
            true => (self.job.constants.in_place as *const c_void, 0),
            false => (start_of(input).cast_const().cast(), counts[self.rank as usize]),
        };
        let mut lists = Box::<Lists<H>>::default();
        let into = blocks.start;
        let request = match equal(&counts) {
            Some(count) => self.request("MPI_Iallgather", |request| {
                // SAFETY: so many elements lie there, and are kept until the request ends.
                unsafe {
                    (self.job.functions.iallgather)(
                        from,
                        sent as c_int,
                        mpi_type,
                        into.cast(),
                        count as c_int,
                        mpi_type,
                        self.comm,
                        request,
                    )
                }
            }),
            None => {
                lists.line_up(&counts);
                self.request("MPI_Iallgatherv", |request| {
                    // SAFETY: as above; the lists are kept, too, and have an entry for each rank.
                    unsafe {
                        (self.job.functions.iallgatherv)(
                            from,
                            sent as c_int,
                            mpi_type,
                            into.cast(),
                            lists.counts[1].as_ptr(),
                            lists.displacements[1].as_ptr(),
                            mpi_type,
                            self.comm,
                            request,
                        )
                    }
                })
            }
        }?;
        let Call { mut input, output, .. } = call;
        let finish = blocks.copy_out(&output);
        input.extend(output);
        input.extend(blocks.staged);
        let kept = RequestBuffers { regions: input, lists: Some(lists) };
        Ok(StartedRequests { requests: Requests::One(request), kept, finish, failed: None })
    }

    fn reduce_scatter(&self, call: Call) -> Result<StartedRequests<H>> {
        let Reduction { mpi_type, op, parts } = reduction(self.job, call.reduce_op, call.dtype)?;
        let counts: Vec<usize> =
            call.input.iter().map(|block| elements(block, call.dtype, parts)).collect();
        if counts.iter().sum::<usize>() > MAX_ELEMENTS {
            return self.reduce_to_each(call);
        }
        let blocks = Blocks::filled(&call.input);
        let output = &call.output[0];
        // MPI does not take the same memory twice.
        let aliased = blocks.staged.is_none() && call.input.iter().any(|it| it.overlaps(output));
        let staged = aliased.then(|| Region::zeroed(output.len()));
        let into = start_of(staged.as_ref().unwrap_or(output));
        let mut lists = Box::<Lists<H>>::default();
        let request = match equal(&counts) {
            Some(count) => self.request("MPI_Ireduce_scatter_block", |request| {
                // SAFETY: so many elements lie there, and are kept until the request ends.
                unsafe {
                    (self.job.functions.ireduce_scatter_block)(
                        blocks.start.cast_const().cast(),
                        into.cast(),
                        count as c_int,
                        mpi_type,
                        op,
                        self.comm,
                        request,
                    )
                }
            }),
            None => {
                lists.line_up(&counts);
                self.request("MPI_Ireduce_scatter", |request| {
                    // SAFETY: as above; the list is kept, too, and has an entry for each rank.
                    unsafe {
                        (self.job.functions.ireduce_scatter)(
                            blocks.start.cast_const().cast(),
                            into.cast(),
                            lists.counts[1].as_ptr(),
                            mpi_type,
                            op,
                            self.comm,
                            request,
                        )
                    }
                })
            }
        }?;
        let finish = staged.clone().map(|staged| copy_at_the_end(staged, output.clone()));
        let Call { mut input, output, .. } = call;
        input.extend(output);
        input.extend(blocks.staged);
        input.extend(staged);
        let kept = RequestBuffers { regions: input, lists: Some(lists) };
        Ok(StartedRequests { requests: Requests::One(request), kept, finish, failed: None })
    }

    /// A reduce-scatter that is too large for one call: a reduction to each rank.
    fn reduce_to_each(&self, call: Call) -> Result<StartedRequests<H>> {
        let mut requests = Vec::new();
        let own = self.rank as usize;
        let aliased = call
            .input
            .iter()
            .enumerate()
            .any(|(place, it)| place != own && it.overlaps(&call.output[0]));
        let staged = aliased.then(|| Region::zeroed(call.output[0].len()));
        let output = staged.as_ref().unwrap_or(&call.output[0]);
        let mut failed = None;
        for (root, block) in (0..).zip(&call.input) {
            let output = (root == self.rank).then_some(output);
            match self.reduce_to(root, block, output, call.reduce_op, call.dtype) {
                Ok((Requests::One(request), _)) => requests.push(request),
                Ok((Requests::Many(more), why)) => {
                    requests.extend(more);
                    failed = why;
                }
                Err(error) if requests.is_empty() => return Err(error),
                Err(error) => failed = Some(error),
            }
            if failed.is_some() {
                break;
            }
        }
        let finish = staged.clone().map(|staged| copy_at_the_end(staged, call.output[0].clone()));
        let regions = call.input.into_iter().chain(call.output).chain(staged).collect();
        let requests = Requests::Many(requests);
        Ok(StartedRequests { requests, kept: RequestBuffers::new(regions), finish, failed })
    }

    /// Blocks go from ranks to ranks, each pair with its own size: gather, scatter, alltoall.
    fn exchange(&self, call: &Call) -> Result<StartedRequests<H>> {
        let (rank, size) = (self.rank as usize, self.size as usize);
        let at_root = self.rank == call.root;
        let nothing = || vec![Region::from_vec(Vec::new()); size];
        let only = |place: usize, block: &Region| {
            let mut blocks = nothing();
            blocks[place] = block.clone();
            blocks
        };
        let root = call.root as usize;
        let (sent, received) = match call.collective {
            Collective::Gather => {
                let received = if at_root { call.output.clone() } else { nothing() };
                (only(root, &call.input[0]), received)
            }
            Collective::Scatter => {
                let sent = if at_root { call.input.clone() } else { nothing() };
                (sent, only(root, &call.output[0]))
            }
            Collective::Allgather => (
                call.input.first().map_or_else(nothing, |block| vec![block.clone(); size]),
                call.output.clone(),
            ),
            _ => (call.input.clone(), call.output.clone()),
        };
        // What a rank has for itself needs no MPI, which would not take it in place.
        if !sent[rank].is_empty() && !sent[rank].same_memory(&received[rank]) {
            copy(&sent[rank], &received[rank]);
        }
        let mut lists = Box::<Lists<H>>::default();
        let from = scattered(self.job, &sent, rank, &mut lists, 0)?;
        let into = scattered(self.job, &received, rank, &mut lists, 1)?;
        let request = self.request("MPI_Ialltoallw", |request| {
            // SAFETY: so many bytes lie there; they and the lists, which have an entry for each
            // rank, are kept until the request ends.
            unsafe {
                (self.job.functions.ialltoallw)(
                    from.cast_const().cast(),
                    lists.counts[0].as_ptr(),
                    lists.displacements[0].as_ptr(),
                    lists.types[0].as_ptr(),
                    into.cast(),
                    lists.counts[1].as_ptr(),
                    lists.displacements[1].as_ptr(),
                    lists.types[1].as_ptr(),
                    self.comm,
                    request,
                )
            }
        })?;
        let regions = sent.into_iter().chain(received).filter(|block| !block.is_empty()).collect();
        let kept = RequestBuffers { regions, lists: Some(lists) };
        Ok(StartedRequests { requests: Requests::One(request), kept, finish: None, failed: None })
    }

    fn request(&self, function: &str, start: impl FnOnce(*mut H) -> c_int) -> Result<H> {
        let mut request = self.job.constants.request_null;
        self.job.check(start(&raw mut request), function)?;
        Ok(request)
    }
}

impl<H: Handle> StartedRequests<H> {
    fn new((requests, failed): Start<H>, regions: Vec<Region>) -> StartedRequests<H> {
        StartedRequests { requests, kept: RequestBuffers::new(regions), finish: None, failed }
    }

    /// The collective of this name and number, which `completion` is told of.
    pub(super) fn running(
        self,
        group: Arc<Group<H>>,
        place: (&'static str, u64),
        deadline: Instant,
        completion: Arc<Completion>,
    ) -> RunningOperation<H> {
        let StartedRequests { requests, kept, finish, failed } = self;
        let running = RunningOperation::new(group, place, requests, kept, deadline);
        let failed = failed.map(|error| Box::new((error, Instant::now() + DRAIN)));
        let completion = Some(completion);
        RunningOperation { is_collective: true, finish, completion, failed, ..running }
    }
}

impl<H> Lists<H> {
    /// Blocks of `counts` elements, one after the other.
    fn line_up(&mut self, counts: &[usize]) {
        let mut end = 0;
        for &count in counts {
            self.counts[1].push(count as c_int);
            self.displacements[1].push(end as c_int);
            end += count;
        }
    }
}

/// Blocks as one piece of memory.
struct Blocks {
    start: *mut u8,
    /// Memory of our own, where the blocks do not lie side by side.
    staged: Option<Region>,
}

impl Blocks {
    /// For what is received.
    fn of(blocks: &[Region]) -> Blocks {
        match side_by_side(blocks) {
            Some(start) => Blocks { start, staged: None },
            None => {
                let staged = Region::zeroed(blocks.iter().map(Region::len).sum());
                Blocks { start: start_of(&staged), staged: Some(staged) }
            }
        }
    }

    /// For what is sent.
    fn filled(blocks: &[Region]) -> Blocks {
        let made = Blocks::of(blocks);
        if let Some(staged) = &made.staged {
            for (part, block) in parts_of(staged, blocks) {
                copy(block, &part);
            }
        }
        made
    }

    /// Takes what was received to where it belongs.
    fn copy_out(&self, blocks: &[Region]) -> Option<Outcome> {
        let staged = self.staged.clone()?;
        let blocks = blocks.to_vec();
        Some(Box::new(move || {
            parts_of(&staged, &blocks).for_each(|(part, block)| {
                copy(&part, block);
            })
        }))
    }
}

/// The part of `staged` for each of the blocks that it holds one after the other.
fn parts_of<'a>(
    staged: &'a Region,
    blocks: &'a [Region],
) -> impl Iterator<Item = (Region, &'a Region)> {
    let mut end = 0;
    blocks.iter().map(move |block| {
        let start = end;
        end += block.len();
        (staged.slice(start..end), block)
    })
}

fn copy_at_the_end(from: Region, into: Region) -> Outcome {
    Box::new(move || copy(&from, &into))
}

fn copy(from: &Region, into: &Region) {
    if !from.is_empty() {
        into.write_from(from, <[u8]>::copy_from_slice);
    }
}

/// The count that all have, if they have one.
fn equal(counts: &[usize]) -> Option<usize> {
    let first = *counts.first()?;
    counts.iter().all(|&count| count == first).then_some(first)
}

/// The error of an operation that MPI does not have.
fn lacks(operation: &str) -> Error {
    let who = "the mpi backend".to_owned();
    Error::Unsupported { who, operation: operation.to_owned() }
}
