//! One block of elements: to its compressed form, and back to numbers. Knows no loops over memory.

use super::super::instructions::{Instructions, LANES, bf16_bits};
use super::Compression;

/// Elements of a block.
pub const BLOCK: usize = 256;
/// Bytes of a scale.
pub(super) const SCALE_BYTES: usize = size_of::<f32>();
/// Most bytes of a block.
pub(super) const MAX_BLOCK_BYTES: usize = 2 * BLOCK;
/// The greatest magnitude of a byte of [`Compression::Int8`].
const STEPS: f32 = 127.0;
/// The last bit of a number near this one is worth 1: adding it rounds to an integer, ties to even,
/// and leaves that in the lowest bits.
const ROUNDER: f32 = 1.5 * (1 << 23) as f32;

/// Compresses a block, of which `numbers` are left, into as many bytes as one has.
#[inline(always)]
pub(super) fn encode<V: Instructions>(
    format: Compression,
    numbers: &mut [f32; BLOCK],
    into: &mut [u8],
) {
    match format {
        Compression::Bf16 => {
            for (half, number) in into.as_chunks_mut().0.iter_mut().zip(numbers) {
                let bits = bf16_bits(*number);
                *half = ((bits >> 16) as u16).to_ne_bytes();
                *number = f32::from_bits(bits & 0xffff_0000);
            }
        }
        Compression::F16 => {
            let halves = into.as_chunks_mut().0.iter_mut();
            for (halves, numbers) in halves.zip(numbers.as_chunks_mut::<LANES>().0) {
                *halves = V::narrow_f16s(*numbers);
                *numbers = V::widen_f16s(*halves);
            }
        }
        Compression::Int8 => {
            let (scale, steps) = into.split_at_mut(SCALE_BYTES);
            // Without their signs, numbers have the order of their bits.
            let magnitude = |number: &f32| (number.to_bits() & 0x7fff_ffff).cast_signed();
            let greatest = numbers.iter().map(magnitude).fold(0, i32::max);
            let greatest = f32::from_bits(greatest.cast_unsigned());
            let factor = if greatest.is_finite() { greatest / STEPS } else { f32::NAN };
            scale.copy_from_slice(&factor.to_ne_bytes());
            let is_scaled = factor > 0.0;
            if !is_scaled {
                steps.fill(0);
                // NaN, if the scale is.
                *numbers = [0.0 * factor; BLOCK];
                return;
            }
            for (step, number) in steps.iter_mut().zip(numbers) {
                let rounded = (*number / factor).clamp(-STEPS, STEPS) + ROUNDER;
                *step = rounded.to_bits() as u8;
                *number = (rounded - ROUNDER) * factor;
            }
        }
    }
}

/// The numbers of a compressed block, of which there are all bytes.
#[inline(always)]
pub(super) fn decode<V: Instructions>(
    format: Compression,
    from: &[u8],
    numbers: &mut [f32; BLOCK],
) {
    match format {
        Compression::Bf16 => {
            for (half, number) in from.as_chunks().0.iter().zip(numbers) {
                *number = f32::from_bits(u32::from(u16::from_ne_bytes(*half)) << 16);
            }
        }
        Compression::F16 => {
            let halves = from.as_chunks().0.iter();
            for (halves, numbers) in halves.zip(numbers.as_chunks_mut::<LANES>().0) {
                *numbers = V::widen_f16s(*halves);
            }
        }
        Compression::Int8 => {
            let (scale, steps) = from.split_at(SCALE_BYTES);
            let factor = f32::from_ne_bytes(scale.as_chunks().0[0]);
            for (step, number) in steps.iter().zip(numbers) {
                *number = f32::from(step.cast_signed()) * factor;
            }
        }
    }
}
