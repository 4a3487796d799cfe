//! Whether the outputs of an operation lie in memory of their own. Pure.

use super::check::invalid;
use crate::{Request, Result, Tensor};

/// Whether a list may have the very same memory more than once.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Twice {
    Allowed,
    Refused,
}

/// Two elements over the same memory have no result that can be promised, unless all outputs get
/// the same result and two of them are the same tensor.
pub(super) fn disjoint(request: &Request, output: &[Tensor], twice: Twice) -> Result<()> {
    if let Some(index) = output.iter().position(Tensor::overlaps_itself) {
        return invalid(format!(
            "{}: elements of output tensor {index} share memory with one another",
            request.name
        ));
    }
    let mut order: Vec<usize> = (0..output.len()).filter(|&it| output[it].bytes() > 0).collect();
    let span = |index: usize| {
        let region = output[index].region();
        (region.address(), region.address() + region.len())
    };
    order.sort_by_key(|&index| (span(index), index));
    if twice == Twice::Allowed {
        order.dedup_by(|one, other| output[*one].is_same_view(&output[*other]));
    }
    // Only those whose spans form a chain can share anything.
    let (mut chain, mut chain_end) = (Vec::new(), 0);
    for index in order {
        let (start, end) = span(index);
        if start >= chain_end {
            apart(request, output, &std::mem::take(&mut chain))?;
        }
        chain.push(index);
        chain_end = chain_end.max(end);
    }
    apart(request, output, &chain)
}

/// Refuses tensors of `chain`, which are sorted by address, that share memory.
fn apart(request: &Request, output: &[Tensor], chain: &[usize]) -> Result<()> {
    let [first, rest @ ..] = chain else { return Ok(()) };
    let start = output[*first].region().address();
    let end = rest.iter().map(|&it| output[it].region()).map(|it| it.address() + it.len()).max();
    let Some(end) = end else { return Ok(()) };
    let end = end.max(start + output[*first].region().len());
    let mut taken = vec![false; end - start];
    for (place, &index) in chain.iter().enumerate() {
        let mut shared = false;
        output[index].visit_bytes(|at, bytes| {
            let memory = &mut taken[at - start..at - start + bytes];
            shared |= memory[0] || memory[bytes - 1] || memory.contains(&true);
            memory.fill(true);
        });
        let with = |&&other: &&usize| output[other].shares_elements(&output[index]);
        if shared && let Some(&other) = chain[..place].iter().find(with) {
            return invalid(format!(
                "{}: output tensors {} and {} share memory",
                request.name,
                other.min(index),
                other.max(index)
            ));
        }
    }
    Ok(())
}
