//! Half-precision elements: sums and products rounded once to nearest even; orders by their bits.
//! Knows no loops over memory and no instructions.

use std::marker::PhantomData;

use super::instructions::{Halves, Instructions, LANES, for_each_lane, lanes};
use super::number::{Float, Lanes, Number, OrderedElement};

/// Half-precision elements, of which functions of `f32` are computed.
///
/// A sum or product of two such numbers that is rounded to `f32` and then again has the bits of the
/// exact result rounded once: `f32` has more than twice their digits.
pub(super) trait Half: Lanes {
    /// Replaces each element by `f` of it.
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        self.zip(
            self,
            #[inline(always)]
            |element, _| f(element),
        )
    }
    /// Replaces each element by `f` of it and its counterpart.
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self;
}

impl<T: Half> Number for T {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(
            other,
            #[inline(always)]
            |left, right| left + right,
        )
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.zip(
            other,
            #[inline(always)]
            |left, right| left * right,
        )
    }
}

/// Several binary16 numbers, widened.
#[derive(Clone, Copy)]
pub(super) struct F16s<V>([f32; LANES], PhantomData<V>);

impl<V: Instructions> Lanes for F16s<V> {
    type Bytes = Halves;
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: Halves) -> Self {
        F16s(V::widen_f16s(bytes), PhantomData)
    }
    #[inline(always)]
    fn store(self) -> Halves {
        V::narrow_f16s(self.0)
    }
}

impl<V: Instructions> Half for F16s<V> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let elements = lanes(
            #[inline(always)]
            |lane| f(self.0[lane], other.0[lane]).canonical(),
        );
        F16s(elements, PhantomData)
    }
}

/// Pairs of bfloat16 numbers. Each number is the upper half of an `f32`, so that neither of a pair
/// has to move far: this vectorises without shuffles.
#[derive(Clone, Copy)]
pub(super) struct Bf16s<V>([u32; LANES], PhantomData<V>);

impl<V: Instructions> Bf16s<V> {
    /// The numbers in the lower bits of pairs, and those in the upper bits.
    #[inline(always)]
    fn widen(self) -> ([f32; LANES], [f32; LANES]) {
        let lower = lanes(
            #[inline(always)]
            |lane| f32::from_bits(self.0[lane] << 16),
        );
        let upper = lanes(
            #[inline(always)]
            |lane| f32::from_bits(self.0[lane] & 0xffff_0000),
        );
        (lower, upper)
    }
}

impl<V: Instructions> Lanes for Bf16s<V> {
    type Bytes = [u8; 4 * LANES];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: Self::Bytes) -> Self {
        let bytes = bytes.as_chunks().0;
        let pairs = lanes(
            #[inline(always)]
            |lane| u32::from_ne_bytes(bytes[lane]),
        );
        Bf16s(pairs, PhantomData)
    }
    #[inline(always)]
    fn store(self) -> Self::Bytes {
        let mut all = [0; 4 * LANES];
        let parts = all.as_chunks_mut().0;
        for_each_lane(
            #[inline(always)]
            |lane| parts[lane] = self.0[lane].to_ne_bytes(),
        );
        all
    }
}

impl<V: Instructions> Half for Bf16s<V> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let ((lower, upper), (other_lower, other_upper)) = (self.widen(), other.widen());
        let lower = lanes(
            #[inline(always)]
            |lane| f(lower[lane], other_lower[lane]),
        );
        let upper = lanes(
            #[inline(always)]
            |lane| f(upper[lane], other_upper[lane]),
        );
        Bf16s(V::narrow_bf16s(lower, upper), PhantomData)
    }
}

/// A half-precision number that is only compared, by its bits: `INFINITY` are those of infinity.
#[derive(Clone, Copy)]
pub(super) struct HalfBits<const INFINITY: u16>(u16);

/// A binary16 number.
pub(super) type ComparedF16 = HalfBits<0x7c00>;

/// A bfloat16 number.
pub(super) type ComparedBf16 = HalfBits<0x7f80>;

impl<const INFINITY: u16> HalfBits<INFINITY> {
    /// Infinity with the highest bit of the fraction.
    const NAN: u16 = INFINITY | (INFINITY & INFINITY.wrapping_neg()) >> 1;

    #[inline(always)]
    fn magnitude(self) -> u16 {
        self.0 & 0x7fff
    }

    /// An integer that is less if and only if the number is; both zeros are 0.
    #[inline(always)]
    fn key(self) -> i16 {
        let sign = self.0.cast_signed() >> 15;
        (self.magnitude().cast_signed() ^ sign).wrapping_sub(sign)
    }

    /// `chosen`, or NaN if one of the two is.
    #[inline(always)]
    fn unless_nan(self, other: Self, chosen: Self) -> Self {
        if self.magnitude() > INFINITY || other.magnitude() > INFINITY {
            HalfBits(Self::NAN)
        } else {
            chosen
        }
    }
}

impl<const INFINITY: u16> Lanes for HalfBits<INFINITY> {
    type Bytes = [u8; 2];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> Self {
        HalfBits(u16::from_ne_bytes(bytes))
    }
    #[inline(always)]
    fn store(self) -> [u8; 2] {
        self.0.to_ne_bytes()
    }
}

impl<const INFINITY: u16> OrderedElement for HalfBits<INFINITY> {
    // Of equal numbers (signed zeros) `other` is taken, as of wider floats.
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        self.unless_nan(other, if self.key() < other.key() { self } else { other })
    }
    #[inline(always)]
    fn greatest(self, other: Self) -> Self {
        self.unless_nan(other, if self.key() > other.key() { self } else { other })
    }
}
