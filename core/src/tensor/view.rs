//! The neutral tensor that every language's values become.

use super::Region;
use super::overlaps::{Runs, View, runs_of};
use super::strided::{self, StridedLayout};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};

/// Where a tensor's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// Memory of the CUDA device with this index.
    Cuda(u32),
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A view of memory as an n-dimensional array.
#[derive(Clone, Debug)]
pub struct Tensor {
    region: Region,
    dtype: DType,
    shape: Vec<usize>,
    /// Elements from one index to the next of each dimension; `None` if contiguous in C order.
    strides: Option<Vec<isize>>,
    /// Element of `region` at which index (0, …, 0) lies; 0 if contiguous.
    origin: usize,
    /// Whether operations must not write it.
    read_only: bool,
}

impl Tensor {
    /// A contiguous tensor over the whole of `region`, whose length must fit `shape`.
    pub fn contiguous(region: Region, dtype: DType, shape: Vec<usize>) -> Tensor {
        let elements: usize = shape.iter().product();
        assert_eq!(region.len(), elements * dtype.size_bytes(), "region and shape differ");
        Tensor { region, dtype, shape, strides: None, origin: 0, read_only: false }
    }

    /// A contiguous tensor of zeros. A large one lies where the other ranks of this host can read
    /// it, so that operations copy less, see [`Region::for_elements`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is not enough memory.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let times = |bytes: usize, length: &usize| bytes.checked_mul(*length);
        let bytes = shape.iter().try_fold(dtype.size_bytes(), times);
        let region = bytes.and_then(Region::for_elements).ok_or_else(|| {
            let name = dtype.name();
            let message = format!("zeros: not enough memory for {name} of shape {shape:?}");
            Error::InvalidArgument { message }
        })?;
        Ok(Tensor::contiguous(region, dtype, shape.to_vec()))
    }

    /// A tensor with strides, in elements. `region` spans from its lowest to its highest element;
    /// `origin` is the element of `region` that has index (0, …, 0).
    pub fn strided(
        region: Region,
        dtype: DType,
        shape: Vec<usize>,
        strides: Vec<isize>,
        origin: usize,
    ) -> Tensor {
        let strides = if strided::is_contiguous(&shape, &strides) { None } else { Some(strides) };
        Tensor { region, dtype, shape, strides, origin, read_only: false }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Where the memory is.
    pub fn device(&self) -> Device {
        self.region.device().map_or(Device::Cpu, |device| Device::Cuda(device.index))
    }

    /// The same tensor, whose memory operations must not write.
    #[must_use]
    pub fn read_only(self) -> Tensor {
        Tensor { read_only: true, ..self }
    }

    /// Whether operations must not write the memory.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }

    /// Whether elements lie one after the other in C order.
    pub fn is_contiguous(&self) -> bool {
        self.strides.is_none()
    }

    /// The memory; for a tensor with strides, from its lowest to its highest element.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The memory, given up.
    pub fn into_region(self) -> Region {
        self.region
    }

    /// The owner of the memory, if it is a `T`, the tensor has all of it and nothing else holds it.
    #[cfg(all(unix, feature = "cuda"))]
    pub(crate) fn into_owner<T: std::any::Any>(self) -> std::result::Result<T, Tensor> {
        let Tensor { region, dtype, shape, strides, origin, read_only } = self;
        let as_before = |region| Tensor { region, dtype, shape, strides, origin, read_only };
        region.into_owner::<T>().map_err(as_before)
    }

    /// This contiguous tensor cut along dimension 0 into pieces of so many rows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rows do not add up to dimension 0.
    pub fn split(&self, rows: &[usize]) -> Result<Vec<Tensor>> {
        let all = self.shape.first().copied().unwrap_or(1);
        // More than any tensor has where they add up to more than a number can be.
        let sum = rows.iter().fold(0usize, |sum, rows| sum.saturating_add(*rows));
        if sum != all {
            let message = format!(
                "Split sizes doesn't match total dim 0 size: splits {rows:?} add up to {sum}, the \
                 tensor of shape {:?} has {all} rows",
                self.shape
            );
            return Err(Error::InvalidArgument { message });
        }
        let row_bytes = self.bytes().checked_div(all).unwrap_or(0);
        let mut start = 0;
        let mut pieces = Vec::with_capacity(rows.len());
        for &rows in rows {
            let mut shape = self.shape.clone();
            match shape.first_mut() {
                Some(first) => *first = rows,
                None => shape.push(rows),
            }
            let piece = match &self.strides {
                None => Tensor {
                    region: self.region.slice(start * row_bytes..(start + rows) * row_bytes),
                    shape,
                    ..self.clone()
                },
                Some(strides) => {
                    let step = strides.first().copied().unwrap_or(0) * start as isize;
                    let origin = self.origin.saturating_add_signed(step);
                    Tensor { shape, origin, ..self.clone() }
                }
            };
            pieces.push(piece);
            start += rows;
        }
        Ok(pieces)
    }

    /// Fills it with zeros.
    pub(crate) fn set_to_zero(&self) {
        self.copy_from(&Region::zeroed(self.bytes()));
    }

    /// A contiguous copy.
    #[must_use]
    pub fn to_contiguous(&self) -> Tensor {
        let copy = Region::zeroed(self.bytes());
        self.copy_to(&copy);
        Tensor::contiguous(copy, self.dtype, self.shape.clone())
    }

    /// Copies the elements, in C order, to `contiguous`.
    pub fn copy_to(&self, contiguous: &Region) {
        contiguous.write_from(&self.region, |into, from| match self.layout() {
            None => into.copy_from_slice(from),
            Some(layout) => layout.gather(into, from, self.dtype.size_bytes()),
        });
    }

    /// Sets the elements, in C order, from `contiguous`.
    pub fn copy_from(&self, contiguous: &Region) {
        self.region.write_from(contiguous, |into, from| match self.layout() {
            None => into.copy_from_slice(from),
            Some(layout) => layout.scatter(into, from, self.dtype.size_bytes()),
        });
    }

    /// How the elements lie in the memory, unless one after the other.
    fn layout(&self) -> Option<StridedLayout<'_>> {
        let strides = self.strides.as_deref()?;
        Some(StridedLayout { shape: &self.shape, strides, origin: self.origin })
    }
}

impl View for Tensor {
    /// All of a process is one piece.
    fn piece(&self) -> usize {
        0
    }

    fn span(&self) -> (usize, usize) {
        let start = self.region.address();
        (start, if self.bytes() == 0 { start } else { start + self.region.len() })
    }

    fn overlaps_itself(&self) -> bool {
        let elements = self.region.len() / self.dtype.size_bytes();
        self.layout().is_some_and(|layout| layout.overlaps_itself(elements))
    }

    fn is_same_view(&self, other: &Tensor) -> bool {
        let place = |it: &Tensor| (it.region.address(), it.region.len(), it.origin);
        let alike = self.strides.is_none() || self.shape == other.shape;
        place(self) == place(other) && self.strides == other.strides && alike
    }

    fn runs(&self) -> Runs {
        let size = self.dtype.size_bytes();
        let address = self.region.address() + self.origin * size;
        runs_of(&self.shape, self.strides.as_deref(), size, address)
    }

    fn visit_bytes(&self, mut f: impl FnMut(usize, usize)) {
        let (start, size) = (self.region.address(), self.dtype.size_bytes());
        match self.layout() {
            None => f(start, self.region.len()),
            Some(layout) => layout.visit(|at| f(start + at * size, size)),
        }
    }
}

/// The one tensor of `tensors`, which the method `name` was given.
///
/// # Errors
/// [`Error::InvalidArgument`] if there are none, or several.
pub fn single_tensor(name: &str, mut tensors: Vec<Tensor>) -> Result<Tensor> {
    match (tensors.pop(), tensors.len()) {
        (Some(tensor), 0) => Ok(tensor),
        (last, more) => {
            let got = more + usize::from(last.is_some());
            let message = format!("{name}(): expected one tensor, got a list of {got}");
            Err(Error::InvalidArgument { message })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn zeros_of_any_shape() {
        for shape in [&[][..], &[0], &[3, 0, 2], &[5, 7], &[1000, 1000]] {
            let tensor = Tensor::zeros(DType::F64, shape).unwrap();
            assert_eq!(tensor.shape(), shape);
            assert_eq!(tensor.region().len(), 8 * shape.iter().product::<usize>());
            assert!(tensor.is_contiguous());
            assert!(tensor.region().read(|bytes| bytes.iter().all(|byte| *byte == 0)));
        }
    }

    #[test]
    fn a_shape_that_no_memory_holds_is_an_error() {
        for shape in [&[usize::MAX, 2][..], &[1 << 60, 2]] {
            let error = Tensor::zeros(DType::F32, shape).unwrap_err().to_string();
            assert!(error.contains("f32 of shape ["), "{error}");
        }
    }
}
