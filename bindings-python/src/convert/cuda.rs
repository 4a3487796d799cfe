//! On which CUDA device the tensors of other libraries lie, and on which stream those libraries
//! work with them. Knows no tensor of DLPack and no exchange table.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

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

/// The handle of the stream that is current in the library whose tensors have this type, for the
/// device of this index: the legacy default stream, for a library of which nothing is known.
pub(super) fn current_stream(class: &Bound<'_, PyType>, index: u32) -> PyResult<usize> {
    let py = class.py();
    let module = class.module().unwrap_or_else(|_| PyString::new(py, ""));
    match module.to_str()?.split('.').next() {
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
