//! Loops over memory. Knows nothing of operators; what is combined how is said by a function of
//! elements.
//!
//! Functions are to be inlined into a loop that is compiled for a set of instructions.

#![allow(unsafe_code)]

use super::instructions::{BLOCK_BYTES, Block, Instructions, LINE_BYTES};
use super::number::Lanes;

/// Replaces each element by `f` of it.
#[inline(always)]
pub(super) fn unary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: &mut [u8],
    f: impl Fn(T) -> T + Copy,
) {
    let (before, memory) = memory.split_at_mut(before_line::<T>(memory));
    for part in [before, memory] {
        let (whole, rest) = part.as_chunks_mut::<N>();
        for lanes in whole {
            *lanes = f(T::load(*lanes)).store();
        }
        last::<T, N>(rest, |rest| f(T::load(padded(rest))));
    }
}

/// Replaces each element of `into` by `f` of it and its counterpart in `from`.
#[inline(always)]
pub(super) fn binary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    let bytes = into.len().min(from.len());
    let (into, from) = (&mut into[..bytes], &from[..bytes]);
    let (into_before, into) = into.split_at_mut(before_line::<T>(into));
    let (from_before, from) = from.split_at(into_before.len());
    for (into, from) in [(into_before, from_before), (into, from)] {
        let (into, into_rest) = into.as_chunks_mut::<N>();
        let (from, from_rest) = from.as_chunks::<N>();
        for (into, from) in into.iter_mut().zip(from) {
            *into = f(T::load(*into), T::load(*from)).store();
        }
        last::<T, N>(into_rest, |into| f(T::load(padded(into)), T::load(padded(from_rest))));
    }
}

/// Sets each element of `into` to `f` of its counterparts in `left` and `right`.
#[inline(always)]
pub(super) fn ternary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    let bytes = into.len().min(left.len()).min(right.len());
    let (into, left, right) = (&mut into[..bytes], &left[..bytes], &right[..bytes]);
    let (into_before, into) = into.split_at_mut(before_line::<T>(into));
    let (left_before, left) = left.split_at(into_before.len());
    let (right_before, right) = right.split_at(into_before.len());
    for (into, left, right) in [(into_before, left_before, right_before), (into, left, right)] {
        let (into, into_rest) = into.as_chunks_mut::<N>();
        let (left, left_rest) = left.as_chunks::<N>();
        let (right, right_rest) = right.as_chunks::<N>();
        for (into, (left, right)) in into.iter_mut().zip(left.iter().zip(right)) {
            *into = f(T::load(*left), T::load(*right)).store();
        }
        last::<T, N>(into_rest, |_| f(T::load(padded(left_rest)), T::load(padded(right_rest))));
    }
}

/// As [`ternary`], past the cache.
#[inline(always)]
pub(super) fn ternary_streaming<V, T, const N: usize>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) where
    V: Instructions,
    T: Lanes<Bytes = [u8; N]>,
{
    let bytes = into.len().min(left.len()).min(right.len());
    let before = into.as_ptr().align_offset(LINE_BYTES).min(bytes);
    // Where no element begins a line, all of them are stored otherwise.
    let before = if before.is_multiple_of(T::ELEMENT_BYTES) { before } else { bytes };
    let end = before + (bytes - before) / BLOCK_BYTES * BLOCK_BYTES;
    ternary(&mut into[..before], &left[..before], &right[..before], f);
    let operands = left[before..end].as_chunks::<BLOCK_BYTES>().0.iter();
    let operands = operands.zip(right[before..end].as_chunks::<BLOCK_BYTES>().0);
    stream::<V, _>(&mut into[before..end], operands, |(left, right)| {
        let mut block = Block([0; BLOCK_BYTES]);
        let operands = left.as_chunks::<N>().0.iter().zip(right.as_chunks::<N>().0);
        for (into, (left, right)) in block.0.as_chunks_mut::<N>().0.iter_mut().zip(operands) {
            *into = f(T::load(*left), T::load(*right)).store();
        }
        block
    });
    ternary(&mut into[end..bytes], &left[end..bytes], &right[end..bytes], f);
}

/// Copies as many bytes as both have, past the cache.
#[inline(always)]
pub(super) fn copy_streaming<V: Instructions>(into: &mut [u8], from: &[u8]) {
    copy_by_blocks(
        into,
        from,
        #[inline(always)]
        |into, from| stream::<V, _>(into, from.iter(), |from| Block(*from)),
    );
}

/// Copies as many bytes as both have, through the caches.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn copy_cached<V: Instructions>(into: &mut [u8], from: &[u8]) {
    copy_by_blocks(
        into,
        from,
        #[inline(always)]
        |into, from| {
            for (into, from) in into.as_chunks_mut().0.iter_mut().zip(from) {
                V::copy_block(into, from);
            }
        },
    );
}

/// Copies as many bytes as both have: by `copy` what is whole blocks, whose places begin a line.
#[inline(always)]
fn copy_by_blocks(
    into: &mut [u8],
    from: &[u8],
    copy: impl FnOnce(&mut [u8], &[[u8; BLOCK_BYTES]]),
) {
    let bytes = into.len().min(from.len());
    let before = into.as_ptr().align_offset(LINE_BYTES).min(bytes);
    let end = before + (bytes - before) / BLOCK_BYTES * BLOCK_BYTES;
    into[..before].copy_from_slice(&from[..before]);
    copy(&mut into[before..end], from[before..end].as_chunks().0);
    into[end..bytes].copy_from_slice(&from[end..bytes]);
}

/// Stores what `f` makes of each of `operands`. The first byte of `into` begins a line.
#[inline(always)]
fn stream<V: Instructions, O>(
    into: &mut [u8],
    operands: impl Iterator<Item = O>,
    f: impl Fn(O) -> Block,
) {
    for (into, operands) in into.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().zip(operands) {
        // SAFETY: `into` is a block, and begins a line, as all blocks after the first do.
        unsafe { V::stream(into.as_mut_ptr().cast(), &f(operands)) };
    }
    V::finish_streaming();
}

/// How many bytes stand before the first line of the cache: stores that cross lines are dear. None
/// where no element begins a line, or where there is not much after them.
#[inline(always)]
fn before_line<T: Lanes>(into: &[u8]) -> usize {
    let before = into.as_ptr().align_offset(LINE_BYTES);
    let worth = into.len() >= 16 * LINE_BYTES && before.is_multiple_of(T::ELEMENT_BYTES);
    if worth { before } else { 0 }
}

/// Replaces the last elements, fewer than are combined at a time, by the first ones of `f` of them.
#[inline(always)]
fn last<T: Lanes<Bytes = [u8; N]>, const N: usize>(into: &mut [u8], f: impl FnOnce(&[u8]) -> T) {
    let bytes = into.len() / T::ELEMENT_BYTES * T::ELEMENT_BYTES;
    if bytes > 0 {
        let elements = f(into).store();
        into[..bytes].copy_from_slice(&elements[..bytes]);
    }
}

/// The last bytes, followed by zeros.
#[inline(always)]
fn padded<const N: usize>(rest: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    filled[..rest.len()].copy_from_slice(rest);
    filled
}
