//! Memory of the core that Python looks at through the buffer protocol. Knows nothing of tensors.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use polyrank::Region;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::exception::invalid;

/// Zeroed memory that operations use in place; much of it lies where other ranks of this host read
/// it without a copy.
#[pyclass(name = "_Memory", module = "polyrank._core", frozen)]
pub(crate) struct Memory {
    region: Region,
}

impl Memory {
    /// Memory that is there.
    pub(super) fn of(region: Region) -> Memory {
        Memory { region }
    }
}

#[pymethods]
impl Memory {
    /// Memory of so many bytes.
    #[new]
    fn new(py: Python<'_>, bytes: usize) -> PyResult<Memory> {
        let region = Region::for_elements(bytes)
            .ok_or_else(|| invalid(py, format!("not enough memory for {bytes} bytes")))?;
        Ok(Memory { region })
    }

    /// # Safety
    /// Called by the interpreter alone, with a view to fill.
    unsafe fn __getbuffer__(
        slf: PyRef<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let bytes = slf.region.len();
        let start = slf.region.address() as *mut c_void;
        let length = ffi::Py_ssize_t::try_from(bytes).unwrap_or(ffi::Py_ssize_t::MAX);
        // SAFETY: the view is the interpreter's to fill; it holds this object, and with it the
        // memory, until the view is released. Who reads and writes it at the same time is the
        // user's matter, as with any array that an operation has.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
