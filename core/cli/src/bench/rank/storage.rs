//! Where the elements of a rank's tensors lie: in the language's memory, or in polyrank's own.
//! Knows nothing of what is called with them.

use half::{bf16, f16};

use polyrank::{Buffers, ConstBuffers, Element, Tensor};

/// An element type that small whole numbers fit.
pub(super) trait Number: Element + PartialEq + Default {
    fn from_whole(value: i64) -> Self;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn from_whole(value: i64) -> Self {
                value as $ty
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Number for f16 {
    fn from_whole(value: i64) -> Self {
        f16::from_f32(value as f32)
    }
}

impl Number for bf16 {
    fn from_whole(value: i64) -> Self {
        bf16::from_f32(value as f32)
    }
}

/// A tensor that calls take as it is, and that can be filled and read between them.
pub(super) trait Storage<T: Number>: Buffers + ConstBuffers {
    /// Gives every element the value of its index.
    fn change(&mut self, value: impl Fn(usize) -> T);
    /// The elements; a copy where they lie in shared memory.
    fn elements(&self) -> Vec<T>;
    /// The same, as a tensor that can be owned.
    fn tensor(&self) -> Tensor;
    /// Takes over another's elements, as fast as the machine can.
    fn copy(&mut self, from: &Self);
}

impl<T: Number> Storage<T> for Vec<T> {
    fn change(&mut self, value: impl Fn(usize) -> T) {
        self.iter_mut().enumerate().for_each(|(index, element)| *element = value(index));
    }

    fn elements(&self) -> Vec<T> {
        self.clone()
    }

    fn tensor(&self) -> Tensor {
        Tensor::from(self.clone())
    }

    fn copy(&mut self, from: &Self) {
        self.copy_from_slice(from);
    }
}

impl<T: Number> Storage<T> for Tensor {
    fn change(&mut self, value: impl Fn(usize) -> T) {
        let elements: Vec<T> = (0..Tensor::elements(self)).map(value).collect();
        self.copy_from(Tensor::from(elements).region());
    }

    fn elements(&self) -> Vec<T> {
        let copy = Tensor::from(vec![T::default(); Tensor::elements(self)]);
        self.copy_to(copy.region());
        copy.into_vec().unwrap_or_default()
    }

    fn tensor(&self) -> Tensor {
        self.clone()
    }

    fn copy(&mut self, from: &Self) {
        self.copy_from(from.region());
    }
}
