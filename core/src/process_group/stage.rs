//! From checked tensors to the contiguous memory that backends take, and back. Knows no backend.

use super::check::CheckedOperation;
use super::check_lists::takes_lists_of_blocks;
use super::messages::contiguous_on_device;
use crate::backend::{Call, CallFacts};
use crate::completion::Outcome;
use crate::generated::collective::{Blocks, Sizes};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::kernels::{self, Order};
use crate::request::Request;
use crate::tensor::{Region, Tensor};
use crate::wire::exchange::Exchange;
use crate::wire::fingerprint::{NOT_A_FACTOR, detail_of_several, digest};

/// Lays out one checked operation of `request` for a backend of `size` ranks: strided and
/// overlapping tensors are staged, factors applied; the call's `finish` undoes the staging.
pub(super) fn stage(
    request: &Request,
    checked: CheckedOperation,
    rank: u32,
    size: u32,
) -> Result<Call> {
    let facts = request.collective.facts();
    let CheckedOperation { dtype, input, output, local, local_lists } = checked;
    let in_place = facts.input == Blocks::None;
    let agreed = agreed(request, dtype, &input, &output);
    let reduced_ranks = request.collective.reduced_ranks(rank, size);

    let mut finish: Vec<Outcome> = Vec::new();
    let output_regions: Vec<Region> =
        output.iter().map(|tensor| stage_output(tensor, in_place, &mut finish)).collect();
    let mut input_regions: Vec<Region> = input
        .iter()
        .enumerate()
        .map(|(block, tensor)| {
            let own =
                (input.len() == 1 || block == rank as usize).then(|| own_block(facts.output, rank));
            match local_lists.is_empty() {
                true => stage_input(tensor, own, &output_regions),
                // Another operation of the call may write it before this one has read it.
                false => tensor.to_contiguous().into_region(),
            }
        })
        .collect();
    if facts.reduces {
        local_lists.iter().for_each(|list| {
            reduce_blocks(request.reduce_op, dtype, &input_regions, list);
        });
    }

    if facts.reduces && !local.is_empty() {
        if !in_place {
            input_regions = copies(&input_regions);
        }
        let contribution = if in_place { &output_regions } else { &input_regions };
        reduce_local(request.reduce_op, dtype, contribution, &local);
    }
    if let (true, ReduceOp::PremulSum(factor)) = (facts.reduces, request.reduce_op) {
        if !in_place {
            input_regions = copies(&input_regions);
        } else if reduced_ranks == 0 {
            // What it gives is scaled, and nothing is got in its place.
            finish.insert(0, restore_at_the_end(&output_regions));
        }
        scale(dtype, if in_place { &output_regions } else { &input_regions }, factor);
    }
    if facts.reduces {
        let inputs = (1 + local.len() + local_lists.len()) as u32;
        let end =
            end_of_reduction(request.reduce_op, dtype, &output_regions, (reduced_ranks, inputs));
        finish.splice(0..0, end);
    } else {
        finish.extend(spread_lists(&output_regions, local_lists));
    }
    if in_place && !local.is_empty() {
        finish.push(spread_at_the_end(output_regions.clone(), local.clone()));
    }
    Ok(Call {
        agreed,
        name: request.name,
        input: input_regions,
        output: output_regions,
        finish: join(finish),
        outputs: output.into_iter().chain(local).collect(),
    })
}

/// What becomes of the result before anything else, for as many ranks and inputs of each: a mean is
/// a sum that is divided, and truth values are 0 or 1 also where nothing was reduced.
fn end_of_reduction(
    reduce_op: ReduceOp,
    dtype: DType,
    output: &[Region],
    (ranks, inputs): (u32, u32),
) -> Option<Outcome> {
    match reduce_op {
        ReduceOp::Avg if ranks > 0 => {
            Some(divide_at_the_end(dtype, output.to_vec(), ranks * inputs))
        }
        _ if ranks == 1 && is_logical(reduce_op) => Some(truths_at_the_end(dtype, output.to_vec())),
        _ => None,
    }
}

/// As [`stage`], for tensors of a device: they are used where they are, and the backend has
/// averages and factors natively.
pub(super) fn stage_on_device(
    request: &Request,
    checked: CheckedOperation,
    rank: u32,
    _size: u32,
) -> Result<Call> {
    let facts = request.collective.facts();
    let CheckedOperation { dtype, input, output, local, local_lists } = checked;
    if !(local.is_empty() && local_lists.is_empty()) {
        return Err(Error::Unsupported {
            who: "a group with one device per process".into(),
            operation: format!("{} of several tensors at once", request.name),
        });
    }
    for tensor in input.iter().chain(&output) {
        contiguous_on_device(request.name, tensor)?;
    }
    let own_output = own_block(facts.output, rank);
    let own_input = own_block(facts.input, rank);
    for (place, given) in input.iter().enumerate() {
        for (index, taken) in output.iter().enumerate() {
            let (given, taken) = (given.region(), taken.region());
            let own = index == own_output && (input.len() == 1 || place == own_input);
            if given.overlaps(taken) && !(own && given.same_memory(taken)) {
                let message = format!(
                    "{}: on a device, input tensor {place} and output tensor {index} must not \
                     share memory",
                    request.name
                );
                return Err(Error::InvalidArgument { message });
            }
        }
    }
    let agreed = agreed(request, dtype, &input, &output);
    let regions = |tensors: &[Tensor]| tensors.iter().map(|it| it.region().clone()).collect();
    Ok(Call {
        agreed,
        name: request.name,
        input: regions(&input),
        output: regions(&output),
        finish: None,
        outputs: output,
    })
}

/// Whether results are 0 or 1, whatever the operands are.
pub(super) fn is_logical(reduce_op: ReduceOp) -> bool {
    matches!(reduce_op, ReduceOp::Land | ReduceOp::Lor | ReduceOp::Lxor)
}

/// Makes 0 or 1 of what nothing was combined with.
fn truths_at_the_end(dtype: DType, outputs: Vec<Region>) -> Outcome {
    Box::new(move || {
        for output in &outputs {
            let nothing = vec![0; output.len()];
            output.write(|memory| {
                kernels::reduce(ReduceOp::Lor, dtype, memory, &nothing, Order::IntoFirst);
            });
        }
    })
}

/// Makes averages of sums.
fn divide_at_the_end(dtype: DType, outputs: Vec<Region>, parts: u32) -> Outcome {
    Box::new(move || {
        for output in &outputs {
            output.write(|memory| kernels::divide(dtype, memory, parts));
        }
    })
}

/// Puts back what outputs hold now.
fn restore_at_the_end(outputs: &[Region]) -> Outcome {
    let kept: Vec<(Region, Region)> = outputs.iter().map(|it| (it.clone(), copy(it))).collect();
    Box::new(move || {
        for (output, before) in &kept {
            output.write_from(before, |output, before| output.copy_from_slice(before));
        }
    })
}

/// Gives the result to this process's further tensors.
pub(super) fn spread_at_the_end(outputs: Vec<Region>, local: Vec<Tensor>) -> Outcome {
    Box::new(move || {
        for (tensor, from) in local.iter().flat_map(|t| outputs.iter().map(move |from| (t, from))) {
            // The list may have the same tensor twice, or a strided one around another.
            if tensor.region().overlaps(from) {
                tensor.copy_from(&copy(from));
            } else {
                tensor.copy_from(from);
            }
        }
    })
}

/// Gives the result to this process's further lists, block by block.
fn spread_lists(outputs: &[Region], lists: Vec<Vec<Tensor>>) -> impl Iterator<Item = Outcome> {
    let blocks = lists.into_iter().flat_map(|list| outputs.iter().zip(list));
    blocks.map(|(from, to)| spread_at_the_end(vec![from.clone()], vec![to]))
}

/// What goes into the fingerprint, and what the choice of an algorithm may depend on.
pub(super) fn agreed(
    request: &Request,
    dtype: DType,
    input: &[Tensor],
    output: &[Tensor],
) -> CallFacts {
    let facts = request.collective.facts();
    let mut words = Vec::new();
    if let (true, ReduceOp::PremulSum(factor)) = (facts.reduces, request.reduce_op) {
        words.push(factor.to_bits());
    }
    let (elements, total) = match facts.sizes {
        Sizes::Equal => {
            let elements = output.iter().chain(input).next().map_or(0, Tensor::elements) as u64;
            (elements, Some(elements))
        }
        Sizes::PerRank => {
            let blocks = if facts.output == Blocks::All { output } else { input };
            words.extend(blocks.iter().map(|block| block.elements() as u64));
            let total = blocks.iter().map(|block| block.elements() as u64).sum();
            (total, Some(total))
        }
        Sizes::PerRankAtRoot | Sizes::Pairwise => (0, None),
    };
    let has_factor = facts.reduces && matches!(request.reduce_op, ReduceOp::PremulSum(_));
    let tensors = compared_tensors(request);
    CallFacts {
        collective: request.collective,
        dtype,
        reduce_op: request.reduce_op,
        root: if facts.rooted { request.root } else { 0 },
        elements,
        shared_bytes: total.map(|elements| elements * dtype.size_bytes() as u64),
        detail: match words.as_slice() {
            words if tensors > 1 => detail_of_several(tensors, words),
            // An alltoall has no words.
            [] => request.exchange.map_or(0, Exchange::detail),
            // A factor that stands alone stands as it is, for errors to show.
            [factor] if facts.reduces && facts.sizes == Sizes::Equal => *factor,
            // So does one beside blocks that are all equal, whose sum all ranks compare anyway.
            [factor, first, rest @ ..] if has_factor && rest.iter().all(|size| size == first) => {
                *factor
            }
            words if has_factor => digest(words) | NOT_A_FACTOR,
            _ => digest(&words),
        },
        compressed: None,
    }
}

/// Of how many tensors of each rank the call is, where that has to be the same on all ranks: where
/// each is an operation, and where the number goes into an average.
fn compared_tensors(request: &Request) -> usize {
    let is_mean = request.collective.facts().reduces && request.reduce_op == ReduceOp::Avg;
    let is_compared = request.coalesced || takes_lists_of_blocks(request) || is_mean;
    match is_compared && request.exchange.is_none() {
        true => request.inputs.len().max(request.outputs.len()),
        false => 1,
    }
}

fn stage_output(tensor: &Tensor, in_place: bool, finish: &mut Vec<Outcome>) -> Region {
    if tensor.is_contiguous() {
        return tensor.region().clone();
    }
    let staged = Region::zeroed(tensor.bytes());
    if in_place {
        tensor.copy_to(&staged);
    }
    // That of a root, which only reads it.
    if tensor.is_read_only() {
        return staged;
    }
    let (from, into) = (staged.clone(), tensor.clone());
    finish.push(Box::new(move || into.copy_from(&from)));
    staged
}

/// Inputs stay where they are unless they are strided, or share memory with an output in another
/// way than the one that schedules allow: being the same as the output block `own`.
fn stage_input(tensor: &Tensor, own: Option<usize>, outputs: &[Region]) -> Region {
    if !tensor.is_contiguous() {
        return tensor.to_contiguous().into_region();
    }
    let region = tensor.region();
    let safe = outputs.iter().enumerate().all(|(index, output)| {
        !region.overlaps(output) || (own == Some(index) && region.same_memory(output))
    });
    if safe { region.clone() } else { copy(region) }
}

/// Which block of a buffer belongs to this rank.
fn own_block(rule: Blocks, rank: u32) -> usize {
    match rule {
        Blocks::All | Blocks::AllAtRoot => rank as usize,
        _ => 0,
    }
}

/// Reduces this process's further tensors into the contribution.
pub(super) fn reduce_local(
    reduce_op: ReduceOp,
    dtype: DType,
    contribution: &[Region],
    local: &[Tensor],
) {
    for (into, tensor) in contribution.iter().flat_map(|into| local.iter().map(move |t| (into, t)))
    {
        let from = tensor.to_contiguous().into_region();
        into.write_from(&from, |into, from| {
            kernels::reduce(reduce_op, dtype, into, from, Order::IntoFirst);
        });
    }
}

/// Reduces another list of this process into the contribution, block by block.
fn reduce_blocks(reduce_op: ReduceOp, dtype: DType, contribution: &[Region], list: &[Tensor]) {
    for (into, tensor) in contribution.iter().zip(list) {
        reduce_local(reduce_op, dtype, std::slice::from_ref(into), std::slice::from_ref(tensor));
    }
}

fn scale(dtype: DType, regions: &[Region], factor: f64) {
    for region in regions {
        region.write(|memory| kernels::scale(dtype, memory, factor));
    }
}

fn copies(regions: &[Region]) -> Vec<Region> {
    regions.iter().map(copy).collect()
}

pub(super) fn copy(region: &Region) -> Region {
    Region::from_vec(region.read(<[u8]>::to_vec))
}

fn join(mut steps: Vec<Outcome>) -> Option<Outcome> {
    match steps.len() {
        0 => None,
        1 => steps.pop(),
        _ => Some(Box::new(move || steps.into_iter().for_each(|step| step()))),
    }
}
