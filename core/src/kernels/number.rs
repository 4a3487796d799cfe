//! Elements as numbers: loading, storing and combining one. Knows nothing of loops over memory.

/// One element, or several that are combined at a time, as they are in memory: `Bytes` in the
/// host's order.
pub(super) trait Lanes: Copy {
    /// Their bytes.
    type Bytes: Copy;
    /// Bytes of one element.
    const ELEMENT_BYTES: usize;
    /// Reads them.
    fn load(bytes: Self::Bytes) -> Self;
    /// Writes them.
    fn store(self) -> Self::Bytes;
}

/// Elements that are added and multiplied.
pub(super) trait Number: Lanes {
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn multiply(self, other: Self) -> Self;
}

/// Elements that have an order.
pub(super) trait OrderedElement: Lanes {
    /// The lesser; NaN if either is.
    fn least(self, other: Self) -> Self;
    /// The greater; NaN if either is.
    fn greatest(self, other: Self) -> Self;
}

/// Elements of which each bit is combined.
pub(super) trait Bits: Lanes {
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
}

/// Elements that are true unless they are 0.
pub(super) trait Logic: Lanes {
    /// 1 if both are true, else 0.
    fn both(self, other: Self) -> Self;
    /// 1 if one is true, or both, else 0.
    fn any(self, other: Self) -> Self;
    /// 1 if exactly one is true, else 0.
    fn one(self, other: Self) -> Self;
}

/// A floating-point number that is computed with as it is.
pub(super) trait Float: Number {
    /// The number itself, or the one NaN that stands for all of them. Which of two NaNs a processor
    /// propagates, and with which sign it makes a new one, depends on the processor and on how
    /// operands are in registers; all ranks must end with the same bits.
    fn canonical(self) -> Self;
}

/// A truth value: any byte but 0 is true, and results are 0 or 1.
#[derive(Clone, Copy)]
pub(super) struct Truth(u8);

macro_rules! lanes {
    ($($number:ty),*) => {$(
        impl Lanes for $number {
            type Bytes = [u8; size_of::<$number>()];
            const ELEMENT_BYTES: usize = size_of::<$number>();
            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                <$number>::from_ne_bytes(bytes)
            }
            #[inline(always)]
            fn store(self) -> Self::Bytes {
                self.to_ne_bytes()
            }
        }
    )*};
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl OrderedElement for $number {
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
        impl Bits for $number {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

macro_rules! logic {
    ($($number:ty),*) => {$(
        impl Logic for $number {
            #[inline(always)]
            fn both(self, other: Self) -> Self {
                <$number>::from(self != 0) & <$number>::from(other != 0)
            }
            #[inline(always)]
            fn any(self, other: Self) -> Self {
                <$number>::from((self | other) != 0)
            }
            #[inline(always)]
            fn one(self, other: Self) -> Self {
                <$number>::from(self != 0) ^ <$number>::from(other != 0)
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                (self + other).canonical()
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                (self * other).canonical()
            }
        }
        impl OrderedElement for $number {
            // Of equal numbers (signed zeros) `other` is taken: the order of operands decides, and
            // that is the same on all ranks.
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                let least = if self < other { self } else { other };
                if self.is_nan() | other.is_nan() { <$number>::NAN } else { least }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                let greatest = if self > other { self } else { other };
                if self.is_nan() | other.is_nan() { <$number>::NAN } else { greatest }
            }
        }
        impl Float for $number {
            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { <$number>::NAN } else { self }
            }
        }
    )*};
}

lanes!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);
integers!(u8, i8, u16, i16, u32, i32, u64, i64);
floats!(f32, f64);
logic!(u8, u16, u32, u64);

impl Lanes for Truth {
    type Bytes = [u8; 1];
    const ELEMENT_BYTES: usize = 1;
    #[inline(always)]
    fn load(bytes: [u8; 1]) -> Self {
        Truth(u8::from(bytes[0] != 0))
    }
    #[inline(always)]
    fn store(self) -> [u8; 1] {
        [self.0]
    }
}

impl Bits for Truth {
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Truth(self.0 & other.0)
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        Truth(self.0 | other.0)
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Truth(self.0 ^ other.0)
    }
}
