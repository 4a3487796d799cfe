//! The kernels once more for x86-64 processors that have AVX2 and F16C, found at run time.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_storeu_ps,
};

use super::half::{BYTES, Half, Halves, LANES};
use super::memory::{Memory, map};
use super::{apply_with, operators::Change};
use crate::{DType, ReduceOp};

/// Whether the processor has what these kernels use. The answer is kept, so that asking is cheap.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// Reduces with the wider instructions; [`available`] must have said so.
pub(super) fn apply(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    assert!(available());
    // SAFETY: the processor has the instructions, as just asserted.
    unsafe { apply_avx2(op, dtype, memory) }
}

#[target_feature(enable = "avx2,f16c")]
fn apply_avx2(op: ReduceOp, dtype: DType, memory: Memory<'_>) {
    apply_with::<Converted>(op, dtype, memory);
}

/// Changes f16 elements; [`available`] must have said so.
pub(super) fn change_f16(memory: &mut [u8], change: impl Change<f32>) {
    assert!(available());
    // SAFETY: the processor has the instructions, as just asserted.
    unsafe { change_f16_avx2(memory, change) }
}

#[target_feature(enable = "avx2,f16c")]
fn change_f16_avx2(memory: &mut [u8], change: impl Change<f32>) {
    map(memory, &Halves::<Converted, _>::new(change));
}

/// An f16 that the processor converts. Only functions with F16C use it.
struct Converted;

impl Half for Converted {
    #[inline(always)]
    fn widen(bytes: [u8; BYTES]) -> [f32; LANES] {
        let mut values = [0.0; LANES];
        // SAFETY: `bytes` are eight f16 and `values` eight f32; load and store need no alignment,
        // and the processor has F16C, as the callers have asserted.
        unsafe {
            let narrow = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm256_storeu_ps(values.as_mut_ptr(), _mm256_cvtph_ps(narrow));
        }
        values
    }

    #[inline(always)]
    fn narrow(values: [f32; LANES]) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        // SAFETY: as in `widen`, the other way round.
        unsafe {
            let wide = _mm256_loadu_ps(values.as_ptr());
            let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), narrow);
        }
        bytes
    }
}
