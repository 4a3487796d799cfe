//! Elements as numbers: loading, storing and combining one. Knows nothing of loops over memory.

/// A number that stands in memory as `BYTES` bytes in the host's order.
pub(super) trait Number: Copy {
    /// Its bytes.
    type Bytes: Copy;
    /// Reads it.
    fn load(bytes: Self::Bytes) -> Self;
    /// Writes it.
    fn store(self) -> Self::Bytes;
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn multiply(self, other: Self) -> Self;
    /// The lesser; NaN if either is.
    fn least(self, other: Self) -> Self;
    /// The greater; NaN if either is.
    fn greatest(self, other: Self) -> Self;
}

/// A number with bits that can be combined.
pub(super) trait Integer: Number {
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
}

/// A truth value: any byte but 0 is true, and results are 0 or 1.
#[derive(Clone, Copy)]
pub(super) struct Truth(u8);

impl Truth {
    /// Both.
    pub(super) fn and(self, other: Truth) -> Truth {
        Truth(self.0 & other.0)
    }

    /// At least one.
    pub(super) fn or(self, other: Truth) -> Truth {
        Truth(self.0 | other.0)
    }

    /// Exactly one.
    pub(super) fn xor(self, other: Truth) -> Truth {
        Truth(self.0 ^ other.0)
    }
}

macro_rules! memory {
    ($number:ty) => {
        type Bytes = [u8; size_of::<$number>()];
        #[inline(always)]
        fn load(bytes: Self::Bytes) -> Self {
            <$number>::from_ne_bytes(bytes)
        }
        #[inline(always)]
        fn store(self) -> Self::Bytes {
            self.to_ne_bytes()
        }
    };
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            memory!($number);
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
        impl Integer for $number {
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

macro_rules! floats {
    ($($number:ty),*) => {$(
        impl Number for $number {
            memory!($number);
            // Which of two NaNs a processor propagates depends on how operands stand in registers,
            // so that results differ between loops; all ranks must end with the same bits.
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                let sum = self + other;
                if sum.is_nan() { <$number>::NAN } else { sum }
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                let product = self * other;
                if product.is_nan() { <$number>::NAN } else { product }
            }
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
    )*};
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);
floats!(f32, f64);

impl Number for Truth {
    type Bytes = [u8; 1];
    #[inline(always)]
    fn load(bytes: [u8; 1]) -> Self {
        Truth(u8::from(bytes[0] != 0))
    }
    #[inline(always)]
    fn store(self) -> [u8; 1] {
        [self.0]
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.or(other)
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.and(other)
    }
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        self.and(other)
    }
    #[inline(always)]
    fn greatest(self, other: Self) -> Self {
        self.or(other)
    }
}
