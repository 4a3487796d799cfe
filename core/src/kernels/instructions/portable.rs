//! What any processor can do, without branches, so that it vectorises. Knows no operators.

#![allow(unsafe_code)]

use super::{Block, HalfLaneBytes, Instructions, LANES, for_each_lane, lanes};

/// Instructions that every processor of the architecture has.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Instructions for Portable {
    #[inline(always)]
    fn widen_f16s(halves: HalfLaneBytes) -> [f32; LANES] {
        let halves = halves.as_chunks().0;
        lanes(
            #[inline(always)]
            |lane| widen_f16(u16::from_ne_bytes(halves[lane])),
        )
    }

    #[inline(always)]
    fn narrow_f16s(elements: [f32; LANES]) -> HalfLaneBytes {
        let mut halves = HalfLaneBytes::default();
        let parts = halves.as_chunks_mut().0;
        for_each_lane(
            #[inline(always)]
            |lane| parts[lane] = f16_bits(elements[lane]).to_ne_bytes(),
        );
        halves
    }

    #[inline(always)]
    unsafe fn stream(into: *mut Block, block: &Block) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by the rule of the trait; every x86-64 processor has SSE2.
        unsafe {
            super::streaming::stream_sse2(into, block);
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: by the rule of the trait.
        unsafe {
            into.write(*block);
        }
    }

    #[inline(always)]
    fn finish_streaming() {
        #[cfg(target_arch = "x86_64")]
        super::streaming::fence();
    }
}

/// The bits of a number whose upper half is the nearest bfloat16, ties to even. NaNs become
/// canonical.
#[inline(always)]
pub(in super::super) fn bf16_bits(element: f32) -> u32 {
    let element = if element.is_nan() { f32::NAN } else { element };
    let bits = element.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

/// How far the exponent of an `f32` is above that of a binary16 number with the same bits of it.
const BIAS: u32 = (127 - 15) << 23;

#[inline(always)]
fn widen_f16(half: u16) -> f32 {
    const EXPONENT: u32 = 0x7c00 << 13;
    // One with the exponent of the least normal number; what a subnormal one has on top of it
    // remains when it is subtracted.
    const MIN_NORMAL_EXPONENT: u32 = (127 - 14) << 23;
    let sign = u32::from(half & 0x8000) << 16;
    let bits = u32::from(half & 0x7fff) << 13;
    let normal = bits + BIAS;
    let infinite = bits | 0x7f80_0000;
    let subnormal = (f32::from_bits(bits + MIN_NORMAL_EXPONENT)
        - f32::from_bits(MIN_NORMAL_EXPONENT))
    .to_bits();
    let exponent = bits & EXPONENT;
    let finite = if exponent == 0 { subnormal } else { normal };
    f32::from_bits(sign | if exponent == EXPONENT { infinite } else { finite })
}

#[inline(always)]
fn f16_bits(element: f32) -> u16 {
    // From here on 65520, half way to the number after the largest, all are infinite.
    const INFINITE: u32 = 0x477f_f000;
    const MIN_NORMAL: u32 = (127 - 14) << 23;
    // The last bit of a number with this exponent is worth that of a subnormal binary16 number:
    // adding it rounds, and leaves the result in the lowest bits.
    const ROUNDER: u32 = (127 - 15 + 23 - 10 + 1) << 23;
    let sign = (element.to_bits() >> 16) as u16 & 0x8000;
    let bits = element.to_bits() & 0x7fff_ffff;
    let normal = bits.wrapping_sub(BIAS).wrapping_add(0xfff + (bits >> 13 & 1)) >> 13;
    let sum = f32::from_bits(bits) + f32::from_bits(ROUNDER);
    let subnormal = sum.to_bits().wrapping_sub(ROUNDER);
    let finite = if bits < MIN_NORMAL { subnormal } else { normal };
    let unbounded = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    sign | (if bits >= INFINITE { unbounded } else { finite }) as u16
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_number_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (widen_f16(bits), f16::from_bits(bits).to_f32());
            if expected.is_nan() {
                assert!(found.is_nan(), "{bits:#x}: {found}");
            } else {
                assert_eq!(found.to_bits(), expected.to_bits(), "{bits:#x}");
            }
        }
    }

    #[test]
    fn binary16_agrees_with_the_half_crate() {
        // Every sign, exponent and upper part of the fraction, below, at and above ties.
        for upper in 0..1 << 20 {
            for lower in [0, 1, 0x7ff, 0x800, 0x801, 0xfff] {
                let element = f32::from_bits(upper << 12 | lower);
                let (found, expected) = (f16_bits(element), f16::from_f32(element));
                if expected.is_nan() {
                    assert_eq!(found & 0x7fff, 0x7e00, "{element:e}");
                } else {
                    assert_eq!(found, expected.to_bits(), "{element:e}");
                }
            }
        }
    }

    #[test]
    fn bfloat16_agrees_with_the_half_crate() {
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let element = f32::from_bits(u32::from(upper) << 16 | lower);
                let expected = bf16::from_f32(element);
                let expected = if expected.is_nan() { bf16::NAN } else { expected };
                assert_eq!(bf16_bits(element) >> 16, u32::from(expected.to_bits()), "{element:e}");
            }
        }
    }
}
