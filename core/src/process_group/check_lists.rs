//! Several tensors of one process in collectives with a block for each rank: allgather and
//! reduce-scatter, as c10d's `*_multigpu` have them. Pure.
//!
//! With L tensors a process, a list has a place for each tensor of each rank: those of rank 0 come
//! first. They are L operations: operation `j` gathers input `j` of each rank into the first list,
//! from which the others are filled; operation `i` reduces what all lists have for output `i` of
//! each rank, those of this process first.

use super::check::{CheckedOperation, invalid, one, writable};
use super::disjoint::disjoint;
use crate::generated::collective::Blocks;
use crate::generated::error::Result;
use crate::request::Request;
use crate::tensor::{RepeatPolicy, Tensor};

/// Whether a collective takes several tensors a process in this form.
pub(super) fn takes_lists_of_blocks(request: &Request) -> bool {
    let facts = request.collective.facts();
    matches!((facts.input, facts.output), (Blocks::One, Blocks::All) | (Blocks::All, Blocks::One))
}

/// Checks `request`, of `lists` tensors a process, on rank `rank` of `size`.
pub(super) fn check_lists(
    request: &Request,
    lists: usize,
    rank: u32,
    size: u32,
) -> Result<Vec<CheckedOperation>> {
    let gathers = request.collective.facts().output == Blocks::All;
    let (many, which) = match gathers {
        true => (&request.outputs, "output"),
        false => (&request.inputs, "input"),
    };
    let places = lists * size as usize;
    if let Some(odd) = many.iter().find(|list| list.len() != places) {
        let (name, got) = (request.name, odd.len());
        return invalid(format!(
            "{name}: expected {places} {which} tensors in each of {lists} lists, one for each of \
             the {lists} tensors of each rank of the group, got {got}"
        ));
    }
    let mut checked = Vec::with_capacity(lists);
    for index in 0..lists {
        let blocks = |list: &Vec<Tensor>| -> Vec<Tensor> {
            list.iter().skip(index).step_by(lists).cloned().collect()
        };
        let mut part = Request { inputs: Vec::new(), outputs: Vec::new(), ..request.clone() };
        match gathers {
            true => {
                part.inputs = request.inputs.iter().skip(index).take(1).cloned().collect();
                part.outputs = vec![blocks(&many[0])];
            }
            false => {
                part.inputs = vec![blocks(&many[0])];
                part.outputs = request.outputs.iter().skip(index).take(1).cloned().collect();
            }
        }
        let mut operation = one(&part, 0, rank, size)?;
        operation.local_lists = many[1..].iter().map(blocks).collect();
        let first = if gathers { &operation.output } else { &operation.input };
        for list in &operation.local_lists {
            alike(request, first, list)?;
        }
        writable(request, &operation, rank)?;
        checked.push(operation);
    }
    disjoint(request, &request.outputs.concat(), RepeatPolicy::Refused)?;
    Ok(checked)
}

/// What stands for the same tensor in several lists has one size and type.
fn alike(request: &Request, first: &[Tensor], list: &[Tensor]) -> Result<()> {
    for (one, other) in first.iter().zip(list) {
        if one.elements() != other.elements() || one.dtype() != other.dtype() {
            return invalid(format!(
                "{}: tensors at one place of several lists must have the same dtype and size, got \
                 {} elements of {} and {} of {}",
                request.name,
                one.elements(),
                one.dtype().name(),
                other.elements(),
                other.dtype().name()
            ));
        }
    }
    Ok(())
}
