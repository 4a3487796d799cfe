//! Where the elements of a Python tensor lie, and the core's tensor made of it. Knows neither the
//! buffer protocol nor DLPack.

#![allow(unsafe_code)]

use polyrank::{DType, OnDevice, Region, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::exception::invalid_type;
use super::lease::Lease;

/// Memory as its exporter describes it.
pub(super) struct Layout {
    /// The element with index (0, …, 0).
    pub(super) data: *mut u8,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// In elements; `None` if contiguous in C order.
    pub(super) strides: Option<Vec<isize>>,
    /// Whether operations may only read it.
    pub(super) read_only: bool,
    /// The device on which it lies; none if it is the host's.
    pub(super) device: Option<OnDevice>,
}

impl Layout {
    /// A tensor over this memory, which `lease` keeps valid.
    pub(super) fn into_tensor(self, lease: Lease) -> PyResult<Tensor> {
        let too_large = || PyValueError::new_err("the tensor is larger than the address space");
        let element_bytes = self.dtype.size_bytes();
        let elements = self
            .shape
            .iter()
            .try_fold(1_usize, |product, &length| product.checked_mul(length))
            .ok_or_else(too_large)?;
        let span = match &self.strides {
            Some(strides) if elements > 0 => span(&self.shape, strides).ok_or_else(too_large)?,
            _ => Span { below: 0, elements },
        };
        let bytes = span.elements.checked_mul(element_bytes).ok_or_else(too_large)?;
        let start = self.data.wrapping_sub(span.below * element_bytes);
        // SAFETY: the exporter says that the elements at `shape` and `strides` are there; `span`
        // goes from the lowest to the highest of them; `lease` keeps them there. What Python code
        // does with its own tensor while an operation uses it is the caller's affair, as it is
        // with every such library; read-only memory is refused where operations would write.
        let region = unsafe {
            let owner = Some(Box::new(lease) as _);
            match self.device {
                None => Region::from_raw_parts(start, bytes, owner),
                Some(device) => Region::from_device_parts(start as usize, bytes, device, owner),
            }
        };
        let tensor = match self.strides {
            Some(strides) if elements > 0 => {
                Tensor::strided(region, self.dtype, self.shape, strides, span.below)
            }
            _ => Tensor::contiguous(region, self.dtype, self.shape),
        };
        Ok(if self.read_only { tensor.read_only() } else { tensor })
    }
}

/// The extent of a tensor's elements, in elements.
struct Span {
    /// From the lowest element to the one with index (0, …, 0).
    below: usize,
    /// From the lowest to the highest, both included.
    elements: usize,
}

fn span(shape: &[usize], strides: &[isize]) -> Option<Span> {
    let (mut below, mut above) = (0_usize, 0_usize);
    for (&length, &stride) in shape.iter().zip(strides) {
        let reach = stride.unsigned_abs().checked_mul(length.checked_sub(1)?)?;
        let side = if stride < 0 { &mut below } else { &mut above };
        *side = side.checked_add(reach)?;
    }
    let elements = below.checked_add(above)?.checked_add(1)?;
    Some(Span { below, elements })
}

/// The error for elements of a type that polyrank does not have.
pub(super) fn unsupported_element(object: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let class = object.get_type();
    let name = class.name();
    let class = name.as_ref().ok().and_then(|name| name.to_str().ok()).unwrap_or_default();
    let known = DType::ALL.map(DType::name).join(", ");
    let message = format!("{class} has elements of {what}; known element types: {known}");
    invalid_type(object.py(), message)
}
