//! polyrank for Python.

mod convert;

use pyo3::prelude::*;

/// The compiled part of polyrank.
#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::probe;
}

#[pyfunction]
fn probe(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    convert::probe(py, object)
}
