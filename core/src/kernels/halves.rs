//! Half-precision elements. Sums and products are rounded once, to nearest even; comparisons use
//! the bit patterns. Knows no loops over memory and no instructions.

use std::marker::PhantomData;

use super::instructions::{HalfLaneBytes, Instructions, LANES, for_each_lane, lanes};
use super::number::{Float, Lanes, Number, OrderedElement};

/// Half-precision elements; arithmetic is done in `f32`.
///
/// Rounding a sum or product to `f32` first does not change the result: `f32` has more than twice
/// their precision.
pub(super) trait HalfArithmetic: Lanes {
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

impl<T: HalfArithmetic> Number for T {
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

/// binary16 numbers, one in each lane, widened to `f32`.
#[derive(Clone, Copy)]
pub(super) struct F16Lanes<V>([f32; LANES], PhantomData<V>);

impl<V: Instructions> Lanes for F16Lanes<V> {
    type Bytes = HalfLaneBytes;
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: HalfLaneBytes) -> Self {
        F16Lanes(V::widen_f16s(bytes), PhantomData)
    }
    #[inline(always)]
    fn store(self) -> HalfLaneBytes {
        V::narrow_f16s(self.0)
    }
}

impl<V: Instructions> HalfArithmetic for F16Lanes<V> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let elements = lanes(
            #[inline(always)]
            |lane| f(self.0[lane], other.0[lane]).canonical(),
        );
        F16Lanes(elements, PhantomData)
    }
}

/// Pairs of bfloat16 numbers, one pair in each lane. A bfloat16 number is the upper half of an
/// `f32`, so widening is a shift or a mask, which vectorises without shuffles.
#[derive(Clone, Copy)]
pub(super) struct Bf16PairLanes<V>([u32; LANES], PhantomData<V>);

impl<V: Instructions> Bf16PairLanes<V> {
    /// The numbers in the lower halves of the pairs, and those in the upper halves.
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

impl<V: Instructions> Lanes for Bf16PairLanes<V> {
    type Bytes = [u8; 4 * LANES];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: Self::Bytes) -> Self {
        let bytes = bytes.as_chunks().0;
        let pairs = lanes(
            #[inline(always)]
            |lane| u32::from_ne_bytes(bytes[lane]),
        );
        Bf16PairLanes(pairs, PhantomData)
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

impl<V: Instructions> HalfArithmetic for Bf16PairLanes<V> {
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
        Bf16PairLanes(V::narrow_bf16s(lower, upper), PhantomData)
    }
}

/// A half-precision number that is only compared, by its bit pattern. `INFINITY` is the bit pattern
/// of infinity.
#[derive(Clone, Copy)]
pub(super) struct OrderedHalf<const INFINITY: u16>(u16);

/// A binary16 number.
pub(super) type ComparedF16 = OrderedHalf<0x7c00>;

/// A bfloat16 number.
pub(super) type ComparedBf16 = OrderedHalf<0x7f80>;

impl<const INFINITY: u16> OrderedHalf<INFINITY> {
    /// A quiet NaN.
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
            OrderedHalf(Self::NAN)
        } else {
            chosen
        }
    }
}

impl<const INFINITY: u16> Lanes for OrderedHalf<INFINITY> {
    type Bytes = [u8; 2];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> Self {
        OrderedHalf(u16::from_ne_bytes(bytes))
    }
    #[inline(always)]
    fn store(self) -> [u8; 2] {
        self.0.to_ne_bytes()
    }
}

impl<const INFINITY: u16> OrderedElement for OrderedHalf<INFINITY> {
    // Between equal numbers (±0), `other` wins, as for wider floats.
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        self.unless_nan(other, if self.key() < other.key() { self } else { other })
    }
    #[inline(always)]
    fn greatest(self, other: Self) -> Self {
        self.unless_nan(other, if self.key() > other.key() { self } else { other })
    }
}
