//! Collectives whose elements travel compressed. Knows no backend.
//!
//! Each rank gets every rank's part of what it reduces, compressed, and reduces it in `f32`. For an
//! allreduce it compresses the result again and spreads it, and all ranks make their elements of
//! what was spread, also the one whose part it is: so all end with the same bits. Both halves are
//! issued together, and the second begins when the first has ended: whatever is called in between
//! has its place behind both, on all ranks alike.
//!
//! An allreduce needs two pieces of memory, `given` and `taken`, each with a place for each rank.
//!
//! ```text
//!   given  [part 0] [part 1] [part 2]   compressed; sent, but rank 1's own, which stays there
//!   taken  [from 0] [  own ] [from 2]   rank 1 adds those and its own up into its own place,
//!   given  [ sum 0] [      ] [ sum 2]   and the sums come back to where the parts were
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::check::CheckedOperation;
use super::kept_memory::KeptMemory;
use super::messages::{to_read, to_write};
use super::stage::{agreed, copy, reduce_local, spread_at_the_end, stage};
use super::{Inner, ProcessGroup};
use crate::backend::{Backend, Call, CallFacts, CompressedPart, IssueOptions};
use crate::completion::Outcome;
use crate::generated::collective::Collective;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Compression};
use crate::request::Request;
use crate::tensor::{Device, Region, Tensor};
use crate::work::Work;
use crate::work::losses::Losses;

/// How the elements of one operation travel.
#[derive(Clone)]
struct Wire {
    compression: Compression,
    name: &'static str,
    facts: CallFacts,
    /// The number of ranks.
    size: u32,
    rank: u32,
    /// The number of tensors of this process, which are one contribution.
    inputs: u32,
    losses: Arc<Losses>,
    memory: Arc<KeptMemory>,
}

/// The most elements of a part that are compressed before they are sent: a few of them are in the
/// caches of a core, from being compressed until they are sent, and the next ones are compressed
/// meanwhile.
const PIECE_ELEMENTS: usize = 1 << 18;
/// The most pieces of a part.
const MAX_PIECES: usize = 16;

/// The calls that an operation consists of.
enum Calls {
    One(Call),
    /// Pieces of an allreduce, each of which is compressed when its calls are made.
    InTurn(Vec<Box<dyn FnOnce() -> [Call; 2]>>),
}

/// What is to be done when all pieces of an operation have ended, in whatever order.
struct EndOfPieces {
    left: AtomicUsize,
    ends: Mutex<Vec<Outcome>>,
}

impl EndOfPieces {
    fn new(pieces: usize, ends: Vec<Outcome>) -> EndOfPieces {
        EndOfPieces { left: AtomicUsize::new(pieces), ends: Mutex::new(ends) }
    }

    fn piece_ended(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let ends = std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner));
        ends.into_iter().for_each(|end| end());
    }
}

/// Refuses what cannot be compressed: an operation on these tensors of this type.
pub(super) fn check<'a>(
    request: &Request,
    dtype: DType,
    tensors: impl Iterator<Item = &'a Tensor>,
) -> Result<()> {
    let Some(compression) = request.compression else { return Ok(()) };
    let Some(what) = obstacle(request, compression, dtype, tensors) else { return Ok(()) };
    let (name, format) = (request.name, compression.name());
    Err(Error::InvalidArgument { message: format!("{name}: compress='{format}' {what}") })
}

/// Whether operations of a request that does not say so are compressed where their type allows it.
/// It is so for all ranks or for none: how many tensors this one gives to an allreduce, whether
/// it calls them together, and how they lie, does not count.
pub(super) fn can_compress(request: &Request) -> bool {
    let is_one = request.coalesced || (request.inputs.len() <= 1 && request.outputs.len() <= 1);
    let is_such = match request.collective {
        Collective::Allreduce => true,
        Collective::ReduceScatter | Collective::Allgather => is_one,
        _ => false,
    };
    is_such && is_sum(request) && request.tensors().all(|tensor| tensor.device() == Device::Cpu)
}

/// Whether what is reduced, if anything is, is added.
fn is_sum(request: &Request) -> bool {
    let is_sum = matches!(request.reduce_op, ReduceOp::Sum | ReduceOp::Avg);
    is_sum || !request.collective.facts().reduces
}

/// What keeps an operation on these tensors of this type from being compressed.
fn obstacle<'a>(
    request: &Request,
    compression: Compression,
    dtype: DType,
    mut tensors: impl Iterator<Item = &'a Tensor>,
) -> Option<String> {
    if !is_sum(request) {
        return Some(format!("reduces by SUM or AVG, not by {}", request.reduce_op.name()));
    }
    if !compression.takes(dtype) {
        return Some(format!("takes tensors of f32 or f64, not of {}", dtype.name()));
    }
    let elsewhere = tensors.find(|tensor| tensor.device() != Device::Cpu)?;
    Some(format!("takes tensors in memory of the host, not on {}", elsewhere.device()))
}

impl ProcessGroup {
    /// Issues checked operations of `request`, whose elements travel in this form, on `backend`.
    pub(super) fn issue_compressed(
        &self,
        members: &Inner,
        (request, operations): (&Request, Vec<CheckedOperation>),
        compression: Compression,
        (backend, options): (Arc<dyn Backend>, IssueOptions),
    ) -> Result<Work> {
        if !backend.capabilities().compression {
            return Err(Error::Unsupported {
                who: format!("the {} backend", backend.name()),
                operation: format!("{} with compress='{}'", request.name, compression.name()),
            });
        }
        let losses = Arc::new(Losses::default());
        let compresses = operations.iter().any(|it| compression.takes(it.dtype));
        let mut staged = Vec::with_capacity(operations.len());
        let mut outputs = Vec::new();
        for operation in operations {
            if !compression.takes(operation.dtype) {
                let mut call = stage(request, operation, members.rank, members.size())?;
                outputs.append(&mut call.outputs);
                staged.push(Calls::One(call));
                continue;
            }
            let wire = Wire {
                compression,
                name: request.name,
                facts: agreed(request, operation.dtype, &operation.input, &operation.output),
                size: members.size(),
                rank: members.rank,
                inputs: 1 + operation.local.len() as u32,
                losses: losses.clone(),
                memory: members.kept_memory.clone(),
            };
            outputs.extend_from_slice(&operation.output);
            outputs.extend_from_slice(&operation.local);
            staged.push(wire.stage(operation)?);
        }
        let label = self.request_label(request);
        let mut issued = Vec::with_capacity(2 * staged.len());
        for calls in staged {
            match calls {
                Calls::One(call) => issued.push(backend.collective(call, options)?),
                Calls::InTurn(pieces) => {
                    for piece in pieces {
                        issued.extend(backend.in_turn(piece(), options)?);
                    }
                }
            }
        }
        let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
        let work = Work::new(label, issued, outputs);
        Ok(if compresses { work.with_losses(losses) } else { work })
    }
}

impl Wire {
    /// Lays out one operation.
    fn stage(self, checked: CheckedOperation) -> Result<Calls> {
        let CheckedOperation { dtype, input, output, local, local_lists } = checked;
        let unsupported = |operation: String| {
            let who = format!("compress='{}'", self.compression.name());
            Err(Error::Unsupported { who, operation })
        };
        let name = self.name;
        let is_allreduce = self.facts.collective == Collective::Allreduce;
        if !(local_lists.is_empty() && (local.is_empty() || is_allreduce)) {
            return unsupported(format!("{name} of several tensors at once"));
        }
        match (self.facts.collective, &*input, &*output) {
            (Collective::Allreduce, _, [tensor]) => {
                let mut memory = to_read(name, tensor)?;
                let (result, back) = to_write(name, tensor)?;
                let mut ends: Vec<Outcome> = back.into_iter().collect();
                if !local.is_empty() {
                    memory = copy(&memory);
                    reduce_local(ReduceOp::Sum, dtype, std::slice::from_ref(&memory), &local);
                    ends.push(spread_at_the_end(vec![result.clone()], local));
                }
                let pieces = self.pieces(memory.len());
                let end = Arc::new(EndOfPieces::new(pieces.len(), ends));
                let pieces = pieces.into_iter().map(|piece| {
                    let (wire, end) = (self.clone(), end.clone());
                    let (memory, result) = (memory.slice(piece.clone()), result.slice(piece));
                    let calls = move || wire.allreduce(&memory, &result, end);
                    Box::new(calls) as Box<dyn FnOnce() -> [Call; 2]>
                });
                Ok(Calls::InTurn(pieces.collect()))
            }
            (Collective::ReduceScatter, blocks, [tensor]) => {
                let blocks = blocks.iter().map(|block| to_read(name, block));
                let given = self.compressed(&blocks.collect::<Result<Vec<_>>>()?);
                let taken = self.taken(&given);
                let received = self.places(&taken, Some(&given));
                let mut call = self.call(given.clone(), received, &given, false);
                let (memory, back) = to_write(name, tensor)?;
                call.finish = Some(Box::new(move || {
                    self.reduce(&given, &taken, &memory);
                    back.into_iter().for_each(|back| back());
                }));
                Ok(Calls::One(call))
            }
            (Collective::Allgather, [tensor], outputs) => {
                let given = self.compressed(&[to_read(name, tensor)?]);
                let mut taken = self.room(outputs.iter().map(Tensor::elements));
                // It stays where it is.
                taken[self.rank as usize] = given[0].clone();
                let mut call = self.call(given, taken.clone(), &taken, false);
                let written = outputs.iter().map(|tensor| to_write(name, tensor));
                let (results, backs): (Vec<_>, Vec<_>) =
                    written.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                call.finish = Some(Box::new(move || {
                    self.decompress(&taken, &results);
                    backs.into_iter().flatten().for_each(|back| back());
                }));
                Ok(Calls::One(call))
            }
            _ => unsupported(name.to_owned()),
        }
    }
}

impl Wire {
    /// The calls that set `result` to what the `memory` of all ranks comes to: one of the pieces
    /// that `end` waits for.
    fn allreduce(self, memory: &Region, result: &Region, end: Arc<EndOfPieces>) -> [Call; 2] {
        let given = self.compressed(&self.parts(memory));
        let taken = self.taken(&given);
        let received = self.places(&taken, Some(&given));
        let mut first = self.call(given.clone(), received, &given, false);
        let own = self.places(&taken, None).swap_remove(self.rank as usize);
        let mut spread = given.clone();
        spread[self.rank as usize] = own.clone();
        let mut second = self.call(vec![own], spread.clone(), &spread, true);
        let (wire, results) = (self.clone(), self.parts(result));
        first.finish = Some(Box::new(move || wire.recompress(&given, &taken)));
        second.finish = Some(Box::new(move || {
            self.decompress(&spread, &results);
            end.piece_ended();
        }));
        [first, second]
    }

    /// A call that takes what is given; all ranks know how long the `shared` blocks are.
    fn call(
        &self,
        given: Vec<Region>,
        taken: Vec<Region>,
        shared: &[Region],
        spreads: bool,
    ) -> Call {
        let compressed = Some(CompressedPart { compression: self.compression, spreads });
        let shared_bytes = Some(shared.iter().map(|block| block.len() as u64).sum());
        let agreed = CallFacts { shared_bytes, compressed, ..self.facts };
        let name = self.name;
        Call { agreed, name, input: given, output: taken, finish: None, outputs: Vec::new() }
    }

    /// The pieces of so many bytes of elements that are reduced one by one. All ranks have as many.
    fn pieces(&self, bytes: usize) -> Vec<Range<usize>> {
        let per_rank = self.facts.dtype.size_bytes() * self.size as usize;
        let least =
            bytes.div_ceil(MAX_PIECES).next_multiple_of(kernels::COMPRESSED_BLOCK * per_rank);
        let piece = least.max(PIECE_ELEMENTS * per_rank);
        // Nothing is a piece, too.
        let starts = (0..bytes.max(1)).step_by(piece);
        starts.map(|start| start..bytes.min(start + piece)).collect()
    }

    /// The part of `memory` that each rank reduces: as many elements for each, and one more for the
    /// first ranks where that does not come out even.
    fn parts(&self, memory: &Region) -> Vec<Region> {
        let (bytes, ranks) = (self.facts.dtype.size_bytes(), self.size as usize);
        let elements = memory.len() / bytes;
        let start = |rank: usize| (rank * (elements / ranks) + rank.min(elements % ranks)) * bytes;
        (0..ranks).map(|rank| memory.slice(start(rank)..start(rank + 1))).collect()
    }

    /// Room for so many elements each, compressed, one behind the other.
    fn room(&self, elements: impl Iterator<Item = usize>) -> Vec<Region> {
        let lengths: Vec<usize> = elements.map(|it| self.compression.bytes(it)).collect();
        let all = self.memory.take(lengths.iter().sum());
        let mut end = 0;
        let place = |length: usize| {
            end += length;
            all.slice(end - length..end)
        };
        lengths.into_iter().map(place).collect()
    }

    /// The elements of each block, compressed.
    fn compressed(&self, blocks: &[Region]) -> Vec<Region> {
        let room =
            self.room(blocks.iter().map(|block| block.len() / self.facts.dtype.size_bytes()));
        for (block, into) in blocks.iter().zip(&room) {
            let lost = into.write_from(block, |into, from| {
                kernels::compress(self.compression, self.facts.dtype, from, into)
            });
            self.losses.add(lost);
        }
        room
    }

    /// Room for as much from each rank as this one has of its own part.
    fn taken(&self, given: &[Region]) -> Region {
        self.memory.take(given[self.rank as usize].len() * self.size as usize)
    }

    /// The places in that room. In this rank's own is its part of `given`, if that is said.
    fn places(&self, taken: &Region, given: Option<&[Region]>) -> Vec<Region> {
        let bytes = taken.len() / self.size as usize;
        let place = |rank: usize| match given {
            Some(given) if rank == self.rank as usize => given[rank].clone(),
            _ => taken.slice(rank * bytes..(rank + 1) * bytes),
        };
        (0..self.size as usize).map(place).collect()
    }

    /// Sets `into` to what the elements of all ranks come to: those of the others have been
    /// `taken`. They are added in the order of the ranks.
    fn reduce(&self, given: &[Region], taken: &Region, into: &Region) {
        self.with_all(given, taken, |parts, _| {
            into.write(|into| {
                let divisor = self.divisor();
                kernels::reduce_compressed(
                    self.compression,
                    self.facts.dtype,
                    parts,
                    divisor,
                    into,
                );
            });
        });
    }

    /// As [`Wire::reduce`], compressed into this rank's own place.
    fn recompress(&self, given: &[Region], taken: &Region) {
        self.with_all(given, taken, |parts, own| {
            self.losses.add(kernels::recompress(self.compression, parts, self.divisor(), own));
        });
    }

    /// Shows `f` the parts of all ranks, of which this one's are in `given`, and its own place.
    fn with_all(&self, given: &[Region], taken: &Region, f: impl FnOnce(&[&[u8]], &mut [u8])) {
        let rank = self.rank as usize;
        let bytes = given[rank].len();
        if bytes == 0 {
            return;
        }
        taken.write_from(&given[rank], |taken, given| {
            let (before, rest) = taken.split_at_mut(rank * bytes);
            let (own, after) = rest.split_at_mut(bytes);
            let before = before.chunks_exact(bytes);
            let all = before.chain([given]).chain(after.chunks_exact(bytes));
            f(&all.collect::<Vec<_>>(), own);
        });
    }

    /// By what sums are divided.
    fn divisor(&self) -> u32 {
        if self.facts.reduce_op == ReduceOp::Avg { self.size * self.inputs } else { 1 }
    }

    /// Makes elements of each compressed block.
    fn decompress(&self, blocks: &[Region], results: &[Region]) {
        let (compression, dtype) = (self.compression, self.facts.dtype);
        for (result, block) in results.iter().zip(blocks) {
            result.write_from(block, |into, from| {
                kernels::decompress(compression, dtype, from, into);
            });
        }
    }
}
