//! Half-precision elements, computed in `f32` and rounded to nearest even. Knows no operators.

use std::marker::PhantomData;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::number::Number;

/// How many binary16 numbers are converted at once.
pub(super) const LANES: usize = 8;

/// Their bytes.
pub(super) const LANES_BYTES: usize = 2 * LANES;

/// A bfloat16 number, widened.
#[derive(Clone, Copy)]
pub(super) struct Bf16(pub(super) f32);

/// Several binary16 numbers, widened by `C`.
pub(super) struct F16s<C>(pub(super) [f32; LANES], PhantomData<C>);

/// How binary16 numbers are converted.
pub(super) trait Convert {
    /// Widens exactly.
    fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES];
    /// Rounds to nearest even; a NaN stays one.
    fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES];
}

/// Conversion on any processor.
pub(super) struct Portable;

impl Convert for Portable {
    fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES] {
        let mut narrow = [f16::ZERO; LANES];
        for (element, bytes) in narrow.iter_mut().zip(bytes.as_chunks().0) {
            *element = f16::from_ne_bytes(*bytes);
        }
        let mut wide = [0.0; LANES];
        narrow.convert_to_f32_slice(&mut wide);
        wide
    }

    fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES] {
        let mut narrow = [f16::ZERO; LANES];
        narrow.convert_from_f32_slice(&elements);
        let mut result = [0; LANES_BYTES];
        for (bytes, element) in result.as_chunks_mut().0.iter_mut().zip(narrow) {
            *bytes = element.to_ne_bytes();
        }
        result
    }
}

impl<C> F16s<C> {
    /// Several numbers.
    #[inline(always)]
    pub(super) fn new(elements: [f32; LANES]) -> F16s<C> {
        F16s(elements, PhantomData)
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut elements = self.0;
        for (element, other) in elements.iter_mut().zip(other.0) {
            *element = f(*element, other);
        }
        F16s::new(elements)
    }
}

impl<C> Clone for F16s<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for F16s<C> {}

impl<C: Convert> Number for F16s<C> {
    type Bytes = [u8; LANES_BYTES];
    #[inline(always)]
    fn load(bytes: Self::Bytes) -> Self {
        F16s::new(C::widen(bytes))
    }
    #[inline(always)]
    fn store(self) -> Self::Bytes {
        C::narrow(self.0)
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, f32::add)
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.zip(other, f32::multiply)
    }
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        self.zip(other, f32::least)
    }
    #[inline(always)]
    fn greatest(self, other: Self) -> Self {
        self.zip(other, f32::greatest)
    }
}

impl Number for Bf16 {
    type Bytes = [u8; 2];
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> Self {
        Bf16(f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16))
    }
    #[inline(always)]
    fn store(self) -> [u8; 2] {
        bf16_bits(self.0).to_ne_bytes()
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Bf16(self.0.add(other.0))
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        Bf16(self.0.multiply(other.0))
    }
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        Bf16(self.0.least(other.0))
    }
    #[inline(always)]
    fn greatest(self, other: Self) -> Self {
        Bf16(self.0.greatest(other.0))
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
