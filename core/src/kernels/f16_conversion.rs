//! Conversion of binary16 numbers, with and without instructions for it. Knows no operators.

#![allow(unsafe_code)]

use super::halves::{Convert, LANES, LANES_BYTES};

/// Conversion by arithmetic that any processor has, without branches, so that it vectorises.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Convert for Portable {
    #[inline(always)]
    fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        for (element, bytes) in wide.iter_mut().zip(bytes.as_chunks().0) {
            *element = widen(u16::from_ne_bytes(*bytes));
        }
        wide
    }

    #[inline(always)]
    fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES] {
        let mut bytes = [0; LANES_BYTES];
        for (bytes, element) in bytes.as_chunks_mut().0.iter_mut().zip(elements) {
            *bytes = narrow(element).to_ne_bytes();
        }
        bytes
    }
}

/// How far the exponent of an `f32` is above that of a binary16 number with the same bits of it.
const BIAS: u32 = (127 - 15) << 23;

#[inline(always)]
fn widen(half: u16) -> f32 {
    const EXPONENT: u32 = 0x7c00 << 13;
    // One with the exponent of the least normal number; what a subnormal one has on top of it
    // remains when it is subtracted.
    const LEAST: u32 = (127 - 14) << 23;
    let sign = u32::from(half & 0x8000) << 16;
    let bits = u32::from(half & 0x7fff) << 13;
    let normal = bits + BIAS;
    let infinite = bits | 0x7f80_0000;
    let subnormal = (f32::from_bits(bits + LEAST) - f32::from_bits(LEAST)).to_bits();
    let exponent = bits & EXPONENT;
    let finite = if exponent == 0 { subnormal } else { normal };
    f32::from_bits(sign | if exponent == EXPONENT { infinite } else { finite })
}

#[inline(always)]
fn narrow(element: f32) -> u16 {
    // From here on 65520, half way to the number after the largest, all are infinite.
    const INFINITE: u32 = 0x477f_f000;
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    // The last bit of a number with this exponent is worth that of a subnormal binary16 number:
    // adding it rounds, and leaves the result in the lowest bits.
    const ROUNDER: u32 = (127 - 15 + 23 - 10 + 1) << 23;
    let sign = (element.to_bits() >> 16) as u16 & 0x8000;
    let bits = element.to_bits() & 0x7fff_ffff;
    let normal = bits.wrapping_sub(BIAS).wrapping_add(0xfff + (bits >> 13 & 1)) >> 13;
    let sum = f32::from_bits(bits) + f32::from_bits(ROUNDER);
    let subnormal = sum.to_bits().wrapping_sub(ROUNDER);
    let finite = if bits < LEAST_NORMAL { subnormal } else { normal };
    let unbounded = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    sign | (if bits >= INFINITE { unbounded } else { finite }) as u16
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps,
        _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps,
        _mm256_storeu_si256, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_loadu_ps, _mm512_storeu_ps,
    };

    use super::{Convert, LANES, LANES_BYTES};

    /// Conversion by F16C, eight at a time. Only to be named where the processor has AVX2 and F16C.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2;

    impl Convert for Avx2 {
        #[inline(always)]
        fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES] {
            let mut wide = [0.0; LANES];
            for (wide, bytes) in wide.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks().0) {
                let bytes: &[u8; 16] = bytes;
                // SAFETY: `bytes` are eight binary16 numbers and `wide` is eight `f32`; neither
                // load nor store needs alignment. The processor has AVX and F16C, by the rule of
                // `Avx2`.
                unsafe {
                    let narrow = _mm_loadu_si128(bytes.as_ptr().cast());
                    _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(narrow));
                }
            }
            wide
        }

        #[inline(always)]
        fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES] {
            let mut all = [0; LANES_BYTES];
            for (bytes, wide) in all.as_chunks_mut().0.iter_mut().zip(elements.as_chunks::<8>().0) {
                let bytes: &mut [u8; 16] = bytes;
                // SAFETY: as in `widen`, the other way round.
                unsafe {
                    let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(
                        wide.as_ptr(),
                    ));
                    _mm_storeu_si128(bytes.as_mut_ptr().cast(), narrow);
                }
            }
            all
        }
    }

    /// Conversion by AVX-512. Only to be named where the processor has AVX512F.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512;

    impl Convert for Avx512 {
        #[inline(always)]
        fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES] {
            let mut wide = [0.0; LANES];
            // SAFETY: `bytes` are sixteen binary16 numbers and `wide` is sixteen `f32`; neither
            // load nor store needs alignment. The processor has AVX512F, by the rule of `Avx512`.
            unsafe {
                let narrow = _mm256_loadu_si256(bytes.as_ptr().cast());
                _mm512_storeu_ps(wide.as_mut_ptr(), _mm512_cvtph_ps(narrow));
            }
            wide
        }

        #[inline(always)]
        fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES] {
            let mut bytes = [0; LANES_BYTES];
            // SAFETY: as in `widen`, the other way round.
            unsafe {
                let narrow = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(
                    elements.as_ptr(),
                ));
                _mm256_storeu_si256(bytes.as_mut_ptr().cast(), narrow);
            }
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_number_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (widen(bits), f16::from_bits(bits).to_f32());
            if expected.is_nan() {
                assert!(found.is_nan(), "{bits:#x}: {found}");
            } else {
                assert_eq!(found.to_bits(), expected.to_bits(), "{bits:#x}");
            }
        }
    }

    #[test]
    fn narrowing_agrees_with_the_half_crate() {
        // Every sign, exponent and upper part of the fraction, below, at and above ties.
        for upper in 0..1 << 20 {
            for lower in [0, 1, 0x7ff, 0x800, 0x801, 0xfff] {
                let element = f32::from_bits(upper << 12 | lower);
                let (found, expected) = (narrow(element), f16::from_f32(element));
                if expected.is_nan() {
                    assert_eq!(found & 0x7fff, 0x7e00, "{element:e}");
                } else {
                    assert_eq!(found, expected.to_bits(), "{element:e}");
                }
            }
        }
    }
}
