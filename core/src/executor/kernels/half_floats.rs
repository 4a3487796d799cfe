//! Half-precision elements, computed in `f32` and rounded to nearest even. Knows no operators.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::apply::widest;

/// How many elements are widened at a time; their `f32`s stay in the first-level cache.
const BATCH: usize = 256;

/// IEEE 754 binary16.
pub(super) struct F16;
/// bfloat16.
pub(super) struct Bf16;

/// A half-precision type, as conversions of batches.
pub(super) trait Half {
    /// Widens a batch; both are equally long.
    fn widen(from: &[[u8; 2]], into: &mut [f32]);
    /// Narrows a batch; both are equally long.
    fn narrow(from: &[f32], into: &mut [[u8; 2]]);

    /// Replaces each element by `f` of it.
    fn map(memory: &mut [u8], f: impl Fn(f32) -> f32) {
        let mut wide = [0.0; BATCH];
        for batch in memory.as_chunks_mut::<2>().0.chunks_mut(BATCH) {
            let wide = &mut wide[..batch.len()];
            Self::widen(batch, wide);
            wide.iter_mut().for_each(|element| *element = f(*element));
            Self::narrow(wide, batch);
        }
    }

    /// Replaces each element of `into` by `f` of it and its counterpart in `from`.
    fn zip(into: &mut [u8], from: &[u8], f: impl Fn(f32, f32) -> f32) {
        let (mut left, mut right) = ([0.0; BATCH], [0.0; BATCH]);
        let elements = into.len().min(from.len()) / 2;
        let into = into.as_chunks_mut::<2>().0[..elements].chunks_mut(BATCH);
        let from = from.as_chunks::<2>().0[..elements].chunks(BATCH);
        for (into, from) in into.zip(from) {
            let (left, right) = (&mut left[..into.len()], &mut right[..from.len()]);
            Self::widen(into, left);
            Self::widen(from, right);
            for (left, right) in left.iter_mut().zip(right) {
                *left = f(*left, *right);
            }
            Self::narrow(left, into);
        }
    }
}

impl Half for F16 {
    fn widen(from: &[[u8; 2]], into: &mut [f32]) {
        let mut batch = [f16::ZERO; BATCH];
        let batch = &mut batch[..from.len()];
        for (element, bytes) in batch.iter_mut().zip(from) {
            *element = f16::from_ne_bytes(*bytes);
        }
        batch.convert_to_f32_slice(into);
    }

    fn narrow(from: &[f32], into: &mut [[u8; 2]]) {
        let mut batch = [f16::ZERO; BATCH];
        let batch = &mut batch[..from.len()];
        batch.convert_from_f32_slice(from);
        for (element, bytes) in batch.iter().zip(into) {
            *bytes = element.to_ne_bytes();
        }
    }
}

impl Half for Bf16 {
    fn widen(from: &[[u8; 2]], into: &mut [f32]) {
        widest(
            #[inline(always)]
            || {
                for (bytes, element) in from.iter().zip(into) {
                    *element = f32::from_bits(u32::from(u16::from_ne_bytes(*bytes)) << 16);
                }
            },
        );
    }

    fn narrow(from: &[f32], into: &mut [[u8; 2]]) {
        widest(
            #[inline(always)]
            || {
                for (element, bytes) in from.iter().zip(into) {
                    *bytes = bf16_bits(*element).to_ne_bytes();
                }
            },
        );
    }
}

/// The bits of the nearest bfloat16, ties to even; a NaN stays one. Without branches, so that the
/// loop around it vectorises, unlike `half::bf16::from_f32`.
#[inline(always)]
fn bf16_bits(element: f32) -> u16 {
    let bits = element.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    let quiet_nan = (bits >> 16) as u16 | 0x40;
    if element.is_nan() { quiet_nan } else { rounded }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn narrowing_agrees_with_the_half_crate() {
        // Every upper half of a number, with lower halves below, at and above a tie.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let element = f32::from_bits(u32::from(upper) << 16 | lower);
                let expected = bf16::from_f32(element);
                let got = bf16::from_bits(bf16_bits(element));
                assert!(
                    got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()),
                    "{element:e} ({upper:#x}, {lower:#x}): {got}, not {expected}"
                );
            }
        }
    }
}
