//! Python objects as tensors, in place, and the streams of their libraries. Knows nothing of calls.

use polyrank::{Device, OnDevice, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::kind::{Kind, kind_of};
use super::{buffer, cuda, dlpack};

/// The tensor that `object`, of this kind, is, sharing its memory; `None` if it is not a tensor.
pub(super) fn tensor_of_kind(object: &Bound<'_, PyAny>, kind: Kind) -> PyResult<Option<Tensor>> {
    let (layout, lease) = match kind {
        Kind::Buffer => buffer::from_buffer(object)?,
        Kind::Exchange(table) => dlpack::from_table(object, table)?,
        Kind::Dlpack => dlpack::from_method(object)?,
        Kind::BufferOrDlpack => match cuda::index_of(object) {
            Some(_) => dlpack::from_method(object)?,
            None => buffer::from_buffer(object)?,
        },
        _ => return Ok(None),
    };
    layout.into_tensor(lease).map(Some)
}

/// The tensor that `object` is, if it is one.
pub(crate) fn tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    tensor_of_kind(object, kind_of(object))
}

/// The tensor that `object` is, if it is one on a device.
pub(crate) fn device_tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let kind = kind_of(object);
    // A buffer is memory of the host.
    if !matches!(kind, Kind::Exchange(_) | Kind::Dlpack | Kind::BufferOrDlpack) {
        return Ok(None);
    }
    let tensor = tensor_of_kind(object, kind)?;
    Ok(tensor.filter(|tensor| tensor.device() != Device::Cpu))
}

/// The streams that are current now, on the devices of these indices, in the libraries whose
/// tensors have these types.
pub(crate) fn current_streams<'py>(
    classes: impl IntoIterator<Item = Bound<'py, PyType>>,
    indices: &[u32],
) -> PyResult<Vec<OnDevice>> {
    let mut streams: Vec<OnDevice> = Vec::new();
    let mut seen: Vec<Bound<'py, PyType>> = Vec::new();
    for class in classes {
        if seen.iter().any(|known| known.is(&class)) {
            continue;
        }
        let table = dlpack::exchange_table(class.as_any());
        for &index in indices {
            let stream = match table {
                Some(table) => dlpack::stream_of_table(class.as_any(), table, index)?,
                None => cuda::current_stream(&class, index)?,
            };
            let stream = OnDevice { index, stream };
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
        seen.push(class);
    }
    Ok(streams)
}
