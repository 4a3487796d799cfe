//! Whether a request makes sense on this rank: block counts, sizes, types, root. Pure.

use super::check_lists::{check_lists, takes_lists_of_blocks};
use super::compression;
use super::disjoint::disjoint;
use crate::generated::collective::{Blocks, Sizes};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::generated::reduce_op::ReduceOp;
use crate::request::Request;
use crate::tensor::{RepeatPolicy, Tensor};

/// A request that makes sense on this rank, with the operations that it is.
#[derive(Clone, Debug)]
pub struct CheckedRequest {
    pub(super) request: Request,
    pub(super) operations: Vec<CheckedOperation>,
    /// That of the members for whom it was checked.
    pub(super) epoch: u64,
}

impl CheckedRequest {
    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }
}

/// One operation of a request, checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedOperation {
    /// The element type; `U8` where there are no tensors.
    pub(super) dtype: DType,
    /// Blocks of the input buffer.
    pub(super) input: Vec<Tensor>,
    /// Blocks of the output buffer.
    pub(super) output: Vec<Tensor>,
    /// Further tensors of this process that are reduced into, or filled from, `output[0]`.
    pub(super) local: Vec<Tensor>,
    /// Further lists of this process, block by block, which are reduced into `input`, or filled
    /// from `output`.
    pub(super) local_lists: Vec<Vec<Tensor>>,
}

/// Checks `request` as rank `rank` of `size` ranks. One operation for each list of the request,
/// or one in all where the lists belong together.
pub(super) fn check(request: &Request, rank: u32, size: u32) -> Result<Vec<CheckedOperation>> {
    let facts = request.collective.facts();
    if facts.rooted && request.root >= size {
        let (name, root, last) = (request.name, request.root, size.saturating_sub(1));
        return invalid(format!("{name}: root must be a rank from 0 to {last}, got {root}"));
    }
    let lists = request.inputs.len().max(request.outputs.len());
    if request.root_tensor as usize >= lists.max(1) {
        let (name, index, last) = (request.name, request.root_tensor, lists.saturating_sub(1));
        return invalid(format!("{name}: root_tensor must be from 0 to {last}, got {index}"));
    }
    if lists <= 1 || request.coalesced {
        let all: Result<Vec<CheckedOperation>> =
            (0..lists.max(1)).map(|list| one(request, list, rank, size)).collect();
        all.iter().flatten().try_for_each(|checked| writable(request, checked, rank))?;
        if lists > 1 {
            disjoint(request, &request.outputs.concat(), RepeatPolicy::Refused)?;
        }
        return all;
    }
    if takes_lists_of_blocks(request) {
        return check_lists(request, lists, rank, size);
    }
    if facts.input == Blocks::All || facts.output == Blocks::All || !facts.input_fits_lists() {
        return Err(Error::Unsupported {
            who: "a group with one device per process".into(),
            operation: format!("{} of {lists} tensor lists at once", request.name),
        });
    }
    let first = if facts.rooted { request.root_tensor as usize } else { 0 };
    let mut checked = one(request, first, rank, size)?;
    for list in (0..lists).filter(|&list| list != first) {
        let other = one(request, list, rank, size)?;
        let tensor = other.output.into_iter().chain(other.input).next();
        checked.local.extend(tensor);
    }
    let elements = checked.output.iter().chain(&checked.input).next().map_or(0, Tensor::elements);
    if let Some(odd) = checked
        .local
        .iter()
        .find(|tensor| tensor.elements() != elements || tensor.dtype() != checked.dtype)
    {
        let (name, dtype) = (request.name, checked.dtype.name());
        let (odd, odd_dtype) = (odd.elements(), odd.dtype().name());
        return invalid(format!(
            "{name}: all tensors of the list must have the same dtype and size, got {elements} \
             elements of {dtype} and {odd} of {odd_dtype}"
        ));
    }
    writable(request, &checked, rank)?;
    disjoint(request, &request.outputs.concat(), RepeatPolicy::Allowed)?;
    Ok(vec![checked])
}

/// Refuses to write read-only memory. The root of a broadcast only reads what it sends, and other
/// ranks than the root of a reduction only read.
pub(super) fn writable(request: &Request, checked: &CheckedOperation, rank: u32) -> Result<()> {
    let facts = request.collective.facts();
    let is_in_place = facts.input == Blocks::None;
    let sends = facts.rooted && is_in_place && rank == request.root;
    let output = if sends { &[][..] } else { &checked.output };
    let local = if is_in_place { &checked.local[..] } else { &[] };
    let lists = if facts.reduces { &[] } else { &checked.local_lists[..] };
    if !output.iter().chain(local).chain(lists.iter().flatten()).any(Tensor::is_read_only) {
        return Ok(());
    }
    let who = match (facts.rooted, rank == request.root) {
        (true, true) => format!("rank {rank}, the root, writes it"),
        (true, false) => format!("rank {rank}, which is not the root {}, writes it", request.root),
        (false, _) => "the call writes it".to_owned(),
    };
    let name = request.name;
    invalid(format!("{name}: the memory of a tensor is read-only, but {who}; pass a writable copy"))
}

impl crate::generated::collective::Facts {
    /// Whether several tensors of one process can stand for one block.
    fn input_fits_lists(&self) -> bool {
        matches!(self.input, Blocks::None | Blocks::One)
            && matches!(self.output, Blocks::One | Blocks::OneAtRoot)
    }
}

pub(super) fn one(
    request: &Request,
    list: usize,
    rank: u32,
    size: u32,
) -> Result<CheckedOperation> {
    let facts = request.collective.facts();
    let at_root = !facts.rooted || rank == request.root;
    let mut input = request.inputs.get(list).cloned().unwrap_or_default();
    let mut output = request.outputs.get(list).cloned().unwrap_or_default();
    if facts.output == Blocks::OneAtRoot && !at_root {
        output.clear();
    }
    if facts.input == Blocks::OneAtRoot && !at_root {
        input.clear();
    }
    count(request, "input", &input, facts.input, at_root, size)?;
    count(request, "output", &output, facts.output, at_root, size)?;
    let dtype = same_dtype(request, input.iter().chain(&output))?;
    sizes(request, &input, &output, rank)?;
    disjoint(request, &output, RepeatPolicy::Refused)?;
    let supported = match request.reduce_op {
        // Whether there still is one is seen when it is issued.
        ReduceOp::Custom(op) => op.reduction().is_none_or(|it| it.takes(dtype)),
        known => known.supports(dtype),
    };
    if facts.reduces && !supported {
        return Err(Error::UnsupportedDType {
            reduce_op: request.reduce_op.name().into(),
            dtype: dtype.name().into(),
        });
    }
    compression::check(request, dtype, input.iter().chain(&output))?;
    if facts.reduces && request.reduce_op.takes_pairs() {
        input.iter().chain(&output).try_for_each(|tensor| pairs(request, tensor))?;
    }
    Ok(CheckedOperation { dtype, input, output, local: Vec::new(), local_lists: Vec::new() })
}

/// Refuses a tensor whose elements do not come in pairs.
fn pairs(request: &Request, tensor: &Tensor) -> Result<()> {
    let last = tensor.shape().last().copied().unwrap_or(1);
    if last.is_multiple_of(2) {
        return Ok(());
    }
    let (name, op, shape) = (request.name, request.reduce_op.name(), tensor.shape());
    invalid(format!(
        "{name}: {op} reduces pairs of a value and an index, so the last dimension must be even, \
         got a tensor of shape {shape:?}"
    ))
}

fn count(
    request: &Request,
    which: &str,
    blocks: &[Tensor],
    rule: Blocks,
    at_root: bool,
    size: u32,
) -> Result<()> {
    let name = request.name;
    let expected = match rule {
        Blocks::None => 0,
        Blocks::One => 1,
        Blocks::All => size as usize,
        Blocks::OneAtRoot => usize::from(at_root),
        Blocks::AllAtRoot if at_root => size as usize,
        Blocks::AllAtRoot => 0,
    };
    let got = blocks.len();
    if got == expected {
        return Ok(());
    }
    let root = request.root;
    invalid(match rule {
        Blocks::AllAtRoot | Blocks::OneAtRoot if !at_root => format!(
            "{name}: {which} tensors must NOT be specified on ranks other than the root {root}, \
             got {got}"
        ),
        Blocks::All | Blocks::AllAtRoot => format!(
            "{name}: expected {expected} {which} tensors, one for each rank of the group, got {got}"
        ),
        _ => format!("{name}: expected {expected} {which} tensor(s), got {got}"),
    })
}

fn same_dtype<'a>(
    request: &Request,
    mut tensors: impl Iterator<Item = &'a Tensor>,
) -> Result<DType> {
    let Some(first) = tensors.next() else { return Ok(DType::U8) };
    match tensors.find(|tensor| tensor.dtype() != first.dtype()) {
        None => Ok(first.dtype()),
        Some(other) => invalid(format!(
            "{}: all tensors of a call must have the same dtype, got {} and {}",
            request.name,
            first.dtype().name(),
            other.dtype().name()
        )),
    }
}

fn sizes(request: &Request, input: &[Tensor], output: &[Tensor], rank: u32) -> Result<()> {
    let facts = request.collective.facts();
    let name = request.name;
    let own = (own_block(input, facts.input, rank), own_block(output, facts.output, rank));
    if let (Some(given), Some(got)) = own
        && given.elements() != got.elements()
    {
        let told = |tensor: &Tensor, which| match tensor.shape() {
            [] | [_] => format!("{} elements of {which}", tensor.elements()),
            shape => format!("{} elements of {which} (shape {shape:?})", tensor.elements()),
        };
        let (given, got) = (told(given, "input"), told(got, "output"));
        return invalid(format!(
            "{name}: what rank {rank} gives and gets for itself must have the same size, got \
             {given} and {got}"
        ));
    }
    if facts.sizes == Sizes::Equal {
        let mut all = input.iter().chain(output).map(Tensor::elements);
        if let Some(first) = all.next()
            && let Some(other) = all.find(|&elements| elements != first)
        {
            return invalid(format!(
                "{name}: all tensors must have the same number of elements, got {first} and {other}"
            ));
        }
    }
    Ok(())
}

/// What a rank gives itself, or gets of itself.
fn own_block(blocks: &[Tensor], rule: Blocks, rank: u32) -> Option<&Tensor> {
    let is_by_rank = matches!(rule, Blocks::All | Blocks::AllAtRoot);
    blocks.get(if is_by_rank { rank as usize } else { 0 })
}

pub(super) fn invalid<T>(message: String) -> Result<T> {
    Err(Error::InvalidArgument { message })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::generated::collective::Collective;
    use crate::tensor::Region;

    fn tensor(elements: usize) -> Tensor {
        Tensor::from(vec![0f32; elements])
    }

    fn allgather(input: usize, outputs: &[usize]) -> Request {
        let mut request = Request::new(Collective::Allgather);
        request.inputs = vec![vec![tensor(input)]];
        request.outputs = vec![outputs.iter().map(|&elements| tensor(elements)).collect()];
        request
    }

    #[test]
    fn an_uneven_allgather_is_right_when_its_own_block_fits() {
        assert!(check(&allgather(2, &[1, 2, 0]), 1, 3).is_ok());
        let error = check(&allgather(2, &[2, 1, 0]), 1, 3).unwrap_err();
        assert!(error.to_string().contains("2 elements of input and 1 elements of output"));
    }

    #[test]
    fn what_differs_between_the_tensors_of_a_list_is_said() {
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![Tensor::from(vec![0f64; 3])], vec![tensor(3)]];
        let error = check(&request, 0, 1).unwrap_err().to_string();
        assert!(error.contains("got 3 elements of f64 and 3 of f32"), "{error}");
    }

    #[test]
    fn a_list_of_the_wrong_length_names_both_lengths() {
        let error = check(&allgather(2, &[2, 2]), 0, 3).unwrap_err();
        assert!(error.to_string().contains("expected 3 output tensors"), "{error}");
        assert!(error.to_string().ends_with("got 2"), "{error}");
    }

    #[test]
    fn outputs_over_the_same_memory_are_refused() {
        let mut request = allgather(2, &[2, 2]);
        request.outputs[0][1] = request.outputs[0][0].clone();
        let error = check(&request, 0, 2).unwrap_err();
        assert!(error.to_string().contains("output tensors 0 and 1 share memory"), "{error}");
    }

    #[test]
    fn a_list_to_reduce_may_have_a_tensor_twice_but_no_partly_shared_memory() {
        let memory = Region::zeroed(32);
        let part = |range| Tensor::contiguous(memory.slice(range), DType::F32, vec![4]);
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![part(0..16)], vec![part(0..16)], vec![part(16..32)]];
        assert!(check(&request, 0, 2).is_ok());
        request.coalesced = true;
        assert!(check(&request, 0, 2).is_err(), "two operations write the same memory");
        request.coalesced = false;
        request.outputs[1] = vec![part(8..24)];
        let error = check(&request, 0, 2).unwrap_err();
        assert!(error.to_string().contains("output tensors 0 and 1 share memory"), "{error}");
    }

    #[test]
    fn strides_that_lead_to_an_element_twice_are_refused() {
        let memory = Region::zeroed(4 * 12);
        let view = |shape: &[usize], strides: &[isize], from: usize| {
            let elements = (from + 1)..13;
            let region = memory.slice(4 * (elements.start - 1)..4 * (elements.end - 1));
            Tensor::strided(region, DType::F32, shape.to_vec(), strides.to_vec(), 0)
        };
        let allreduce = |tensor: Tensor| {
            let mut request = Request::new(Collective::Allreduce);
            request.outputs = vec![vec![tensor]];
            check(&request, 0, 2).map(drop).map_err(|error| error.to_string())
        };
        for (shape, strides) in
            [(&[4][..], &[0][..]), (&[3, 2], &[1, 1]), (&[2, 3], &[2, 1]), (&[2, 2, 2], &[3, 2, 1])]
        {
            let error = allreduce(view(shape, strides, 0)).unwrap_err();
            assert!(error.contains("output tensor 0 share memory"), "{shape:?}: {error}");
        }
        for (shape, strides) in
            [(&[2, 2][..], &[3, 2][..]), (&[3, 4], &[1, 3]), (&[1, 4], &[0, 2]), (&[0], &[0])]
        {
            assert_eq!(allreduce(view(shape, strides, 0)), Ok(()), "{shape:?}");
        }
        // Columns of one matrix are apart, unless one is there twice.
        let mut request = allgather(4, &[4, 4, 4]);
        request.outputs[0] = (0..3).map(|column| view(&[4], &[3], column)).collect();
        assert!(check(&request, 0, 3).is_ok());
        request.outputs[0][2] = view(&[2, 2], &[1, 4], 1);
        let error = check(&request, 0, 3).unwrap_err().to_string();
        assert!(error.contains("output tensors 0 and 2 share memory"), "{error}");
    }

    #[test]
    fn gather_takes_outputs_at_the_root_only() {
        let mut request = allgather(2, &[2, 2]);
        request.collective = Collective::Gather;
        request.name = "gather";
        assert!(check(&request, 0, 2).is_ok());
        let error = check(&request, 1, 2).unwrap_err();
        assert!(error.to_string().contains("must NOT be specified"), "{error}");
    }

    #[test]
    fn a_reduction_without_meaning_is_a_typed_error() {
        let mut request = Request::new(Collective::Allreduce);
        request.outputs = vec![vec![tensor(1)]];
        request.reduce_op = crate::generated::reduce_op::ReduceOp::Band;
        assert!(matches!(check(&request, 0, 1), Err(Error::UnsupportedDType { .. })));
    }
}
