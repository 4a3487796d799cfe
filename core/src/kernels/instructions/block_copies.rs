//! Copies of blocks by vectors of x86-64, through the caches. Knows nothing of what is copied.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::BLOCK_BYTES;

/// Copies by vectors of one type: a whole block is read before any of it is written, so that no
/// compiler takes a loop of these for a call of `memcpy`.
macro_rules! copying {
    ($name:ident: $vector:ty, $load:ident, $store:ident) => {
        /// # Safety
        /// The processor has the instructions.
        #[inline(always)]
        pub(super) unsafe fn $name(into: &mut [u8; BLOCK_BYTES], from: &[u8; BLOCK_BYTES]) {
            const VECTORS: usize = BLOCK_BYTES / size_of::<$vector>();
            // SAFETY: each vector is inside of its block; neither load nor store needs alignment.
            unsafe {
                let load = |at: usize| $load(from.as_ptr().cast::<$vector>().add(at));
                let block: [$vector; VECTORS] = std::array::from_fn(
                    #[inline(always)]
                    |at| load(at),
                );
                for (at, vector) in block.into_iter().enumerate() {
                    $store(into.as_mut_ptr().cast::<$vector>().add(at), vector);
                }
            }
        }
    };
}

copying!(copy_avx2: __m256i, _mm256_loadu_si256, _mm256_storeu_si256);
copying!(copy_avx512: __m512i, _mm512_loadu_si512, _mm512_storeu_si512);
