//! Loops over memory, compiled for what the processor has. Knows nothing of operators.
//!
//! Each loop is one plain function, compiled twice: for the baseline, and for AVX2 where the
//! processor has it.

#![allow(unsafe_code)]

use super::number::Number;

/// Replaces each element by `f` of it.
pub(super) fn unary<T: Number<Bytes = [u8; N]>, const N: usize>(
    memory: &mut [u8],
    f: impl Fn(T) -> T + Copy,
) {
    widest(
        #[inline(always)]
        || {
            for element in memory.as_chunks_mut::<N>().0 {
                *element = f(T::load(*element)).store();
            }
        },
    );
}

/// Replaces each element of `into` by `f` of it and its counterpart in `from`.
pub(super) fn binary<T: Number<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    widest(
        #[inline(always)]
        || {
            let (into, from) = (into.as_chunks_mut::<N>().0, from.as_chunks::<N>().0);
            for (into, from) in into.iter_mut().zip(from) {
                *into = f(T::load(*into), T::load(*from)).store();
            }
        },
    );
}

/// Sets each element of `into` to `f` of its counterparts in `left` and `right`.
pub(super) fn ternary<T: Number<Bytes = [u8; N]>, const N: usize>(
    into: &mut [u8],
    left: &[u8],
    right: &[u8],
    f: impl Fn(T, T) -> T + Copy,
) {
    widest(
        #[inline(always)]
        || {
            let operands = left.as_chunks::<N>().0.iter().zip(right.as_chunks::<N>().0);
            for (into, (left, right)) in into.as_chunks_mut::<N>().0.iter_mut().zip(operands) {
                *into = f(T::load(*left), T::load(*right)).store();
            }
        },
    );
}

/// Runs `plain`, compiled for AVX2 (and F16C, which every such processor has) where that is there.
#[inline(always)]
pub(super) fn widest(plain: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,f16c")]
        fn wide(plain: impl FnOnce()) {
            plain();
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has the features that the function is compiled for.
            return unsafe { wide(plain) };
        }
    }
    plain();
}
