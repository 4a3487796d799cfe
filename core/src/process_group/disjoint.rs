//! Whether the outputs of an operation lie in memory of their own. Pure.

use crate::generated::error::{Error, Result};
use crate::request::Request;
use crate::tensor::{RepeatPolicy, Tensor, overlap};

/// Two elements over the same memory have no result that can be promised, unless all outputs get
/// the same result and two of them are the same tensor.
pub(super) fn disjoint(request: &Request, output: &[Tensor], twice: RepeatPolicy) -> Result<()> {
    match overlap(output, twice) {
        Some(found) => Err(Error::InvalidArgument { message: found.of_outputs(request.name) }),
        None => Ok(()),
    }
}
