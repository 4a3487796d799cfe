//! Whether the outputs of an operation lie in memory of their own. Pure.

use super::check::invalid;
use crate::tensor::{RepeatPolicy, overlap};
use crate::{Request, Result, Tensor};

/// Two elements over the same memory have no result that can be promised, unless all outputs get
/// the same result and two of them are the same tensor.
pub(super) fn disjoint(request: &Request, output: &[Tensor], twice: RepeatPolicy) -> Result<()> {
    match overlap(output, twice) {
        Some(found) => invalid(found.of_outputs(request.name)),
        None => Ok(()),
    }
}
