//! Memory that a caller lends to an operation for the length of the call.

/// What a rank contributes to an operation that may end within the call, and where the result goes.
/// The blocks of a buffer are contiguous.
#[derive(Debug)]
pub enum LentMemory<'a> {
    /// The result replaces the input.
    InPlace(&'a mut [u8]),
    /// Both buffers.
    Apart(&'a [u8], &'a mut [u8]),
}

impl LentMemory<'_> {
    /// Bytes of what is given and of the outcome.
    pub fn lengths(&self) -> (usize, usize) {
        match self {
            LentMemory::InPlace(memory) => (memory.len(), memory.len()),
            LentMemory::Apart(input, output) => (input.len(), output.len()),
        }
    }

    /// Where the outcome is.
    pub fn output(&mut self) -> &mut [u8] {
        match self {
            LentMemory::InPlace(memory) => memory,
            LentMemory::Apart(_, output) => output,
        }
    }

    /// What is given.
    pub fn input(&self) -> &[u8] {
        match self {
            LentMemory::InPlace(memory) => memory,
            LentMemory::Apart(input, _) => input,
        }
    }
}
