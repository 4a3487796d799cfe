//! A look at a tensor of somebody else, who may have borrowed it. Knows nothing of who looks.

use super::{Device, Element, Tensor, View};
use crate::generated::dtype::DType;
use crate::generated::error::{Error, Result};

/// A tensor of an operation, for as long as a hook looks at it: its memory may be borrowed, so that
/// it cannot be kept.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a>(&'a Tensor);

impl<'a> TensorRef<'a> {
    /// A look at `tensor`.
    pub fn of(tensor: &'a Tensor) -> TensorRef<'a> {
        TensorRef(tensor)
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        self.0.dtype()
    }

    /// Length of each dimension.
    pub fn shape(self) -> &'a [usize] {
        self.0.shape()
    }

    /// Where the memory is.
    pub fn device(self) -> Device {
        self.0.device()
    }

    /// Number of elements.
    pub fn elements(self) -> usize {
        self.0.elements()
    }

    /// Whether elements lie one after the other in C order.
    pub fn is_contiguous(self) -> bool {
        self.0.is_contiguous()
    }

    /// A copy of the elements, in C order.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if they are not of type `T`;
    /// [`Error::Unsupported`] if they are on a device.
    pub fn to_vec<T: Element>(self) -> Result<Vec<T>> {
        self.on_host()?.to_contiguous().into_vec()
    }

    /// Calls `f` with the bytes of the elements, in C order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if they are on a device.
    pub fn read<R>(self, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let tensor = self.on_host()?;
        Ok(match tensor.is_contiguous() {
            true => tensor.region().read(f),
            false => tensor.to_contiguous().region().read(f),
        })
    }

    /// Whether it has the elements of `other`, in the same memory.
    #[doc(hidden)]
    pub fn is_same(self, other: &Tensor) -> bool {
        self.0.is_same_view(other)
            && self.0.shape() == other.shape()
            && self.0.dtype() == other.dtype()
    }

    fn on_host(self) -> Result<&'a Tensor> {
        match self.0.device() {
            Device::Cpu => Ok(self.0),
            device @ Device::Cuda(_) => Err(Error::Unsupported {
                who: "a hook".to_owned(),
                operation: format!("reading the elements of a tensor on {device}"),
            }),
        }
    }
}
