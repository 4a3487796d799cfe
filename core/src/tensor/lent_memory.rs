//! Memory that a caller lends to an operation for the length of the call.

use super::Region;

/// What a rank contributes to an operation that may end within the call, and where the result goes.
/// The blocks of a buffer are contiguous.
#[derive(Debug)]
pub enum LentMemory<'a> {
    /// The result replaces the input.
    InPlace(&'a mut [u8]),
    /// Both buffers.
    Apart(&'a [u8], &'a mut [u8]),
    /// Memory that others may have, too: both buffers, or, without the first, one for both. It is
    /// kept from others only for as long as it is copied from or to.
    Shared(Option<&'a Region>, &'a Region),
}

impl LentMemory<'_> {
    /// Bytes of what is given and of the outcome.
    #[inline]
    pub fn lengths(&self) -> (usize, usize) {
        match self {
            LentMemory::InPlace(memory) => (memory.len(), memory.len()),
            LentMemory::Apart(input, output) => (input.len(), output.len()),
            LentMemory::Shared(input, output) => (input.unwrap_or(output).len(), output.len()),
        }
    }

    /// Whether the result replaces the input.
    pub fn is_in_place(&self) -> bool {
        matches!(self, LentMemory::InPlace(_) | LentMemory::Shared(None, _))
    }

    /// Shows what is given to `f`.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            LentMemory::InPlace(memory) => f(memory),
            LentMemory::Apart(input, _) => f(input),
            LentMemory::Shared(input, output) => input.unwrap_or(output).read(f),
        }
    }

    /// Lets `f` change where the outcome goes.
    #[inline]
    pub fn write<R>(&mut self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        match self {
            LentMemory::InPlace(memory) => f(memory),
            LentMemory::Apart(_, output) => f(output),
            LentMemory::Shared(_, output) => output.write(f),
        }
    }
}
