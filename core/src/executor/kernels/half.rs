//! Kernels of f16 and bf16: elements are widened to f32, computed and rounded to even. Knows no
//! processor.

use std::marker::PhantomData;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::memory::{Combine, Map};
use super::operators::{Change, Operator};

/// Elements that are converted at a time.
pub(super) const LANES: usize = 8;

/// Their bytes.
pub(super) const BYTES: usize = 2 * LANES;

/// How f16 is converted.
pub(super) trait Half {
    /// Converts exactly.
    fn widen(bytes: [u8; BYTES]) -> [f32; LANES];
    /// Rounds to even. A NaN is canonical.
    fn narrow(values: [f32; LANES]) -> [u8; BYTES];
}

impl Half for f16 {
    #[inline(always)]
    fn widen(bytes: [u8; BYTES]) -> [f32; LANES] {
        let mut narrow = [f16::ZERO; LANES];
        for (narrow, bytes) in narrow.iter_mut().zip(bytes.as_chunks().0) {
            *narrow = f16::from_ne_bytes(*bytes);
        }
        let mut values = [0.0; LANES];
        narrow.convert_to_f32_slice(&mut values);
        values
    }

    #[inline(always)]
    fn narrow(values: [f32; LANES]) -> [u8; BYTES] {
        let mut narrow = [f16::ZERO; LANES];
        narrow.convert_from_f32_slice(&values);
        let mut bytes = [0; BYTES];
        for (bytes, narrow) in bytes.as_chunks_mut().0.iter_mut().zip(narrow) {
            *bytes = narrow.to_ne_bytes();
        }
        bytes
    }
}

/// Combines f16 elements by operator `O`, or changes them by `O`, converted by `H`. Operators and changes
/// give canonical NaNs.
pub(super) struct Halves<H, O> {
    change: O,
    of: PhantomData<H>,
}

impl<H, O> Halves<H, O> {
    /// For changing elements.
    pub(super) fn new(change: O) -> Halves<H, O> {
        Halves { change, of: PhantomData }
    }
}

impl<H: Half, O: Operator<f32>> Combine<BYTES> for Halves<H, O> {
    #[inline(always)]
    fn combine(left: [u8; BYTES], right: [u8; BYTES]) -> [u8; BYTES] {
        let mut values = H::widen(left);
        for (value, right) in values.iter_mut().zip(H::widen(right)) {
            *value = O::of(*value, right);
        }
        H::narrow(values)
    }
}

impl<H: Half, C: Change<f32>> Map<BYTES> for Halves<H, C> {
    #[inline(always)]
    fn map(&self, bytes: [u8; BYTES]) -> [u8; BYTES] {
        let mut values = H::widen(bytes);
        for value in &mut values {
            *value = self.change.of(*value);
        }
        H::narrow(values)
    }
}

/// Combines bf16 elements by operator `O`, or changes them by `O`, one at a time: their conversion is
/// simple enough that compilers make vector code of the loop.
pub(super) struct Bfloats<O>(pub(super) O);

impl<O: Operator<f32>> Combine<2> for Bfloats<O> {
    #[inline(always)]
    fn combine(left: [u8; 2], right: [u8; 2]) -> [u8; 2] {
        narrow_bfloat(O::of(widen_bfloat(left), widen_bfloat(right)))
    }
}

impl<C: Change<f32>> Map<2> for Bfloats<C> {
    #[inline(always)]
    fn map(&self, bytes: [u8; 2]) -> [u8; 2] {
        narrow_bfloat(self.0.of(widen_bfloat(bytes)))
    }
}

#[inline(always)]
fn widen_bfloat(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16)
}

#[inline(always)]
fn narrow_bfloat(value: f32) -> [u8; 2] {
    // Half of the last place that stays, less if that is even: what is above carries. The canonical
    // NaN stays what it is, and operators give no other.
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    ((rounded >> 16) as u16).to_ne_bytes()
}
