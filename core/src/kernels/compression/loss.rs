//! What compressing loses: its measures, and their sums while elements go through. Knows no
//! formats and no loops over memory.

use super::super::number::Lanes;

/// What compressing lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CompressionLoss {
    /// The greatest absolute error of an element. Infinite if a finite one became infinite or NaN,
    /// or an infinite one NaN.
    pub max_abs: f64,
    /// The sum of the squares of the errors.
    squares: f64,
    elements: u64,
}

impl CompressionLoss {
    /// The root of the mean square error of the elements; 0 where there are none.
    pub fn root_mean_square(&self) -> f64 {
        match self.elements {
            0 => 0.0,
            elements => (self.squares / elements as f64).sqrt(),
        }
    }

    /// What both lost, as one.
    #[must_use]
    pub fn and(self, other: CompressionLoss) -> CompressionLoss {
        CompressionLoss {
            max_abs: self.max_abs.max(other.max_abs),
            squares: self.squares + other.squares,
            elements: self.elements + other.elements,
        }
    }
}

/// Elements that can be compressed, by way of `f32`.
pub(super) trait Compressible: Lanes + Default {
    fn narrow(self) -> f32;
    /// The same number.
    fn widened(number: f32) -> Self;
    /// How far off `kept` is, which stands for it: infinite if that is NaN, and it is not; 0 where
    /// there is no distance: both are NaN, or the same infinity.
    fn error(self, kept: f32) -> Self;
    fn square(self) -> f64;
    /// The greatest of errors.
    fn greatest(errors: &[Self]) -> f64;
}

macro_rules! compressible {
    ($($float:ty, $bits:ty);*) => {$(
        impl Compressible for $float {
            #[inline(always)]
            fn narrow(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn widened(number: f32) -> Self {
                number.into()
            }
            #[inline(always)]
            fn error(self, kept: f32) -> Self {
                let kept = <$float>::from(kept);
                let difference = (self - kept).abs();
                let is_lost = kept.is_nan() & !self.is_nan();
                let other = if is_lost { <$float>::INFINITY } else { 0.0 };
                if difference.is_nan() { other } else { difference }
            }
            #[inline(always)]
            fn square(self) -> f64 {
                let wide = f64::from(self);
                wide * wide
            }
            // As integers, whose greatest may be found in any order. Those of positive numbers have
            // their order.
            #[inline(always)]
            fn greatest(errors: &[Self]) -> f64 {
                let bits = errors.iter().map(|error| error.to_bits() as $bits);
                <$float>::from_bits(bits.fold(0, <$bits>::max) as _).into()
            }
        }
    )*};
}

compressible!(f32, i32; f64, i64);

/// How many sums of squares there are at once.
const SUMS: usize = 8;

/// The errors of elements until now.
pub(super) struct Errors {
    greatest: f64,
    /// Independent sums, which the compiler keeps in lanes.
    squares: [f64; SUMS],
}

impl Errors {
    #[inline(always)]
    pub(super) fn none() -> Self {
        Errors { greatest: 0.0, squares: [0.0; SUMS] }
    }

    /// Adds those of a block, of which `kept` is left. Loop by loop: each of these is made of
    /// vectors, while lanes of one loop that does all would come to pieces of them.
    #[inline(always)]
    pub(super) fn note<T: Compressible, const N: usize>(
        &mut self,
        exact: &[T; N],
        kept: &[f32; N],
    ) {
        let mut errors = [T::default(); N];
        for (error, (exact, kept)) in errors.iter_mut().zip(exact.iter().zip(kept)) {
            *error = exact.error(*kept);
        }
        let greatest = T::greatest(&errors);
        self.greatest = if greatest > self.greatest { greatest } else { self.greatest };
        let mut squares = self.squares;
        for errors in errors.as_chunks::<SUMS>().0 {
            for lane in 0..SUMS {
                squares[lane] += errors[lane].square();
            }
        }
        self.squares = squares;
    }

    /// All of them, of so many elements.
    #[inline(always)]
    pub(super) fn of(self, elements: usize) -> CompressionLoss {
        let squares = self.squares.into_iter().sum();
        CompressionLoss { max_abs: self.greatest, squares, elements: elements as u64 }
    }
}
