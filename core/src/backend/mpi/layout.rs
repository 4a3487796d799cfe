//! Blocks of memory as MPI takes them: one piece where they lie side by side, counts and distances
//! where they fit into an `int`, types made for the purpose where they do not. Knows no collective.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::AtomicU8;

use super::abi::Handle;
use super::job::Job;
use super::running_operation::Lists;
use crate::generated::error::Result;
use crate::tensor::Region;

/// Bytes of the largest piece that one element of a type made here has.
const PIECE: usize = 1 << 30;

/// Where a block begins. A block of nothing may have any address, also one that means something to
/// MPI, as 1 does: then it is that of a byte that nobody touches.
pub(super) fn start_of(block: &Region) -> *mut u8 {
    static NOTHING: AtomicU8 = AtomicU8::new(0);
    match block.is_empty() {
        true => NOTHING.as_ptr(),
        false => block.as_mut_ptr(),
    }
}

/// Where blocks begin if they lie side by side, in order, without gaps.
pub(super) fn side_by_side(blocks: &[Region]) -> Option<*mut u8> {
    let mut filled = blocks.iter().filter(|block| !block.is_empty());
    let first = filled.next()?;
    let mut end = first.address() + first.len();
    for block in filled {
        if block.address() != end {
            return None;
        }
        end += block.len();
    }
    Some(first.as_mut_ptr())
}

/// Blocks as `MPI_Ialltoallw` takes them: the address from which distances count, and, at `side` of
/// `lists`, how many of which type lie where. The block `without` is left out.
///
/// # Errors
/// [`crate::Error::Network`] if the library cannot make a type.
pub(super) fn scattered<H: Handle>(
    job: &Job<H>,
    blocks: &[Region],
    without: usize,
    lists: &mut Lists<H>,
    side: usize,
) -> Result<*mut u8> {
    let filled = blocks.iter().filter(|block| !block.is_empty());
    let lowest = filled.min_by_key(|block| block.address());
    let base = lowest.map_or(std::ptr::null_mut(), Region::as_mut_ptr);
    for (place, block) in blocks.iter().enumerate() {
        let bytes = if place == without { 0 } else { block.len() };
        let distance = if bytes == 0 { 0 } else { block.address() - base as usize };
        let small = (c_int::try_from(bytes), c_int::try_from(distance));
        let (count, displacement, mpi_type) = match small {
            (Ok(bytes), Ok(distance)) => (bytes, distance, job.constants.types.byte),
            _ => {
                let mpi_type = large(job, bytes, distance)?;
                lists.made.push(mpi_type);
                (1, 0, mpi_type)
            }
        };
        lists.counts[side].push(count);
        lists.displacements[side].push(displacement);
        lists.types[side].push(mpi_type);
    }
    Ok(base)
}

/// How many of which type `bytes` bytes are. A type that was made is added to `made`.
///
/// # Errors
/// As [`scattered`].
pub(super) fn bytes<H: Handle>(
    job: &Job<H>,
    bytes: usize,
    made: &mut Vec<H>,
) -> Result<(c_int, H)> {
    match c_int::try_from(bytes) {
        Ok(count) => Ok((count, job.constants.types.byte)),
        Err(_) => {
            let mpi_type = large(job, bytes, 0)?;
            made.push(mpi_type);
            Ok((1, mpi_type))
        }
    }
}

/// A type of `bytes` bytes that lie `distance` bytes behind where it is applied.
fn large<H: Handle>(job: &Job<H>, bytes: usize, distance: usize) -> Result<H> {
    let functions = &job.functions;
    let byte = job.constants.types.byte;
    let mut piece = H::from_bits(0);
    // SAFETY: an output argument.
    let code = unsafe { (functions.type_contiguous)(PIECE as c_int, byte, &raw mut piece) };
    job.check(code, "MPI_Type_contiguous")?;
    let pieces = bytes / PIECE;
    let counts = [pieces as c_int, (bytes % PIECE) as c_int];
    let distances = [distance as isize, (distance + pieces * PIECE) as isize];
    let types = [piece, byte];
    let mut made = H::from_bits(0);
    // SAFETY: the lists have two entries, as the first argument says.
    let code = unsafe {
        let (counts, types) = (counts.as_ptr(), types.as_ptr());
        (functions.type_create_struct)(2, counts, distances.as_ptr(), types, &raw mut made)
    };
    job.check(code, "MPI_Type_create_struct")?;
    // SAFETY: made above; what it is made of may be freed.
    let code = unsafe {
        (functions.type_free)(&raw mut piece);
        (functions.type_commit)(&raw mut made)
    };
    job.check(code, "MPI_Type_commit")?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_side_by_side_are_one_piece() {
        let memory = Region::zeroed(24);
        let block = |range| memory.slice(range);
        let start = Some(memory.as_mut_ptr());
        assert_eq!(side_by_side(&[block(0..8), block(8..8), block(8..24)]), start);
        assert_eq!(side_by_side(&[block(0..8), block(16..24)]), None, "a gap");
        assert_eq!(side_by_side(&[block(8..16), block(0..8)]), None, "another order");
        assert_eq!(side_by_side(&[block(0..0)]), None, "nothing");
    }
}
