//! Dividing many elements by one number: no division per element. Knows no loops over memory.
//!
//! Integers truncate toward zero.

#![allow(unsafe_code)]

use super::number::Lanes;

/// Elements that are divided by a number of parts, which is not 0.
pub(super) trait Quotient: Lanes {
    /// What is computed once.
    type Divisor: Copy;
    /// Computes it.
    fn divisor(parts: u32) -> Self::Divisor;
    /// The quotient.
    fn divided(self, by: Self::Divisor) -> Self;
}

/// By a multiplication in a float with twice the digits. Half is added first: what is then to be
/// truncated is at least half a part away from an integer, more than the errors of the reciprocal
/// and of the product amount to.
macro_rules! by_reciprocal {
    ($float:ty, $wide:ty: $($integer:ty),*) => {$(
        impl Quotient for $integer {
            type Divisor = $float;
            #[inline(always)]
            fn divisor(parts: u32) -> $float {
                1.0 / parts as $float
            }
            #[inline(always)]
            fn divided(self, reciprocal: $float) -> Self {
                let number = <$float>::from(self);
                let quotient = (number + <$float>::copysign(0.5, number)) * reciprocal;
                // SAFETY: no more than the element in magnitude, and half a part; so no NaN, and
                // in the range of the wider integer.
                unsafe { quotient.to_int_unchecked::<$wide>() as $integer }
            }
        }
    )*};
}

by_reciprocal!(f32, i32: u8, i8, u16, i16);
by_reciprocal!(f64, i64: u32, i32);

/// A reciprocal of 65 bits, of which the highest is always 1 (Granlund and Montgomery, "Division by
/// invariant integers using multiplication", 1994, figure 4.1).
#[derive(Clone, Copy)]
pub(super) struct Reciprocal {
    lower: u64,
    first_shift: u32,
    second_shift: u32,
}

impl Reciprocal {
    fn new(parts: u32) -> Reciprocal {
        let parts = u128::from(parts);
        let bits = u128::BITS - (parts - 1).leading_zeros();
        let lower = ((1 << 64) * ((1 << bits) - parts) / parts + 1) as u64;
        Reciprocal { lower, first_shift: bits.min(1), second_shift: bits.saturating_sub(1) }
    }

    #[inline(always)]
    fn quotient(self, number: u64) -> u64 {
        let product = ((u128::from(self.lower) * u128::from(number)) >> 64) as u64;
        (product + ((number - product) >> self.first_shift)) >> self.second_shift
    }
}

impl Quotient for u64 {
    type Divisor = Reciprocal;
    #[inline(always)]
    fn divisor(parts: u32) -> Reciprocal {
        Reciprocal::new(parts)
    }
    #[inline(always)]
    fn divided(self, by: Reciprocal) -> u64 {
        by.quotient(self)
    }
}

impl Quotient for i64 {
    type Divisor = Reciprocal;
    #[inline(always)]
    fn divisor(parts: u32) -> Reciprocal {
        Reciprocal::new(parts)
    }
    #[inline(always)]
    fn divided(self, by: Reciprocal) -> i64 {
        let sign = self >> 63;
        (by.quotient(self.unsigned_abs()).cast_signed() ^ sign).wrapping_sub(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [u32; 14] =
        [1, 2, 3, 5, 7, 10, 127, 128, 255, 641, 65_535, 65_536, 0x8000_0001, u32::MAX];

    fn check<T: Quotient + Copy + TryFrom<i128> + Into<i128>>(number: i128) {
        let Ok(element) = T::try_from(number) else { return };
        for parts in PARTS {
            let found: i128 = element.divided(T::divisor(parts)).into();
            assert_eq!(found, number / i128::from(parts), "{number} / {parts}");
        }
    }

    #[test]
    fn quotients_at_multiples_and_beside_them() {
        for parts in PARTS.map(i128::from) {
            for power in 0..64 {
                let near = (1_i128 << power) / parts * parts;
                for number in [near - 1, near, near + 1, near + parts - 1, near + parts] {
                    for number in [number, -number] {
                        check::<u32>(number);
                        check::<i32>(number);
                        check::<u64>(number);
                        check::<i64>(number);
                    }
                }
            }
        }
        for extreme in [u32::MAX.into(), i32::MIN.into(), u64::MAX.into(), i64::MIN.into()] {
            check::<u32>(extreme);
            check::<i32>(extreme);
            check::<u64>(extreme);
            check::<i64>(extreme);
        }
    }

    #[test]
    fn every_quotient_of_narrow_integers() {
        for number in (-32_768..=65_535).map(i128::from) {
            check::<u8>(number);
            check::<i8>(number);
            check::<u16>(number);
            check::<i16>(number);
        }
    }
}
