//! A hook that finds NaN and infinity before they spread. Knows no group.

use crate::generated::callback_arguments::PreHookArgs;
use crate::generated::error::{Error, Result};
use crate::kernels::first_non_finite;
use crate::tensor::{Device, TensorRef};

/// Makes a pre-hook that finds NaN and infinity in what an operation reads, before it spreads: an
/// [`Error::NonFiniteInput`] says where. It reads every input once more, and leaves alone what is
/// on a device, or has no floating-point elements.
pub fn nan_check() -> impl Fn(&PreHookArgs<'_>) -> Result<()> + Send + Sync + 'static {
    |operation| check(operation, false)
}

/// As [`nan_check`], for which only NaN is an error.
pub fn nan_check_allowing_infinity()
-> impl Fn(&PreHookArgs<'_>) -> Result<()> + Send + Sync + 'static {
    |operation| check(operation, true)
}

fn check(operation: &PreHookArgs<'_>, allow_infinity: bool) -> Result<()> {
    operation.input_tensors.iter().enumerate().try_for_each(|(position, input)| {
        check_input(operation.name, operation.rank, position, *input, allow_infinity)
    })
}

/// Looks for the first element that is not finite in `input`, which `operation` of `rank` reads.
///
/// # Errors
/// [`Error::NonFiniteInput`] if there is one.
#[doc(hidden)]
pub fn check_input(
    operation: &str,
    rank: u32,
    position: usize,
    input: TensorRef<'_>,
    allow_infinity: bool,
) -> Result<()> {
    if input.device() != Device::Cpu {
        return Ok(());
    }
    let found = input.read(|bytes| first_non_finite(input.dtype(), bytes, allow_infinity))?;
    found.map_or(Ok(()), |found| {
        Err(Error::NonFiniteInput {
            operation: operation.to_owned(),
            rank,
            tensor: position as u32,
            element: index_of(found.element, input.shape()),
            dtype: input.dtype().name().to_owned(),
            value: found.value.to_owned(),
        })
    })
}

/// The index of the element at this position in C order: `(3, 0)`.
fn index_of(element: usize, shape: &[usize]) -> String {
    let mut rest = element;
    let mut index: Vec<String> = shape
        .iter()
        .rev()
        .map(|&length| {
            let length = length.max(1);
            let here = rest % length;
            rest /= length;
            here.to_string()
        })
        .collect();
    index.reverse();
    let comma = if index.len() == 1 { "," } else { "" };
    format!("({}{comma})", index.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_counts_the_last_dimension_fastest() {
        assert_eq!(index_of(7, &[3, 4]), "(1, 3)");
        assert_eq!(index_of(7, &[9]), "(7,)");
        assert_eq!(index_of(0, &[]), "()");
    }
}
