//! Python objects as tensors, in place. Knows nothing of calls.

use polyrank::{Device, Tensor};
use pyo3::prelude::*;

use super::kind::{Kind, kind_of};
use super::{buffer, dlpack};

/// The tensor that `object`, of this kind, is, sharing its memory; `None` if it is not a tensor.
pub(super) fn tensor_of_kind(object: &Bound<'_, PyAny>, kind: Kind) -> PyResult<Option<Tensor>> {
    let (layout, lease) = match kind {
        Kind::Buffer => buffer::from_buffer(object)?,
        Kind::Exchange(table) => dlpack::from_table(object, table)?,
        Kind::Dlpack => dlpack::from_method(object)?,
        _ => return Ok(None),
    };
    layout.into_tensor(lease).map(Some)
}

/// The tensor that `object` is, if it is one on a device.
pub(crate) fn device_tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let kind = kind_of(object);
    // A buffer is memory of the host.
    if !matches!(kind, Kind::Exchange(_) | Kind::Dlpack) {
        return Ok(None);
    }
    let tensor = tensor_of_kind(object, kind)?;
    Ok(tensor.filter(|tensor| tensor.device() != Device::Cpu))
}
