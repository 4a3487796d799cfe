//! Half-precision elements: sums and products in `f32`, rounded once to nearest even; orders by
//! their bits. Knows no loops over memory and no instructions.
//!
//! A sum or product of two such numbers that is rounded to `f32` and then again has the bits of the
//! exact result rounded once: `f32` has more than twice their digits.

use std::marker::PhantomData;

use super::number::{Float, Lanes, Number, Ordered};

/// How many binary16 numbers are converted at once.
pub(super) const LANES: usize = 16;

/// Their bytes.
pub(super) const LANES_BYTES: usize = 2 * LANES;

/// How binary16 numbers are converted.
pub(super) trait Convert: Copy {
    /// Widens exactly; a NaN stays one.
    fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES];
    /// Rounds to nearest even. NaNs are canonical.
    fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES];
}

/// Half-precision elements that are computed with in `f32`.
pub(super) trait Half: Lanes {
    /// Replaces each element by `f` of it.
    fn map(self, f: impl Fn(f32) -> f32) -> Self;
    /// Replaces each element by `f` of it and its counterpart.
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self;
}

impl<T: Half> Number for T {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, f32::add)
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.zip(other, f32::multiply)
    }
}

/// Several binary16 numbers, widened by `C`.
#[derive(Clone, Copy)]
pub(super) struct F16s<C>([f32; LANES], PhantomData<C>);

impl<C: Convert> Lanes for F16s<C> {
    type Bytes = [u8; LANES_BYTES];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: Self::Bytes) -> Self {
        F16s(C::widen(bytes), PhantomData)
    }
    #[inline(always)]
    fn store(self) -> Self::Bytes {
        C::narrow(self.0)
    }
}

impl<C: Convert> Half for F16s<C> {
    #[inline(always)]
    fn map(mut self, f: impl Fn(f32) -> f32) -> Self {
        for element in &mut self.0 {
            *element = f(*element).canonical();
        }
        self
    }
    #[inline(always)]
    fn zip(mut self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        for (element, other) in self.0.iter_mut().zip(other.0) {
            *element = f(*element, other);
        }
        self
    }
}

/// Two bfloat16 numbers side by side. Each is the upper half of an `f32`, so that neither has to
/// move far: this vectorises without shuffles.
#[derive(Clone, Copy)]
pub(super) struct Bf16s(u32);

impl Bf16s {
    const UPPER: u32 = 0xffff_0000;

    #[inline(always)]
    fn widen(self) -> [f32; 2] {
        [f32::from_bits(self.0 << 16), f32::from_bits(self.0 & Self::UPPER)]
    }

    #[inline(always)]
    fn narrow(lower: f32, upper: f32) -> Self {
        Bf16s(rounded(lower) >> 16 | rounded(upper) & Self::UPPER)
    }
}

/// The bits of a number whose upper half is the nearest bfloat16, ties to even. NaNs are canonical.
///
/// Not by the instruction of AVX512_BF16, which takes subnormal numbers for zeros: bits may not
/// depend on the processor.
#[inline(always)]
fn rounded(element: f32) -> u32 {
    let bits = element.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

impl Lanes for Bf16s {
    type Bytes = [u8; 4];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: [u8; 4]) -> Self {
        Bf16s(u32::from_ne_bytes(bytes))
    }
    #[inline(always)]
    fn store(self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }
}

impl Half for Bf16s {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        let [lower, upper] = self.widen();
        Bf16s::narrow(f(lower).canonical(), f(upper).canonical())
    }
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let ([lower, upper], [other_lower, other_upper]) = (self.widen(), other.widen());
        Bf16s::narrow(f(lower, other_lower), f(upper, other_upper))
    }
}

/// A half-precision number that is only compared, by its bits: `INFINITY` are those of infinity.
#[derive(Clone, Copy)]
pub(super) struct Compared<const INFINITY: u16>(u16);

/// A binary16 number.
pub(super) type ComparedF16 = Compared<0x7c00>;

/// A bfloat16 number.
pub(super) type ComparedBf16 = Compared<0x7f80>;

impl<const INFINITY: u16> Compared<INFINITY> {
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
        let any = self.magnitude().max(other.magnitude()) > INFINITY;
        if any { Compared(Self::NAN) } else { chosen }
    }
}

impl<const INFINITY: u16> Lanes for Compared<INFINITY> {
    type Bytes = [u8; 2];
    const ELEMENT_BYTES: usize = 2;
    #[inline(always)]
    fn load(bytes: [u8; 2]) -> Self {
        Compared(u16::from_ne_bytes(bytes))
    }
    #[inline(always)]
    fn store(self) -> [u8; 2] {
        self.0.to_ne_bytes()
    }
}

impl<const INFINITY: u16> Ordered for Compared<INFINITY> {
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
