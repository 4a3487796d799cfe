//! On which CUDA device the tensors of other libraries lie, and on which stream those libraries
//! work with them. Knows no DLPack tensor.

use polyrank::OnDevice;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::dlpack;

/// CUDA in DLPack's list of devices.
pub(super) const KIND: i32 = 2;
/// The legacy default stream, as DLPack names it; its handle is 0 elsewhere.
pub(super) const LEGACY_STREAM: usize = 1;

/// The index of the CUDA device on which `object` says that it lies; none for anything else.
pub(super) fn index_of(object: &Bound<'_, PyAny>) -> Option<u32> {
    let answer = object.call_method0(intern!(object.py(), "__dlpack_device__")).ok()?;
    let (kind, index): (i32, u32) = answer.extract().ok()?;
    (kind == KIND).then_some(index)
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
                None => current_stream(&class, index)?,
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

/// The handle of the stream that is current in the library whose tensors have this type, for the
/// device of this index: the legacy default stream, for a library of which nothing is known.
pub(super) fn current_stream(class: &Bound<'_, PyType>, index: u32) -> PyResult<usize> {
    let py = class.py();
    let module = class.module().unwrap_or_else(|_| PyString::new(py, ""));
    let module = module.to_string();
    match module.split('.').next() {
        Some("torch") => {
            let cuda = py.import(intern!(py, "torch"))?.getattr(intern!(py, "cuda"))?;
            let stream = cuda.call_method1(intern!(py, "current_stream"), (index,))?;
            stream.getattr(intern!(py, "cuda_stream"))?.extract()
        }
        Some("cupy") => {
            let cuda = py.import(intern!(py, "cupy"))?.getattr(intern!(py, "cuda"))?;
            let stream = cuda.call_method1(intern!(py, "get_current_stream"), (index,))?;
            stream.getattr(intern!(py, "ptr"))?.extract()
        }
        _ => Ok(0),
    }
}
