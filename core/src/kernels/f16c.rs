//! Conversion of binary16 numbers by x86-64 processors that have F16C. Knows no operators.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_storeu_ps,
};

use super::half_floats::{Convert, LANES, LANES_BYTES};

/// Conversion by the processor. Only to be named where [`available`] has said yes.
pub(super) struct F16c;

/// Whether the processor converts.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

impl Convert for F16c {
    #[inline(always)]
    fn widen(bytes: [u8; LANES_BYTES]) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        // SAFETY: `bytes` are eight binary16 numbers and `wide` is eight `f32`; neither load nor
        // store needs alignment. The processor has AVX and F16C, by the rule of `F16c`.
        unsafe {
            let narrow = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(narrow));
        }
        wide
    }

    #[inline(always)]
    fn narrow(elements: [f32; LANES]) -> [u8; LANES_BYTES] {
        let mut bytes = [0; LANES_BYTES];
        // SAFETY: as in `widen`, the other way round.
        unsafe {
            let wide = _mm256_loadu_ps(elements.as_ptr());
            let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), narrow);
        }
        bytes
    }
}
