//! Numbers in which parameters are averaged and stepped.

use std::fmt::Debug;
use std::ops::{Add, Mul, Sub};

use polyrank::Element;

use crate::state::StateError;

mod sealed {
    pub trait Sealed {}
}

/// `f32` or `f64`.
pub trait Real:
    Element
    + sealed::Sealed
    + Debug
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// The nearest number.
    fn from_f64(number: f64) -> Self;
    /// As they travel in a state.
    fn to_bytes(numbers: &[Self]) -> Vec<u8>;
    /// What [`Real::to_bytes`] gave.
    ///
    /// # Errors
    /// It is cut off.
    fn from_bytes(bytes: &[u8]) -> Result<Vec<Self>, StateError>;
}

macro_rules! reals {
    ($($real:ty)+) => {$(
        impl sealed::Sealed for $real {}

        impl Real for $real {
            fn from_f64(number: f64) -> $real {
                number as $real
            }

            fn to_bytes(numbers: &[$real]) -> Vec<u8> {
                numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
            }

            fn from_bytes(bytes: &[u8]) -> Result<Vec<$real>, StateError> {
                let (numbers, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    return Err(StateError::new("the numbers of the state are cut off"));
                }
                Ok(numbers.iter().map(|it| <$real>::from_le_bytes(*it)).collect())
            }
        }
    )+};
}

reals!(f32 f64);
