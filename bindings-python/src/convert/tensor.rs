//! Python objects as tensors, in place. Knows nothing of calls.

use polyrank::Tensor;
use pyo3::prelude::*;

use super::kind::Kind;
use super::{buffer, dlpack};

/// The tensor that `object`, of this kind, is, sharing its memory; `None` if it is no tensor.
pub(super) fn tensor_of_kind(object: &Bound<'_, PyAny>, kind: Kind) -> PyResult<Option<Tensor>> {
    let (layout, lease) = match kind {
        Kind::Buffer => buffer::from_buffer(object)?,
        Kind::Exchange(table) => dlpack::from_table(object, table)?,
        Kind::Dlpack => dlpack::from_method(object)?,
        _ => return Ok(None),
    };
    layout.into_tensor(lease).map(Some)
}
