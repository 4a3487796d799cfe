//! Stores that go past the caches. Knows no operators.
//!
//! An ordinary store reads the line that it writes to, and takes the place of something else in the
//! cache. For a result that is larger than the cache and is not looked at soon, both are in vain.
//! Only whole lines are worth storing so.

#![allow(unsafe_code)]

/// Bytes of a line of the cache.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes that are stored at a time, a few lines.
pub(super) const BLOCK_BYTES: usize = 4 * LINE_BYTES;

/// One block, as it begins a line of the cache or a vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [u8; BLOCK_BYTES]);

/// Instructions that store past the caches.
pub(super) trait Stream {
    /// Stores a block at `into`, which begins a line.
    ///
    /// # Safety
    /// The processor has the instructions, `into` may be written to and is aligned.
    unsafe fn store(into: *mut Block, block: &Block);
}

/// Puts what was streamed before whatever is stored next: others may be told then that it is there.
#[inline(always)]
pub(super) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Ordinary stores, where there are no better ones.
#[cfg(not(target_arch = "x86_64"))]
pub(super) struct Ordinary;

#[cfg(not(target_arch = "x86_64"))]
impl Stream for Ordinary {
    #[inline(always)]
    unsafe fn store(into: *mut Block, block: &Block) {
        // SAFETY: by the rule of the trait.
        unsafe { into.write(*block) };
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Avx2, Avx512, Sse2};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_load_si128, _mm_stream_si128, _mm256_load_si256,
        _mm256_stream_si256, _mm512_load_si512, _mm512_stream_si512,
    };

    use super::{BLOCK_BYTES, Block, Stream};

    macro_rules! streams {
        ($(#[doc = $doc:literal] $name:ident: $vector:ty, $load:ident, $stream:ident;)*) => {$(
            #[doc = $doc]
            pub(in super::super) struct $name;

            impl Stream for $name {
                #[inline(always)]
                unsafe fn store(into: *mut Block, block: &Block) {
                    let into = into.cast::<$vector>();
                    let from = (&raw const *block).cast::<$vector>();
                    for at in 0..BLOCK_BYTES / size_of::<$vector>() {
                        // SAFETY: `at` is inside of both blocks, which are aligned for every
                        // vector; the rest is the rule of the trait.
                        unsafe { $stream(into.add(at), $load(from.add(at))) };
                    }
                }
            }
        )*};
    }

    streams! {
        /// Sixteen bytes at a time.
        Sse2: __m128i, _mm_load_si128, _mm_stream_si128;
        /// Thirty-two bytes at a time.
        Avx2: __m256i, _mm256_load_si256, _mm256_stream_si256;
        /// A line at a time.
        Avx512: __m512i, _mm512_load_si512, _mm512_stream_si512;
    }
}
