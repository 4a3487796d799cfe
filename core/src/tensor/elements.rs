//! Memory as a slice of elements, for functions of the program. Knows no operations.

#![allow(unsafe_code, reason = "bytes are shown as elements")]

use super::{Element, Region};
use crate::generated::dtype::DType;

impl Region {
    /// Calls `f` with the elements of `read` and of this memory, which it may change. None, and
    /// nothing is done, where elements may not lie so, or the regions differ in length.
    pub(crate) fn change_elements<T: Element, R>(
        &self,
        read: &Region,
        f: impl FnOnce(&[T], &mut [T]) -> R,
    ) -> Option<R> {
        let is_aligned = |region: &Region| region.address().is_multiple_of(align_of::<T>());
        let length = self.len() / size_of::<T>();
        let is_whole = self.len() == read.len() && length * size_of::<T>() == self.len();
        if !is_whole || !is_aligned(self) || !is_aligned(read) || self.overlaps(read) {
            return None;
        }
        Some(self.write_from(read, |into, from| {
            let into = into.as_mut_ptr().cast::<T>();
            let from = from.as_ptr().cast::<T>();
            // SAFETY: the memory is as long and aligned as was seen above, the regions are apart,
            // every bit pattern is an element but for `bool`, whose operands
            // `Region::tidy_elements` has made such, and `write_from` keeps others out.
            let (from, into) = unsafe {
                (
                    std::slice::from_raw_parts(from, length),
                    std::slice::from_raw_parts_mut(into, length),
                )
            };
            f(from, into)
        }))
    }

    /// Makes elements of what bytes of other ranks there are: anything but 0 is true.
    pub(crate) fn tidy_elements(&self, dtype: DType) {
        if dtype == DType::Bool {
            self.write(|bytes| bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn elements_are_read_and_changed() {
        let of = |values: [f32; 2]| {
            let region = Region::for_elements(8).unwrap();
            region.write(|bytes| {
                bytes[..4].copy_from_slice(&values[0].to_ne_bytes());
                bytes[4..].copy_from_slice(&values[1].to_ne_bytes());
            });
            region
        };
        let (lower, upper) = (of([1.0, 2.0]), of([10.0, 20.0]));
        let changed = upper.change_elements(&lower, |lower: &[f32], upper: &mut [f32]| {
            upper.iter_mut().zip(lower).for_each(|(upper, lower)| *upper -= lower);
            upper.to_vec()
        });
        assert_eq!(changed.unwrap(), [9.0, 18.0]);
        assert!(upper.change_elements(&upper, |_: &[f32], _: &mut [f32]| ()).is_none());
        let odd = upper.slice(1..5);
        assert!(odd.change_elements(&lower.slice(0..4), |_: &[f32], _: &mut [f32]| ()).is_none());
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let region = Region::from_vec(vec![0, 1, 2, 255]);
        region.tidy_elements(DType::Bool);
        assert_eq!(region.read(<[u8]>::to_vec), [0, 1, 1, 1]);
    }
}
