//! Copies between strided and contiguous memory. Knows only bytes, shapes and strides.

use crate::sorted::sort;

/// Whether `strides` (in elements) are those of a contiguous array in C order. Dimensions of
/// length 1, and empty arrays, have no stride that matters.
pub(super) fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&length, &stride) in shape.iter().zip(strides).rev() {
        if length != 1 && stride != expected {
            return false;
        }
        expected *= length as isize;
    }
    true
}

/// How the elements of an array lie in memory. Strides and positions are in elements.
#[derive(Clone, Copy)]
pub(crate) struct StridedLayout<'a> {
    /// Length of each dimension.
    pub(crate) shape: &'a [usize],
    /// From one index to the next of each dimension.
    pub(crate) strides: &'a [isize],
    /// The position of index (0, …, 0).
    pub(crate) origin: usize,
}

impl StridedLayout<'_> {
    /// Whether two indices lead to the same element, as with strides of 0. All lie below
    /// `elements`.
    pub(crate) fn overlaps_itself(self, elements: usize) -> bool {
        match aliasing(self.shape, self.strides) {
            Aliasing::Absent => return false,
            Aliasing::Present => return true,
            Aliasing::Undecided => {}
        }
        let mut seen = vec![false; elements];
        let mut twice = false;
        self.visit(|at| twice |= std::mem::replace(&mut seen[at], true));
        twice
    }

    /// Copies the elements of `strided`, in C order, to `contiguous`.
    pub(super) fn gather(self, contiguous: &mut [u8], strided: &[u8], element_bytes: usize) {
        let mut elements = contiguous.chunks_exact_mut(element_bytes);
        self.visit(|index| {
            if let Some(element) = elements.next() {
                element.copy_from_slice(&strided[index * element_bytes..][..element_bytes]);
            }
        });
    }

    /// Copies the elements of `contiguous` to `strided`, in C order.
    pub(super) fn scatter(self, strided: &mut [u8], contiguous: &[u8], element_bytes: usize) {
        let mut elements = contiguous.chunks_exact(element_bytes);
        self.visit(|index| {
            if let Some(element) = elements.next() {
                strided[index * element_bytes..][..element_bytes].copy_from_slice(element);
            }
        });
    }

    /// Calls `f` with the position of each index in C order.
    pub(super) fn visit(self, mut f: impl FnMut(usize)) {
        let StridedLayout { shape, strides, origin } = self;
        if shape.contains(&0) {
            return;
        }
        let mut index = vec![0; shape.len()];
        let mut position = origin as isize;
        loop {
            f(position as usize);
            let mut dimension = shape.len();
            loop {
                if dimension == 0 {
                    return;
                }
                dimension -= 1;
                index[dimension] += 1;
                position += strides[dimension];
                if index[dimension] < shape[dimension] {
                    break;
                }
                position -= strides[dimension] * shape[dimension] as isize;
                index[dimension] = 0;
            }
        }
    }
}

/// Whether two indices lead to the same element, as far as the strides alone say.
enum Aliasing {
    Absent,
    Present,
    Undecided,
}

/// There is none if each stride leaps over all that the smaller ones reach, and there is some if
/// one is 0.
fn aliasing(shape: &[usize], strides: &[isize]) -> Aliasing {
    if shape.contains(&0) {
        return Aliasing::Absent;
    }
    let dimensions = shape.iter().zip(strides).filter(|(length, _)| **length > 1);
    let mut dimensions: Vec<_> =
        dimensions.map(|(&length, s)| (s.unsigned_abs(), length)).collect();
    sort(&mut dimensions);
    let mut reach = 0;
    for (stride, length) in dimensions {
        if stride == 0 {
            return Aliasing::Present;
        }
        if stride <= reach {
            return Aliasing::Undecided;
        }
        reach += (length - 1) * stride;
    }
    Aliasing::Absent
}

/// How many elements lie below index (0, …, 0), and how many the view spans in all.
#[cfg(feature = "ndarray")]
pub(crate) fn extent(shape: &[usize], strides: &[isize]) -> (usize, usize) {
    if shape.contains(&0) {
        return (0, 0);
    }
    let (mut below, mut above) = (0, 0);
    for (&length, &stride) in shape.iter().zip(strides) {
        let reach = (length - 1) * stride.unsigned_abs();
        if stride < 0 {
            below += reach;
        } else {
            above += reach;
        }
    }
    (below, below + above + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_view_goes_out_and_back() {
        let layout = StridedLayout { shape: &[3, 2], strides: &[1, 3], origin: 0 };
        let memory: Vec<u8> = (0..6).collect();
        let mut out = [0; 6];
        layout.gather(&mut out, &memory, 1);
        assert_eq!(out, [0, 3, 1, 4, 2, 5]);
        let mut back = [0; 6];
        layout.scatter(&mut back, &out, 1);
        assert_eq!(back.as_slice(), memory);
    }

    #[test]
    fn negative_strides_start_at_the_origin() {
        let layout = StridedLayout { shape: &[3], strides: &[-1], origin: 2 };
        let mut out = [0; 3];
        layout.gather(&mut out, &[1, 2, 3], 1);
        assert_eq!(out, [3, 2, 1]);
    }

    #[test]
    fn contiguity_ignores_dimensions_of_length_one() {
        assert!(is_contiguous(&[1, 3], &[99, 1]));
        assert!(!is_contiguous(&[2, 3], &[99, 1]));
        assert!(is_contiguous(&[0, 3], &[99, 7]));
        assert!(is_contiguous(&[], &[]));
    }
}
