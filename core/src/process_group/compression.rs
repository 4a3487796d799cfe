//! Collectives whose elements travel compressed. Knows no backend.
//!
//! Each rank gets every rank's part of what it reduces, compressed, and reduces it in `f32`. For an
//! allreduce it compresses the result again and spreads it, and all ranks make their elements of
//! what was spread, also the one whose part it is: so all end with the same bits. Both halves are
//! issued together, and the second begins when the first has ended: whatever is called in between
//! has its place behind both, on all ranks alike.

use std::sync::Arc;

use super::ProcessGroup;
use super::check::CheckedOperation;
use super::messages::{to_read, to_write};
use super::stage::agreed;
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
    dtype: DType,
    reduce_op: ReduceOp,
    /// The number of ranks.
    size: u32,
    losses: Arc<Losses>,
}

/// The calls that an operation consists of.
enum Calls {
    One(Call),
    InTurn([Call; 2]),
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

/// Whether a request that does not say so can be compressed: one operation on these tensors.
pub(super) fn can_compress(request: &Request, compression: Compression) -> bool {
    let is_one = !request.coalesced && request.inputs.len() <= 1 && request.outputs.len() <= 1;
    let is_such = matches!(
        request.collective,
        Collective::Allreduce | Collective::ReduceScatter | Collective::Allgather
    );
    let Some(dtype) = request.tensors().next().map(Tensor::dtype) else { return false };
    is_one && is_such && obstacle(request, compression, dtype, request.tensors()).is_none()
}

/// What keeps an operation on these tensors of this type from being compressed.
fn obstacle<'a>(
    request: &Request,
    compression: Compression,
    dtype: DType,
    mut tensors: impl Iterator<Item = &'a Tensor>,
) -> Option<String> {
    if request.collective.facts().reduces
        && !matches!(request.reduce_op, ReduceOp::Sum | ReduceOp::Avg)
    {
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
        (request, operations): (&Request, Vec<CheckedOperation>),
        compression: Compression,
        backend: Arc<dyn Backend>,
        options: IssueOptions,
    ) -> Result<Work> {
        if !backend.capabilities().compression {
            return Err(Error::Unsupported {
                who: format!("the {} backend", backend.name()),
                operation: format!("{} with compress='{}'", request.name, compression.name()),
            });
        }
        let losses = Arc::new(Losses::default());
        let mut staged = Vec::with_capacity(operations.len());
        let mut outputs = Vec::new();
        for operation in operations {
            let wire = Wire {
                compression,
                dtype: operation.dtype,
                reduce_op: request.reduce_op,
                size: self.size(),
                losses: losses.clone(),
            };
            outputs.extend_from_slice(&operation.output);
            staged.push(wire.stage(request, operation, self.rank())?);
        }
        let mut issued = Vec::with_capacity(2 * staged.len());
        for calls in staged {
            match calls {
                Calls::One(call) => issued.push(backend.collective(call, options)?),
                Calls::InTurn(calls) => issued.extend(backend.in_turn(calls, options)?),
            }
        }
        let issued = issued.into_iter().map(|issued| (issued, backend.clone())).collect();
        let work = Work::new(self.label(request.name), issued, outputs);
        Ok(work.with_losses(losses))
    }
}

impl Wire {
    /// Lays out one operation.
    fn stage(self, request: &Request, checked: CheckedOperation, rank: u32) -> Result<Calls> {
        let CheckedOperation { dtype, input, output, local, local_lists } = checked;
        let unsupported = |operation: String| {
            Err(Error::Unsupported {
                who: format!("compress='{}'", self.compression.name()),
                operation,
            })
        };
        let name = request.name;
        if !(local.is_empty() && local_lists.is_empty()) {
            return unsupported(format!("{name} of several tensors at once"));
        }
        let facts = agreed(request, dtype, &input, &output);
        let call = |given: Vec<Region>, taken: Vec<Region>, shared: &[Region], spreads: bool| {
            let compressed = Some(CompressedPart { compression: self.compression, spreads });
            let shared_bytes = Some(shared.iter().map(|block| block.len() as u64).sum());
            let agreed = CallFacts { shared_bytes, compressed, ..facts };
            Call { agreed, name, input: given, output: taken, finish: None, outputs: Vec::new() }
        };
        match (request.collective, &*input, &*output) {
            (Collective::Allreduce, _, [tensor]) => {
                let memory = to_read(name, tensor)?;
                let parts = self.parts(&memory);
                let given = self.compressed(&parts);
                let taken = self.room(&vec![parts[rank as usize].clone(); self.size as usize]);
                let mut first = call(given.clone(), taken.clone(), &given, false);
                let own = self.room(&parts[rank as usize..][..1]);
                let spread = self.room(&parts);
                let mut second = call(own.clone(), spread.clone(), &spread, true);
                let wire = self.clone();
                first.finish = Some(Box::new(move || {
                    let sums = wire.reduced(&taken);
                    own.iter().for_each(|own| wire.compress(DType::F32, &sums, own));
                }));
                second.finish = Some(self.spread_at_the_end(spread, vec![tensor.clone()], name)?);
                Ok(Calls::InTurn([first, second]))
            }
            (Collective::ReduceScatter, blocks, [tensor]) => {
                let blocks = blocks.iter().map(|block| to_read(name, block));
                let blocks = blocks.collect::<Result<Vec<_>>>()?;
                let given = self.compressed(&blocks);
                let taken = self.room(&vec![blocks[rank as usize].clone(); self.size as usize]);
                let mut call = call(given.clone(), taken.clone(), &given, false);
                let (memory, back) = to_write(name, tensor)?;
                call.finish = Some(Box::new(move || {
                    let sums = self.reduced(&taken);
                    memory.write(|into| kernels::widen(self.dtype, &sums, into));
                    back.into_iter().for_each(|back| back());
                }));
                Ok(Calls::One(call))
            }
            (Collective::Allgather, [tensor], outputs) => {
                let given = self.compressed(&[to_read(name, tensor)?]);
                let like =
                    |tensor: &Tensor| Region::zeroed(self.compression.bytes(tensor.elements()));
                let taken: Vec<Region> = outputs.iter().map(like).collect();
                let mut call = call(given, taken.clone(), &taken, false);
                call.finish = Some(self.spread_at_the_end(taken, outputs.to_vec(), name)?);
                Ok(Calls::One(call))
            }
            _ => unsupported(name.to_owned()),
        }
    }
}

impl Wire {
    /// The part of `memory` that each rank reduces: as many elements for each, and one more for the
    /// first ranks where that does not come out even.
    fn parts(&self, memory: &Region) -> Vec<Region> {
        let (bytes, ranks) = (self.dtype.size_bytes(), self.size as usize);
        let elements = memory.len() / bytes;
        let start = |rank: usize| (rank * (elements / ranks) + rank.min(elements % ranks)) * bytes;
        (0..ranks).map(|rank| memory.slice(start(rank)..start(rank + 1))).collect()
    }

    /// Room for compressed elements, as many as each of `blocks` has.
    fn room(&self, blocks: &[Region]) -> Vec<Region> {
        let bytes = |block: &Region| self.compression.bytes(block.len() / self.dtype.size_bytes());
        blocks.iter().map(|block| Region::zeroed(bytes(block))).collect()
    }

    /// The elements of each block, compressed.
    fn compressed(&self, blocks: &[Region]) -> Vec<Region> {
        let room = self.room(blocks);
        for (block, into) in blocks.iter().zip(&room) {
            block.read(|from| self.compress(self.dtype, from, into));
        }
        room
    }

    fn compress(&self, dtype: DType, from: &[u8], into: &Region) {
        let lost = into.write(|into| kernels::compress(self.compression, dtype, from, into));
        self.losses.add(lost);
    }

    /// What the elements of all ranks, of which these are the compressed ones, come to, in `f32`.
    /// They are added in the order of the ranks.
    fn reduced(&self, blocks: &[Region]) -> Vec<u8> {
        let Some(first) = blocks.first() else { return Vec::new() };
        let mut sums = vec![0; self.compression.elements(first.len()) * DType::F32.size_bytes()];
        for block in blocks {
            block.read(|from| kernels::add_compressed(self.compression, from, &mut sums));
        }
        if self.reduce_op == ReduceOp::Avg {
            kernels::divide(DType::F32, &mut sums, self.size);
        }
        sums
    }

    /// Makes elements of what came compressed: as many in each tensor, or in all of one.
    fn spread_at_the_end(
        &self,
        blocks: Vec<Region>,
        tensors: Vec<Tensor>,
        name: &str,
    ) -> Result<Outcome> {
        let written = tensors.iter().map(|tensor| to_write(name, tensor));
        let (memory, backs): (Vec<Region>, Vec<_>) =
            written.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let parts = match &*memory {
            [only] if blocks.len() > 1 => self.parts(only),
            _ => memory,
        };
        let (compression, dtype) = (self.compression, self.dtype);
        Ok(Box::new(move || {
            for (part, block) in parts.iter().zip(&blocks) {
                part.write_from(block, |into, from| {
                    kernels::decompress(compression, dtype, from, into);
                });
            }
            backs.into_iter().flatten().for_each(|back| back());
        }))
    }
}
