//! Kernels of f32 and f64, which also serve complex elements, a pair each. Knows no other dtype.

use super::Memory;
use crate::ReduceOp;

macro_rules! float {
    ($reduce:ident, $combine:ident, $map:ident, $type:ty, $bytes:literal) => {
        /// Reduces elements of this type; bitwise operators do not exist.
        pub(super) fn $reduce(op: ReduceOp, memory: Memory<'_>) {
            #[inline(always)]
            fn with(memory: Memory<'_>, f: impl Fn($type, $type) -> $type) {
                memory.combine::<$bytes>(|left, right| {
                    f(<$type>::from_ne_bytes(left), <$type>::from_ne_bytes(right)).to_ne_bytes()
                });
            }
            match op {
                ReduceOp::Product => with(memory, |a, b| $combine::product(a, b)),
                ReduceOp::Min => with(memory, |a, b| $combine::min(a, b)),
                ReduceOp::Max => with(memory, |a, b| $combine::max(a, b)),
                _ => with(memory, |a, b| $combine::sum(a, b)),
            }
        }

        /// Changes every element; NaN results become canonical.
        #[inline(always)]
        pub(super) fn $map(memory: &mut [u8], f: impl Fn($type) -> $type) {
            for element in memory.as_chunks_mut::<$bytes>().0 {
                *element = $combine::canonical(f(<$type>::from_ne_bytes(*element))).to_ne_bytes();
            }
        }

        /// The operators.
        pub(super) mod $combine {
            #[inline(always)]
            pub(in super::super) fn canonical(x: $type) -> $type {
                if x.is_nan() { <$type>::NAN } else { x }
            }

            #[inline(always)]
            pub(in super::super) fn sum(a: $type, b: $type) -> $type {
                canonical(a + b)
            }

            #[inline(always)]
            pub(in super::super) fn product(a: $type, b: $type) -> $type {
                canonical(a * b)
            }

            #[inline(always)]
            pub(in super::super) fn min(a: $type, b: $type) -> $type {
                // Equal operands have equal bits, or are zeros, which differ in the sign only.
                let equal = <$type>::from_bits(a.to_bits() | b.to_bits());
                let least = if a < b { a } else { b };
                nan_or(a, b, if a == b { equal } else { least })
            }

            #[inline(always)]
            pub(in super::super) fn max(a: $type, b: $type) -> $type {
                let equal = <$type>::from_bits(a.to_bits() & b.to_bits());
                let greatest = if a > b { a } else { b };
                nan_or(a, b, if a == b { equal } else { greatest })
            }

            #[inline(always)]
            fn nan_or(a: $type, b: $type, otherwise: $type) -> $type {
                if a.is_nan() | b.is_nan() { <$type>::NAN } else { otherwise }
            }
        }
    };
}

float!(reduce_f32, f32s, map_f32, f32, 4);
float!(reduce_f64, f64s, map_f64, f64, 8);
