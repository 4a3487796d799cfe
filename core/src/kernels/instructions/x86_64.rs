//! What x86-64 processors have. Knows no operators.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::is_x86_feature_detected as has;

use super::block_copies::{copy_avx2, copy_avx512};
use super::portable::Portable;
use super::streaming::{fence, stream_avx2, stream_avx512};
use super::{BLOCK_BYTES, Block, HalfLaneBytes, Instructions, LANES, LINE_BYTES, Loop, Set};

/// The best set that the processor has.
#[inline(always)]
pub(super) fn detected() -> Set {
    if !has!("avx2") || !has!("f16c") {
        return Set::Portable;
    }
    if !has!("avx512f") || !has!("avx512bw") || !has!("avx512dq") || !has!("avx512vl") {
        return Set::Avx2;
    }
    if has!("avx512bf16") { Set::Avx512Bf16 } else { Set::Avx512 }
}

/// What the processor's counter of time says, to compare ways that do the same.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn run_avx2(body: impl Loop) {
    body.run::<Avx2>();
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn run_avx512(body: impl Loop) {
    body.run::<Avx512>();
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) fn run_avx512_bf16(body: impl Loop) {
    body.run::<Avx512Bf16>();
}

/// See [`Set::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// See [`Set::Avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// See [`Set::Avx512Bf16`].
#[derive(Clone, Copy)]
pub(super) struct Avx512Bf16;

#[inline(always)]
fn prefetch(memory: &[u8], is_read: bool) {
    for line in memory.chunks(LINE_BYTES) {
        let at = line.as_ptr().cast();
        // SAFETY: it changes nothing, and the memory is there. Processors with AVX2 have both.
        unsafe {
            match is_read {
                true => _mm_prefetch::<_MM_HINT_T0>(at),
                false => _mm_prefetch::<_MM_HINT_ET0>(at),
            }
        }
    }
}

impl Instructions for Avx2 {
    #[inline(always)]
    fn widen_f16s(halves: HalfLaneBytes) -> [f32; LANES] {
        let mut wide = [0.0; LANES];
        for (wide, halves) in wide.as_chunks_mut::<8>().0.iter_mut().zip(halves.as_chunks::<16>().0)
        {
            // SAFETY: eight numbers each; neither load nor store needs alignment.
            unsafe {
                let halves = _mm_loadu_si128(halves.as_ptr().cast());
                _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(halves));
            }
        }
        wide
    }

    #[inline(always)]
    fn narrow_f16s(elements: [f32; LANES]) -> HalfLaneBytes {
        let mut all = HalfLaneBytes::default();
        for (halves, wide) in
            all.as_chunks_mut::<16>().0.iter_mut().zip(elements.as_chunks::<8>().0)
        {
            // SAFETY: as in `widen_f16s`, the other way round.
            unsafe {
                let wide = _mm256_loadu_ps(wide.as_ptr());
                let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm_storeu_si128(halves.as_mut_ptr().cast(), narrow);
            }
        }
        all
    }

    #[inline(always)]
    fn prefetch(memory: &[u8], is_read: bool) {
        prefetch(memory, is_read);
    }

    #[inline(always)]
    fn copy_block(into: &mut [u8; BLOCK_BYTES], from: &[u8; BLOCK_BYTES]) {
        // SAFETY: by the rule of the trait.
        unsafe { copy_avx2(into, from) };
    }

    #[inline(always)]
    unsafe fn stream(into: *mut Block, block: &Block) {
        // SAFETY: by the rule of the trait.
        unsafe { stream_avx2(into, block) };
    }

    #[inline(always)]
    fn finish_streaming() {
        fence();
    }
}

/// What all sets with AVX-512 have in common.
macro_rules! avx512 {
    () => {
        #[inline(always)]
        fn widen_f16s(halves: HalfLaneBytes) -> [f32; LANES] {
            let mut wide = [0.0; LANES];
            // SAFETY: sixteen numbers each; neither load nor store needs alignment.
            unsafe {
                let halves = _mm256_loadu_si256(halves.as_ptr().cast());
                _mm512_storeu_ps(wide.as_mut_ptr(), _mm512_cvtph_ps(halves));
            }
            wide
        }

        #[inline(always)]
        fn narrow_f16s(elements: [f32; LANES]) -> HalfLaneBytes {
            let mut halves = HalfLaneBytes::default();
            // SAFETY: as in `widen_f16s`, the other way round.
            unsafe {
                let wide = _mm512_loadu_ps(elements.as_ptr());
                let narrow = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm256_storeu_si256(halves.as_mut_ptr().cast(), narrow);
            }
            halves
        }

        #[inline(always)]
        fn prefetch(memory: &[u8], is_read: bool) {
            prefetch(memory, is_read);
        }

        #[inline(always)]
        fn copy_block(into: &mut [u8; BLOCK_BYTES], from: &[u8; BLOCK_BYTES]) {
            // SAFETY: by the rule of the trait.
            unsafe { copy_avx512(into, from) };
        }

        #[inline(always)]
        unsafe fn stream(into: *mut Block, block: &Block) {
            // SAFETY: by the rule of the trait.
            unsafe { stream_avx512(into, block) };
        }

        #[inline(always)]
        fn finish_streaming() {
            fence();
        }
    };
}

impl Instructions for Avx512 {
    avx512!();
}

impl Instructions for Avx512Bf16 {
    avx512!();

    /// The conversion takes subnormal numbers for zeros, and keeps what a NaN carries: where there
    /// is one of these, the numbers are rounded without it.
    #[inline(always)]
    fn narrow_bf16s(lower: [f32; LANES], upper: [f32; LANES]) -> [u32; LANES] {
        const NAN_OR_SUBNORMAL: i32 = 0x01 | 0x20 | 0x80;
        const IN_TURN: [u16; 2 * LANES] = in_turn();
        let mut pairs = [0; LANES];
        // SAFETY: sixteen numbers, or pairs, each; neither load nor store needs alignment. Vectors
        // of one size may be taken for one another.
        unsafe {
            let (low, up) = (_mm512_loadu_ps(lower.as_ptr()), _mm512_loadu_ps(upper.as_ptr()));
            let special = _mm512_fpclass_ps_mask::<NAN_OR_SUBNORMAL>(low)
                | _mm512_fpclass_ps_mask::<NAN_OR_SUBNORMAL>(up);
            if special != 0 {
                return Portable::narrow_bf16s(lower, upper);
            }
            let narrow: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(up, low));
            let order = _mm512_loadu_si512(IN_TURN.as_ptr().cast());
            let narrow = _mm512_permutexvar_epi16(order, narrow);
            _mm512_storeu_si512(pairs.as_mut_ptr().cast(), narrow);
        }
        pairs
    }
}

/// Where the numbers of pairs stand if all lower ones stand before all upper ones.
const fn in_turn() -> [u16; 2 * LANES] {
    let mut order = [0; 2 * LANES];
    let mut at = 0;
    while at < LANES {
        order[2 * at] = at as u16;
        order[2 * at + 1] = (LANES + at) as u16;
        at += 1;
    }
    order
}
