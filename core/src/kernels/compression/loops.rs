//! Loops over memory that is compressed, made of compressed elements, or both. Knows nothing of
//! what a block looks like.

use std::marker::PhantomData;

use super::super::instructions::{Instructions, Loop};
use super::super::number::{Float, Lanes};
use super::Compression;
use super::block::{BLOCK, MAX_BLOCK_BYTES, decode, encode};
use super::loss::{Compressible, CompressionLoss, Errors};

/// How many blocks before it is used memory is to come into the cache: while a block is computed
/// with, nothing else asks for memory. With a process on each of two cores, 16 MiB of `f32` were
/// compressed to bfloat16 at 7.7 GB/s instead of 5.0, and back at 14 instead of 6.5.
const AHEAD: usize = 4;

/// Compresses elements.
pub(super) struct Compressing<'a, T> {
    pub(super) format: Compression,
    pub(super) from: &'a [u8],
    pub(super) into: &'a mut [u8],
    pub(super) loss: &'a mut CompressionLoss,
    pub(super) elements: PhantomData<T>,
}

impl<T: Compressible + Lanes<Bytes = [u8; N]>, const N: usize> Loop for Compressing<'_, T> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        let (elements, _) = self.from.as_chunks::<N>();
        let pieces = self.into.chunks_mut(self.format.bytes(BLOCK));
        let mut errors = Errors::none();
        let mut exact = [T::default(); BLOCK];
        for (block, piece) in pieces.enumerate() {
            let rest = &elements[(block * BLOCK).min(elements.len())..];
            let (elements, later) = rest.split_at(rest.len().min(BLOCK));
            V::prefetch(soon(later), true);
            for (exact, element) in exact.iter_mut().zip(elements) {
                *exact = T::load(*element);
            }
            exact[elements.len()..].fill(T::default());
            encode_part::<V, T>(self.format, &exact, piece, &mut errors);
        }
        *self.loss = errors.of(elements.len());
    }
}

/// Adds up what is compressed in each of `parts`, in their order, and divides that by `divisor`.
pub(super) struct Reducing<'a, T> {
    pub(super) format: Compression,
    pub(super) parts: &'a [&'a [u8]],
    pub(super) divisor: f32,
    pub(super) into: &'a mut [u8],
    pub(super) elements: PhantomData<T>,
}

impl<T: Compressible + Lanes<Bytes = [u8; N]>, const N: usize> Loop for Reducing<'_, T> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        let (elements, _) = self.into.as_chunks_mut::<N>();
        let mut sums = [0.0; BLOCK];
        let blocks = elements.len().div_ceil(BLOCK);
        for block in 0..blocks {
            let rest = &mut elements[block * BLOCK..];
            let (elements, later) = rest.split_at_mut(rest.len().min(BLOCK));
            V::prefetch(soon(later), false);
            reduce_block::<V>(self.format, self.parts, block, self.divisor, &mut sums);
            for (element, sum) in elements.iter_mut().zip(&sums) {
                *element = T::widened(*sum).store();
            }
        }
    }
}

/// As [`Reducing`], and compresses that again.
pub(super) struct Recompressing<'a> {
    pub(super) format: Compression,
    pub(super) parts: &'a [&'a [u8]],
    pub(super) divisor: f32,
    pub(super) into: &'a mut [u8],
    pub(super) loss: &'a mut CompressionLoss,
}

impl Loop for Recompressing<'_> {
    const OF_HALVES: bool = false;
    #[inline(always)]
    fn run<V: Instructions>(self) {
        let elements = self.format.elements(self.into.len());
        let pieces = self.into.chunks_mut(self.format.bytes(BLOCK));
        let mut errors = Errors::none();
        let mut sums = [0.0; BLOCK];
        for (block, piece) in pieces.enumerate() {
            reduce_block::<V>(self.format, self.parts, block, self.divisor, &mut sums);
            encode_part::<V, f32>(self.format, &sums, piece, &mut errors);
        }
        *self.loss = errors.of(elements);
    }
}

/// The block of memory that is used next but a few, of what is used later than now.
#[inline(always)]
fn soon<const N: usize>(later: &[[u8; N]]) -> &[u8] {
    let start = later.len().min((AHEAD - 1) * BLOCK);
    later[start..later.len().min(start + BLOCK)].as_flattened()
}

/// Compresses a block, or the first part of one, which is followed by zeros.
#[inline(always)]
fn encode_part<V: Instructions, T: Compressible>(
    format: Compression,
    exact: &[T; BLOCK],
    piece: &mut [u8],
    errors: &mut Errors,
) {
    let whole = format.bytes(BLOCK);
    let mut room = [0; MAX_BLOCK_BYTES];
    let is_whole = piece.len() == whole;
    let into = if is_whole { &mut *piece } else { &mut room[..whole] };
    let mut numbers = [0.0; BLOCK];
    for (number, exact) in numbers.iter_mut().zip(exact) {
        *number = exact.narrow();
    }
    encode::<V>(format, &mut numbers, into);
    if !is_whole {
        // What follows is no element, also where the block becomes NaN.
        numbers[format.elements(piece.len())..].fill(0.0);
    }
    errors.note(exact, &numbers);
    if !is_whole {
        piece.copy_from_slice(&room[..piece.len()]);
    }
}

/// What a block of all parts comes to; what is behind the last element is 0.
#[inline(always)]
fn reduce_block<V: Instructions>(
    format: Compression,
    parts: &[&[u8]],
    block: usize,
    divisor: f32,
    sums: &mut [f32; BLOCK],
) {
    let whole = format.bytes(BLOCK);
    // Adding it changes no number, not even -0.
    *sums = [-0.0; BLOCK];
    let mut numbers = [0.0; BLOCK];
    for part in parts {
        let rest = &part[(block * whole).min(part.len())..];
        let mut room = [0; MAX_BLOCK_BYTES];
        let piece = match rest.len() >= whole {
            true => &rest[..whole],
            false => {
                room[..rest.len()].copy_from_slice(rest);
                &room[..whole]
            }
        };
        decode::<V>(format, piece, &mut numbers);
        for (sum, number) in sums.iter_mut().zip(&numbers) {
            *sum += number;
        }
    }
    // Which NaN a sum is, depends on the processor.
    for sum in sums {
        *sum = (*sum / divisor).canonical();
    }
}
