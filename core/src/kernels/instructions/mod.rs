//! Sets of vector instructions, what each has for halves and for stores past the cache, and the
//! choice of one for a loop. Knows no operators.
//!
//! A loop is one plain function that the compiler vectorises, compiled for each set.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod block_copies;
mod portable;
#[cfg(target_arch = "x86_64")]
mod streaming;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use self::portable::Portable;
pub(super) use self::portable::bf16_bits;
#[cfg(target_arch = "x86_64")]
use self::x86_64::detected;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::ticks;

/// How many `f32` are converted at once. For a page, whose code is compiled for size, one: then the
/// compiler vectorises the loop over memory, while it would leave one over lanes as it is.
pub(super) const LANES: usize = if cfg!(target_family = "wasm") { 1 } else { 16 };

/// As many numbers of half the size, as bytes.
pub(super) type HalfLaneBytes = [u8; 2 * LANES];

/// Bytes of a line of the cache.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes that are stored past the cache at a time, a few lines.
pub(super) const BLOCK_BYTES: usize = 4 * LINE_BYTES;

/// One block, as it begins a line of the cache, and so every vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [u8; BLOCK_BYTES]);

/// A set of instructions. What all sets compute has the same bits.
///
/// Only to be named in a [`Loop`], which [`widest`] runs where the processor has the instructions.
pub(super) trait Instructions: Copy {
    /// Widens binary16 numbers exactly; a NaN stays one.
    fn widen_f16s(halves: HalfLaneBytes) -> [f32; LANES];

    /// Rounds to binary16 numbers, to nearest even. NaNs are canonical.
    fn narrow_f16s(elements: [f32; LANES]) -> HalfLaneBytes;

    /// Rounds to bfloat16 numbers, to nearest even: those of `lower` and of `upper` in turn, so
    /// that each pair is a `u32` of which they are the lower and the upper bits. NaNs become
    /// canonical.
    #[inline(always)]
    fn narrow_bf16s(lower: [f32; LANES], upper: [f32; LANES]) -> [u32; LANES] {
        lanes(
            #[inline(always)]
            |lane| {
                let lower = portable::bf16_bits(lower[lane]) >> 16;
                lower | portable::bf16_bits(upper[lane]) & 0xffff_0000
            },
        )
    }

    /// Has memory that is soon read, or else written, come into the cache.
    #[inline(always)]
    fn prefetch(_memory: &[u8], _is_read: bool) {}

    /// Copies a block through the caches, of any alignment.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn copy_block(into: &mut [u8; BLOCK_BYTES], from: &[u8; BLOCK_BYTES]) {
        *into = *from;
    }

    /// Stores a block past the cache.
    ///
    /// # Safety
    /// `into` may be written to and begins a line.
    unsafe fn stream(into: *mut Block, block: &Block);

    /// Puts what was streamed before whatever is stored next: others may be told then that it is
    /// there.
    fn finish_streaming();
}

/// What `f` says of each lane. A zip of arrays comes to calls where code is compiled for size.
#[inline(always)]
pub(super) fn lanes<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; LANES] {
    let mut all = [T::default(); LANES];
    for_each_lane(
        #[inline(always)]
        |lane| all[lane] = f(lane),
    );
    all
}

/// Calls `f` with each lane. A loop of one round stays a loop where code is compiled for size.
#[inline(always)]
pub(super) fn for_each_lane(mut f: impl FnMut(usize)) {
    if LANES == 1 {
        return f(0);
    }
    for lane in 0..LANES {
        f(lane);
    }
}

/// What is compiled for several sets of instructions.
pub(super) trait Loop {
    /// Whether sets that differ only in instructions for halves are worth compiling it for.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is one set"))]
    const OF_HALVES: bool;

    /// Runs it.
    fn run<V: Instructions>(self);
}

/// The sets, each with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Set {
    /// What every processor of the architecture has.
    Portable,
    /// AVX2, with F16C, which every such processor has.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512: F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Conversion to bfloat16.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

/// Runs a loop, compiled for the best instructions that the processor has.
#[inline(always)]
pub(super) fn widest<L: Loop>(body: L) {
    let there = detected();
    #[cfg(test)]
    let there = there.min(tests::limit());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `there` are sets that the processor has.
    unsafe {
        match there {
            Set::Avx512Bf16 if L::OF_HALVES => x86_64::run_avx512_bf16(body),
            Set::Avx512Bf16 | Set::Avx512 => x86_64::run_avx512(body),
            Set::Avx2 => x86_64::run_avx2(body),
            Set::Portable => body.run::<Portable>(),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    match there {
        Set::Portable => body.run::<Portable>(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Set {
    Set::Portable
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static LIMIT: Cell<Option<Set>> = const { Cell::new(None) };
    }

    pub(super) fn limit() -> Set {
        LIMIT.get().unwrap_or(detected())
    }

    /// Every set that the processor has.
    pub(crate) fn every_set() -> Vec<Set> {
        let sets = [
            Set::Portable,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Bf16,
        ];
        sets.into_iter().filter(|set| *set <= detected()).collect()
    }

    /// What `run` returns with no better instructions than `set`.
    pub(crate) fn limited_to<R>(set: Set, run: impl FnOnce() -> R) -> R {
        LIMIT.set(Some(set));
        let result = run();
        LIMIT.set(None);
        result
    }
}
