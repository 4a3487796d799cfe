//! Stores of x86-64 that go past the cache. Knows nothing of what is stored.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{BLOCK_BYTES, Block};

/// Stores past the cache, by vectors of one type.
macro_rules! streaming {
    ($name:ident: $vector:ty, $load:ident, $stream:ident) => {
        /// # Safety
        /// The processor has the instructions, `into` may be written to and begins a line.
        #[inline(always)]
        pub(super) unsafe fn $name(into: *mut Block, block: &Block) {
            let into = into.cast::<$vector>();
            let from = (&raw const *block).cast::<$vector>();
            for at in 0..BLOCK_BYTES / size_of::<$vector>() {
                // SAFETY: `at` is inside of both blocks, which are aligned for every vector.
                unsafe { $stream(into.add(at), $load(from.add(at))) };
            }
        }
    };
}

streaming!(stream_sse2: __m128i, _mm_load_si128, _mm_stream_si128);
streaming!(stream_avx2: __m256i, _mm256_load_si256, _mm256_stream_si256);
streaming!(stream_avx512: __m512i, _mm512_load_si512, _mm512_stream_si512);

/// Makes what was streamed visible before anything that is written after it.
#[inline(always)]
pub(super) fn fence() {
    // SAFETY: every x86-64 processor has SSE.
    unsafe { _mm_sfence() };
}
