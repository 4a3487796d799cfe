//! What operators do to two values. Knows no memory.

use std::marker::PhantomData;

use super::memory::{Combine, Map};

/// A type of `N` bytes.
pub(super) trait Element<const N: usize>: Copy {
    fn from_bytes(bytes: [u8; N]) -> Self;
    fn to_bytes(self) -> [u8; N];
}

/// An operator on values of a type.
pub(super) trait Operator<T> {
    fn of(a: T, b: T) -> T;
}

/// A change of a value.
pub(super) trait Change<T> {
    fn of(&self, x: T) -> T;
}

/// Addition; integers wrap.
pub(super) struct Sum;
/// Multiplication; integers wrap.
pub(super) struct Product;
/// The least.
pub(super) struct Min;
/// The greatest.
pub(super) struct Max;
/// Bitwise and.
pub(super) struct Band;
/// Bitwise or.
pub(super) struct Bor;
/// Bitwise exclusive or.
pub(super) struct Bxor;

/// Multiplies by a factor.
pub(super) struct Times<T>(pub(super) T);
/// Divides by a divisor.
pub(super) struct Over<T>(pub(super) T);

/// Combines elements of type `T` by operator `O`.
pub(super) struct Elements<T, O>(PhantomData<(T, O)>);

/// Changes elements one by one.
pub(super) struct Each<C>(pub(super) C);

impl<const N: usize, T: Element<N>, O: Operator<T>> Combine<N> for Elements<T, O> {
    #[inline(always)]
    fn combine(left: [u8; N], right: [u8; N]) -> [u8; N] {
        O::of(T::from_bytes(left), T::from_bytes(right)).to_bytes()
    }
}

macro_rules! elements {
    ($($type:ty: $bytes:literal),*) => {$(
        impl Element<$bytes> for $type {
            #[inline(always)]
            fn from_bytes(bytes: [u8; $bytes]) -> $type {
                <$type>::from_ne_bytes(bytes)
            }

            #[inline(always)]
            fn to_bytes(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }
        }
    )*};
}

elements!(u8: 1, i8: 1, u16: 2, i16: 2, u32: 4, i32: 4, u64: 8, i64: 8, f32: 4, f64: 8);

macro_rules! operators {
    ($type:ty: $($operator:ident = |$a:ident, $b:ident| $result:expr),* $(,)?) => {$(
        impl Operator<$type> for $operator {
            #[inline(always)]
            fn of($a: $type, $b: $type) -> $type {
                $result
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        operators! { $type:
            Sum = |a, b| a.wrapping_add(b),
            Product = |a, b| a.wrapping_mul(b),
            Min = |a, b| a.min(b),
            Max = |a, b| a.max(b),
            Band = |a, b| a & b,
            Bor = |a, b| a | b,
            Bxor = |a, b| a ^ b,
        }
    )*};
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($type:ty: $bytes:literal, $canonical:ident);*) => {$(
        operators! { $type:
            Sum = |a, b| $canonical(a + b),
            Product = |a, b| $canonical(a * b),
            Min = |a, b| {
                // Equal operands have equal bits, or are zeros, which differ in the sign only.
                let equal = <$type>::from_bits(a.to_bits() | b.to_bits());
                let least = if a < b { a } else { b };
                let result = if a == b { equal } else { least };
                if a.is_nan() | b.is_nan() { <$type>::NAN } else { result }
            },
            Max = |a, b| {
                let equal = <$type>::from_bits(a.to_bits() & b.to_bits());
                let greatest = if a > b { a } else { b };
                let result = if a == b { equal } else { greatest };
                if a.is_nan() | b.is_nan() { <$type>::NAN } else { result }
            },
        }

        impl Change<$type> for Times<$type> {
            #[inline(always)]
            fn of(&self, x: $type) -> $type {
                $canonical(x * self.0)
            }
        }

        impl Change<$type> for Over<$type> {
            #[inline(always)]
            fn of(&self, x: $type) -> $type {
                $canonical(x / self.0)
            }
        }

        impl<C: Change<$type>> Map<$bytes> for Each<C> {
            #[inline(always)]
            fn map(&self, bytes: [u8; $bytes]) -> [u8; $bytes] {
                self.0.of(<$type>::from_ne_bytes(bytes)).to_ne_bytes()
            }
        }

        #[inline(always)]
        fn $canonical(x: $type) -> $type {
            if x.is_nan() { <$type>::NAN } else { x }
        }
    )*};
}

floats!(f32: 4, canonical_f32; f64: 8, canonical_f64);
