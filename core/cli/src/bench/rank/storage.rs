//! Where the elements of a rank's tensors lie: in the language's memory, or in polyrank's own.
//! Knows nothing of what is called with them.

use half::{bf16, f16};

use polyrank::{Buffers, ConstBuffers, Element, Region, Tensor};

/// Bytes of a cache line on most processors, from whose beginning offsets count.
const LINE_BYTES: usize = 64;

/// Memory of `bytes` bytes that begins `offset_bytes` after the beginning of a cache line, out of
/// what `make` gives; with an offset of 0, all of that.
pub(super) fn at_offset(
    bytes: usize,
    offset_bytes: usize,
    make: impl Fn(usize) -> Option<Region>,
) -> Option<Region> {
    if offset_bytes == 0 {
        return make(bytes);
    }
    let whole = make(bytes + offset_bytes + LINE_BYTES)?;
    let from = whole.address().next_multiple_of(LINE_BYTES) - whole.address() + offset_bytes;
    Some(whole.slice(from..from + bytes))
}

/// An element type that small whole numbers fit.
pub(super) trait Number: Element + PartialEq + Default {
    fn from_whole(value: i64) -> Self;
    /// Writes this number over and over into `bytes`, which need not be aligned.
    fn repeat(self, bytes: &mut [u8]);
}

macro_rules! repeat {
    () => {
        fn repeat(self, bytes: &mut [u8]) {
            let number = self.to_ne_bytes();
            for element in bytes.chunks_exact_mut(number.len()) {
                element.copy_from_slice(&number);
            }
        }
    };
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn from_whole(value: i64) -> Self {
                value as $ty
            }

            repeat!();
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Number for f16 {
    fn from_whole(value: i64) -> Self {
        f16::from_f32(value as f32)
    }

    repeat!();
}

impl Number for bf16 {
    fn from_whole(value: i64) -> Self {
        bf16::from_f32(value as f32)
    }

    repeat!();
}

/// A tensor that calls take as it is, and that can be filled and read between them.
pub(super) trait Storage<T: Number>: Buffers + ConstBuffers {
    /// Gives every element the value of its index.
    fn change(&mut self, value: impl Fn(usize) -> T);
    /// Writes the same value to every element, from the first to the last.
    fn fill(&mut self, value: T);
    /// How many elements are other than `value`, seen where they lie.
    fn differing(&self, value: T) -> u64;
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

    fn fill(&mut self, value: T) {
        self.as_mut_slice().fill(value);
    }

    fn differing(&self, value: T) -> u64 {
        self.iter().filter(|element| **element != value).count() as u64
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

    fn fill(&mut self, value: T) {
        self.region().write(|bytes| value.repeat(bytes));
    }

    fn differing(&self, value: T) -> u64 {
        let mut number = vec![0; size_of::<T>()];
        value.repeat(&mut number);
        self.region().read(|bytes| {
            let elements = bytes.chunks_exact(number.len());
            elements.filter(|element| *element != number.as_slice()).count() as u64
        })
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
