//! What is too large for one call of MPI, in pieces, each with a request of its own. Knows no
//! collective.

use std::ffi::c_int;

use super::abi::Handle;
use super::running_operation::Requests;
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};
use crate::tensor::Region;

/// The highest number of elements that one call takes.
pub(super) const MAX_ELEMENTS: usize = c_int::MAX as usize;

/// Elements of MPI's in `region`.
pub(super) fn elements(region: &Region, dtype: DType, parts: usize) -> usize {
    region.len() / dtype.size_bytes() * parts
}

/// Where the element `first` of MPI's lies.
pub(super) fn nth(start: *mut u8, first: usize, dtype: DType, parts: usize) -> *mut u8 {
    start.wrapping_add(first * (dtype.size_bytes() / parts))
}

/// The first element and the number of elements of each call; one call for no elements.
pub(super) fn pieces(elements: usize) -> impl Iterator<Item = (usize, c_int)> {
    (0..elements.max(1)).step_by(MAX_ELEMENTS).map(move |first| {
        let count = (elements - first).min(MAX_ELEMENTS);
        (first, count as c_int)
    })
}

/// Requests that were started, and why the next was not, if so.
pub(super) type Start<H> = (Requests<H>, Option<Error>);

/// Starts requests until one fails; most are one. What was started before continues.
///
/// # Errors
/// Why the first failed.
pub(super) fn started<H: Handle>(mut starts: impl Iterator<Item = Result<H>>) -> Result<Start<H>> {
    let Some(first) = starts.next() else { return Ok((Requests::Many(Vec::new()), None)) };
    let first = first?;
    let Some(second) = starts.next() else { return Ok((Requests::One(first), None)) };
    let mut requests = vec![first];
    for request in [second].into_iter().chain(starts) {
        match request {
            Ok(request) => requests.push(request),
            Err(error) => return Ok((Requests::Many(requests), Some(error))),
        }
    }
    Ok((Requests::Many(requests), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_for_one_call_takes_several() {
        let pieces = |elements| pieces(elements).collect::<Vec<_>>();
        assert_eq!(pieces(0), [(0, 0)]);
        assert_eq!(pieces(MAX_ELEMENTS), [(0, c_int::MAX)]);
        assert_eq!(pieces(MAX_ELEMENTS + 5), [(0, c_int::MAX), (MAX_ELEMENTS, 5)]);
    }

    #[test]
    fn what_was_started_is_known_where_the_rest_fails() {
        let failure = || Err(Error::Network { message: "no more".to_owned() });
        let starts = |starts: Vec<Result<c_int>>| started(starts.into_iter());
        assert!(matches!(starts(vec![Ok(1)]), Ok((Requests::One(1), None))));
        assert!(starts(vec![failure(), Ok(1)]).is_err());
        let Ok((Requests::Many(requests), Some(_))) = starts(vec![Ok(1), Ok(2), failure()]) else {
            panic!("two requests are under way")
        };
        assert_eq!(requests, [1, 2]);
    }

    #[test]
    fn an_element_of_a_pair_is_half_of_it() {
        let start = std::ptr::null_mut::<u8>();
        assert_eq!(nth(start, 3, DType::Complex64, 2) as usize, 12);
        assert_eq!(nth(start, 3, DType::F64, 1) as usize, 24);
    }
}
