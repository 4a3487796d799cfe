//! Where the elements of a tensor lie in a language's memory, and copies between that and
//! contiguous memory, a few at a time. Knows nothing of tensors' types.

use crate::tensor::{Runs, StridedLayout, runs_of};

/// Where the elements lie, by their numbers in C order.
#[derive(Debug, PartialEq)]
pub(super) struct Layout {
    element_bytes: usize,
    shape: Vec<usize>,
    /// None if contiguous in C order.
    strides: Option<Vec<isize>>,
    /// The element of the memory that has index (0, …, 0).
    origin: usize,
    elements: usize,
}

impl Layout {
    /// The layout in `bytes` of memory; else what is wrong with it.
    pub(super) fn new(
        element_bytes: usize,
        bytes: usize,
        shape: Option<Vec<usize>>,
        strides: Option<Vec<isize>>,
        origin: usize,
    ) -> Result<Layout, String> {
        if !bytes.is_multiple_of(element_bytes) {
            return Err(format!("that is not a multiple of {element_bytes}"));
        }
        let all = bytes / element_bytes;
        let shape = match shape {
            Some(shape) => shape,
            None => vec![all.checked_sub(origin).ok_or("it begins after their end")?],
        };
        let too_many = || format!("the shape {shape:?} has too many elements");
        let elements = shape.iter().try_fold(1usize, |product, &it| product.checked_mul(it));
        // What is repeated, by strides of 0, may have more bytes than the memory.
        let countable =
            |elements: &usize| elements.checked_mul(element_bytes).is_some_and(is_memory);
        let elements = elements.filter(countable).ok_or_else(too_many)?;
        if strides.as_ref().is_some_and(|strides| strides.len() != shape.len()) {
            return Err(format!("{} dimensions have as many strides", shape.len()));
        }
        let layout = Layout { element_bytes, shape, strides, origin, elements }.simplified();
        let fits =
            layout.checked_extent().is_some_and(|(first, last)| first >= 0 && last <= all as i128);
        if !fits {
            let Layout { shape, strides, origin, .. } = &layout;
            return Err(match strides {
                None => format!("the shape {shape:?} from element {origin} on reaches beyond them"),
                Some(strides) => format!(
                    "the shape {shape:?} with strides {strides:?} from element {origin} on \
                     reaches beyond them"
                ),
            });
        }
        Ok(layout)
    }

    /// The layout of memory with so many elements, one after the other.
    pub(super) fn flat(element_bytes: usize, elements: usize) -> Layout {
        Layout { element_bytes, shape: vec![elements], strides: None, origin: 0, elements }
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn strides(&self) -> Option<&[isize]> {
        self.strides.as_deref()
    }

    pub(super) fn origin(&self) -> usize {
        self.origin
    }

    /// Whether the elements lie one after the other from the start of the memory on.
    pub(super) fn is_flat_from_start(&self) -> bool {
        self.strides.is_none() && self.origin == 0
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> usize {
        self.elements * self.element_bytes
    }

    /// The first element of the memory that is used, and the one after the last.
    pub(super) fn extent(&self) -> (usize, usize) {
        // `new` found it to lie inside of the memory.
        self.checked_extent().map_or((0, 0), |(first, last)| (first as usize, last as usize))
    }

    /// How the elements repeat, in memory that begins at `address`.
    pub(super) fn runs(&self, address: usize) -> Runs {
        let size = self.element_bytes;
        runs_of(&self.shape, self.strides.as_deref(), size, address + self.origin * size)
    }

    /// Whether two indices lead to the same element.
    pub(super) fn overlaps_itself(&self) -> bool {
        let Some(strides) = &self.strides else { return false };
        let (first, last) = self.extent();
        let used = StridedLayout { shape: &self.shape, strides, origin: self.origin - first };
        used.overlaps_itself(last - first)
    }

    /// Calls `copy` with pieces of the memory that lie one after the other in C order, from the
    /// byte `done` of the elements on, for about `budget` bytes: where a piece begins in the
    /// memory, where in the elements, and its length. Bytes that are done then.
    pub(super) fn pieces(
        &self,
        done: usize,
        budget: usize,
        mut copy: impl FnMut(usize, usize, usize),
    ) -> usize {
        let end = self.bytes().min(done.saturating_add(budget.max(self.element_bytes)));
        let (Some(strides), true) = (&self.strides, self.elements > 0) else {
            copy(self.origin * self.element_bytes + done, done, end - done);
            return end;
        };
        let run = match (self.shape.last(), strides.last()) {
            (Some(&length), Some(1)) => length,
            _ => 1,
        };
        // Only whole elements: nobody sees half of one.
        let (mut element, last) = (done / self.element_bytes, end / self.element_bytes);
        while element < last {
            let length = (run - element % run).min(last - element);
            let at = self.position(strides, element);
            copy(
                at * self.element_bytes,
                element * self.element_bytes,
                length * self.element_bytes,
            );
            element += length;
        }
        element * self.element_bytes
    }

    /// Where the element of this number lies.
    fn position(&self, strides: &[isize], element: usize) -> usize {
        let mut rest = element;
        let mut position = self.origin as isize;
        for (&length, &stride) in self.shape.iter().zip(strides).rev() {
            position += (rest % length) as isize * stride;
            rest /= length;
        }
        position as usize
    }

    /// Without strides where they say nothing.
    fn simplified(mut self) -> Layout {
        let strides = self.strides.as_deref().unwrap_or_default();
        let mut expected = 1;
        let contiguous = self.shape.iter().zip(strides).rev().all(|(&length, &stride)| {
            let fits = length <= 1 || stride == expected;
            expected = expected.saturating_mul(length as isize);
            fits
        });
        if contiguous || self.elements == 0 {
            self.strides = None;
        }
        self
    }

    /// As `extent`, wherever that is. In wider numbers: strides may be anything.
    fn checked_extent(&self) -> Option<(i128, i128)> {
        let origin = self.origin as i128;
        if self.elements == 0 {
            return Some((origin, origin));
        }
        let Some(strides) = &self.strides else {
            return Some((origin, origin + self.elements as i128));
        };
        let (mut first, mut last) = (origin, origin);
        for (&length, &stride) in self.shape.iter().zip(strides) {
            let reach = (length as i128 - 1).checked_mul(stride as i128)?;
            if reach < 0 {
                first = first.checked_add(reach)?;
            } else {
                last = last.checked_add(reach)?;
            }
        }
        Some((first, last + 1))
    }
}

/// Whether one piece of memory can have so many bytes.
fn is_memory(bytes: usize) -> bool {
    isize::try_from(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The bytes of `memory` in C order, copied in pieces of at most `budget`.
    fn gathered(layout: &Layout, memory: &[u8], budget: usize) -> Vec<u8> {
        let mut out = vec![0; layout.bytes()];
        let mut done = 0;
        while done < out.len() {
            let before = done;
            done = layout.pieces(done, budget, |from, to, length| {
                out[to..to + length].copy_from_slice(&memory[from..from + length]);
            });
            assert!(done > before);
        }
        out
    }

    #[test]
    fn strided_elements_are_found_whatever_the_budget() {
        let memory: Vec<u8> = (0..24).collect();
        let transposed = Layout::new(2, 24, Some(vec![3, 4]), Some(vec![1, 3]), 0).unwrap();
        let rows = Layout::new(2, 24, Some(vec![2, 2]), Some(vec![6, 1]), 3).unwrap();
        let backwards = Layout::new(1, 24, Some(vec![3]), Some(vec![-2]), 6).unwrap();
        for budget in [1, 2, 3, 5, 8, 100] {
            let expected = [0, 1, 6, 7, 12, 13, 18, 19, 2, 3];
            assert_eq!(gathered(&transposed, &memory, budget)[..10], expected);
            assert_eq!(gathered(&rows, &memory, budget), [6, 7, 8, 9, 18, 19, 20, 21]);
            assert_eq!(gathered(&backwards, &memory, budget), [6, 4, 2]);
        }
        assert_eq!(rows.extent(), (3, 11));
        assert_eq!(backwards.extent(), (2, 7));
    }

    #[test]
    fn what_reaches_beyond_the_memory_is_refused() {
        let layout = |shape: &[usize], strides: Option<&[isize]>, origin| {
            Layout::new(4, 16, Some(shape.to_vec()), strides.map(<[isize]>::to_vec), origin)
        };
        assert!(layout(&[4], None, 0).is_ok() && layout(&[2, 2], None, 0).is_ok());
        assert!(layout(&[5], None, 0).is_err() && layout(&[4], None, 1).is_err());
        assert!(layout(&[2], Some(&[-1]), 0).is_err() && layout(&[2], Some(&[-1]), 1).is_ok());
        assert!(layout(&[usize::MAX, 2], None, 0).is_err());
        assert!(layout(&[2, 2], Some(&[isize::MAX, isize::MAX]), 0).is_err());
        assert!(layout(&[2], Some(&[1, 1]), 0).is_err());
        assert!(layout(&[0, 7], Some(&[9, 9]), 4).is_ok());
        assert!(Layout::new(4, 15, None, None, 0).is_err());
        // One element, more often than memory has bytes.
        let endless = |count| Layout::new(4, 4, Some(vec![count]), Some(vec![0]), 0);
        assert_eq!(endless(7).unwrap().bytes(), 28);
        assert!(endless(usize::MAX / 4 + 2).is_err() && endless(usize::MAX / 4).is_err());
        assert_eq!(Layout::new(4, 16, None, None, 1).unwrap().shape(), [3]);
    }
}
