//! Kernels of f16 and bf16: a batch is widened to f32, computed and rounded to even. The `half` crate
//! uses the processor's conversions where it finds them at run time.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Memory;
use super::float::f32s;
use crate::ReduceOp;

/// Elements that are converted at a time; they stay in the first-level cache.
const BATCH: usize = 512;

/// A 16-bit floating-point type.
pub(super) trait Half: Copy {
    const ZERO: Self;
    fn from_bytes(bytes: [u8; 2]) -> Self;
    fn to_bytes(self) -> [u8; 2];
    fn widen(from: &[Self], into: &mut [f32]);
    fn narrow(from: &[f32], into: &mut [Self]);
}

macro_rules! half {
    ($type:ty) => {
        impl Half for $type {
            const ZERO: Self = <$type>::ZERO;

            #[inline(always)]
            fn from_bytes(bytes: [u8; 2]) -> Self {
                Self::from_ne_bytes(bytes)
            }

            #[inline(always)]
            fn to_bytes(self) -> [u8; 2] {
                self.to_ne_bytes()
            }

            fn widen(from: &[Self], into: &mut [f32]) {
                from.convert_to_f32_slice(into);
            }

            fn narrow(from: &[f32], into: &mut [Self]) {
                into.convert_from_f32_slice(from);
            }
        }
    };
}

half!(f16);
half!(bf16);

/// Reduces elements of type `T`; bitwise operators do not exist.
pub(super) fn reduce<T: Half>(op: ReduceOp, memory: Memory<'_>) {
    match op {
        ReduceOp::Product => combine::<T>(memory, f32s::product),
        ReduceOp::Min => combine::<T>(memory, f32s::min),
        ReduceOp::Max => combine::<T>(memory, f32s::max),
        _ => combine::<T>(memory, f32s::sum),
    }
}

/// Changes every element; NaN results become canonical.
pub(super) fn map<T: Half>(memory: &mut [u8], f: impl Fn(f32) -> f32) {
    let mut batch = Batch::<T>::new();
    for bytes in memory.chunks_mut(2 * BATCH) {
        for value in batch.read(bytes) {
            *value = f32s::canonical(f(*value));
        }
        batch.write(bytes);
    }
}

#[inline(always)]
fn combine<T: Half>(memory: Memory<'_>, f: impl Fn(f32, f32) -> f32) {
    let (mut result, mut other) = (Batch::<T>::new(), Batch::<T>::new());
    let mut run = |result: &mut Batch<T>, left: &[u8], right: &[u8]| {
        for (left, right) in result.read(left).iter_mut().zip(other.read(right)) {
            *left = f(*left, *right);
        }
    };
    match memory {
        Memory::InPlace { into, from } => {
            for (into, from) in into.chunks_mut(2 * BATCH).zip(from.chunks(2 * BATCH)) {
                run(&mut result, into, from);
                result.write(into);
            }
        }
        Memory::Apart { into, left, right } => {
            let operands = left.chunks(2 * BATCH).zip(right.chunks(2 * BATCH));
            for (into, (left, right)) in into.chunks_mut(2 * BATCH).zip(operands) {
                run(&mut result, left, right);
                result.write(into);
            }
        }
    }
}

/// A few elements, as they are in memory and widened.
struct Batch<T> {
    narrow: [T; BATCH],
    wide: [f32; BATCH],
}

impl<T: Half> Batch<T> {
    fn new() -> Batch<T> {
        Batch { narrow: [T::ZERO; BATCH], wide: [0.0; BATCH] }
    }

    /// Widens at most `BATCH` elements.
    fn read(&mut self, bytes: &[u8]) -> &mut [f32] {
        let elements = bytes.as_chunks().0;
        let count = elements.len();
        for (narrow, bytes) in self.narrow.iter_mut().zip(elements) {
            *narrow = T::from_bytes(*bytes);
        }
        T::widen(&self.narrow[..count], &mut self.wide[..count]);
        &mut self.wide[..count]
    }

    /// Rounds what was widened and changed.
    fn write(&mut self, bytes: &mut [u8]) {
        let elements = bytes.as_chunks_mut().0;
        let count = elements.len();
        T::narrow(&self.wide[..count], &mut self.narrow[..count]);
        for (bytes, narrow) in elements.iter_mut().zip(&self.narrow) {
            *bytes = narrow.to_bytes();
        }
    }
}
