//! Loops over memory, compiled for what the processor has. Knows nothing of operators.
//!
//! Each loop is one plain function that the compiler vectorises, compiled several times: for the
//! baseline, and for the wider vectors that the processor turns out to have.

#![allow(unsafe_code)]

use super::number::Lanes;
use super::processor::{Vectors, vectors};
use super::streaming::{self, BLOCK_BYTES, Block, LINE_BYTES, Stream};

/// Replaces each element by `f` of it.
pub(super) fn unary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    memory: &mut [u8],
    f: impl Fn(T) -> T + Copy,
) {
    #[inline(always)]
    fn all<T: Lanes<Bytes = [u8; N]>, const N: usize>(memory: &mut [u8], f: impl Fn(T) -> T) {
        let (whole, rest) = memory.as_chunks_mut::<N>();
        for lanes in whole {
            *lanes = f(T::load(*lanes)).store();
        }
        last::<T, N>(rest, |rest| f(T::load(padded(rest))));
    }
    widest(
        // What `f` holds is moved into registers: behind a reference it could be a part of the
        // memory that is written, as far as the compiler knows.
        #[inline(always)]
        move || {
            let (head, body) = memory.split_at_mut(head::<T>(memory));
            all::<T, N>(head, f);
            all::<T, N>(body, f);
        },
    );
}

/// Replaces each element of `into` by `f` of it and its counterpart in `from`.
pub(super) fn binary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    #[inline(always)]
    fn all<T: Lanes<Bytes = [u8; N]>, const N: usize>(
        into: &mut [u8],
        from: &[u8],
        f: impl Fn(T, T) -> T,
    ) {
        let ((into, into_rest), (from, from_rest)) =
            (into.as_chunks_mut::<N>(), from.as_chunks::<N>());
        for (into, from) in into.iter_mut().zip(from) {
            *into = f(T::load(*into), T::load(*from)).store();
        }
        last::<T, N>(into_rest, |into| f(T::load(padded(into)), T::load(padded(from_rest))));
    }
    let shortest = into.len().min(from.len());
    let (into, from) = (&mut into[..shortest], &from[..shortest]);
    widest(
        #[inline(always)]
        move || {
            let (into_head, into) = into.split_at_mut(head::<T>(into));
            let (from_head, from) = from.split_at(into_head.len());
            all::<T, N>(into_head, from_head, f);
            all::<T, N>(into, from, f);
        },
    );
}

/// Sets each element of `into` to `f` of its counterparts in `left` and `right`.
pub(super) fn ternary<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    #[inline(always)]
    fn all<T: Lanes<Bytes = [u8; N]>, const N: usize>(
        into: &mut [u8],
        left: &[u8],
        right: &[u8],
        f: impl Fn(T, T) -> T,
    ) {
        let (into, into_rest) = into.as_chunks_mut::<N>();
        let ((left, left_rest), (right, right_rest)) =
            (left.as_chunks::<N>(), right.as_chunks::<N>());
        for (into, (left, right)) in into.iter_mut().zip(left.iter().zip(right)) {
            *into = f(T::load(*left), T::load(*right)).store();
        }
        last::<T, N>(into_rest, |_| f(T::load(padded(left_rest)), T::load(padded(right_rest))));
    }
    let shortest = into.len().min(left.len()).min(right.len());
    let (into, left, right) = (&mut into[..shortest], &left[..shortest], &right[..shortest]);
    widest(
        #[inline(always)]
        move || {
            let (into_head, into) = into.split_at_mut(head::<T>(into));
            let (left_head, left) = left.split_at(into_head.len());
            let (right_head, right) = right.split_at(into_head.len());
            all::<T, N>(into_head, left_head, right_head, f);
            all::<T, N>(into, left, right, f);
        },
    );
}

/// As [`ternary`], past the caches.
pub(super) fn ternary_streaming<T: Lanes<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    let bytes = into.len().min(left.len()).min(right.len());
    let before = into.as_ptr().align_offset(LINE_BYTES).min(bytes);
    let head = if before.is_multiple_of(T::ELEMENT_BYTES) { before } else { bytes };
    let end = head + (bytes - head) / BLOCK_BYTES * BLOCK_BYTES;
    ternary(&mut into[..head], &left[..head], &right[..head], f);
    stream_blocks(
        &mut into[head..end],
        #[inline(always)]
        |at| {
            let (left, right) = (&left[head + at..][..BLOCK_BYTES], &right[head + at..]);
            let operands = left.as_chunks::<N>().0.iter().zip(right.as_chunks::<N>().0);
            let mut block = Block([0; BLOCK_BYTES]);
            for (into, (left, right)) in block.0.as_chunks_mut::<N>().0.iter_mut().zip(operands) {
                *into = f(T::load(*left), T::load(*right)).store();
            }
            block
        },
    );
    ternary(&mut into[end..bytes], &left[end..bytes], &right[end..bytes], f);
}

/// Copies as many bytes as both have, past the caches.
pub(super) fn copy_streaming(into: &mut [u8], from: &[u8]) {
    let bytes = into.len().min(from.len());
    let head = into.as_ptr().align_offset(LINE_BYTES).min(bytes);
    let end = head + (bytes - head) / BLOCK_BYTES * BLOCK_BYTES;
    into[..head].copy_from_slice(&from[..head]);
    stream_blocks(
        &mut into[head..end],
        #[inline(always)]
        |at| {
            let mut block = Block([0; BLOCK_BYTES]);
            block.0.copy_from_slice(&from[head + at..][..BLOCK_BYTES]);
            block
        },
    );
    into[end..bytes].copy_from_slice(&from[end..bytes]);
}

/// Fills whole blocks, of which the first begins a line, with what `block` says for an offset.
#[inline(always)]
fn stream_blocks(into: &mut [u8], block: impl Fn(usize) -> Block) {
    #[inline(always)]
    fn all<S: Stream>(into: &mut [u8], block: impl Fn(usize) -> Block) {
        for (index, into) in into.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            // SAFETY: `into` is a block, aligned by the rule of `stream_blocks`; that the processor
            // has the instructions of `S` is seen below.
            unsafe { S::store(into.as_mut_ptr().cast(), &block(index * BLOCK_BYTES)) };
        }
        streaming::finish();
    }
    #[cfg(not(target_arch = "x86_64"))]
    all::<streaming::Ordinary>(into, block);
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,f16c")]
        fn avx2(into: &mut [u8], block: impl Fn(usize) -> Block) {
            all::<streaming::Avx2>(into, block);
        }
        #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512(into: &mut [u8], block: impl Fn(usize) -> Block) {
            all::<streaming::Avx512>(into, block);
        }
        match vectors() {
            // SAFETY: the processor has the features that the function is compiled for.
            Vectors::Avx512 => unsafe { avx512(into, block) },
            // SAFETY: as above.
            Vectors::Avx2 => unsafe { avx2(into, block) },
            Vectors::Baseline => all::<streaming::Sse2>(into, block),
        }
    }
}

/// How many bytes stand before the first line of the cache: stores that cross lines are dear. None
/// where no element begins a line, or where there is not much after them.
#[inline(always)]
fn head<T: Lanes>(into: &[u8]) -> usize {
    let before = into.as_ptr().align_offset(LINE_BYTES);
    let worth = into.len() >= 16 * LINE_BYTES && before.is_multiple_of(T::ELEMENT_BYTES);
    if worth { before } else { 0 }
}

/// Replaces the last elements, fewer than are combined at a time, by the first ones of `f` of them.
#[inline(always)]
fn last<T: Lanes<Bytes = [u8; N]>, const N: usize>(into: &mut [u8], f: impl FnOnce(&[u8]) -> T) {
    let bytes = into.len() / T::ELEMENT_BYTES * T::ELEMENT_BYTES;
    if bytes > 0 {
        let elements = f(into).store();
        into[..bytes].copy_from_slice(&elements[..bytes]);
    }
}

/// The last bytes, followed by zeros.
#[inline(always)]
fn padded<const N: usize>(rest: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    filled[..rest.len()].copy_from_slice(rest);
    filled
}

/// Runs `plain`, compiled for the widest vectors that there are.
#[inline(always)]
fn widest(plain: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,f16c")]
        fn avx2(plain: impl FnOnce()) {
            plain();
        }
        #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512(plain: impl FnOnce()) {
            plain();
        }
        match vectors() {
            // SAFETY: the processor has the features that the function is compiled for.
            Vectors::Avx512 => return unsafe { avx512(plain) },
            // SAFETY: as above.
            Vectors::Avx2 => return unsafe { avx2(plain) },
            Vectors::Baseline => {}
        }
    }
    plain();
}
