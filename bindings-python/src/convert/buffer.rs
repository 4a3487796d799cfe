//! Tensors through the buffer protocol: NumPy arrays, array.array, memoryview, bytearray, ctypes.
//! Knows nothing of operations.

#![allow(unsafe_code)]

use std::ffi::CStr;

use polyrank::DType;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use super::exception::invalid;
use super::layout::{Layout, unsupported_element};
use super::lease::Lease;

/// Whether `object` has the buffer protocol.
pub(super) fn supports(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive, and the GIL is held.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// The memory of `object`, which supports the buffer protocol.
pub(super) fn from_buffer(object: &Bound<'_, PyAny>) -> PyResult<(Layout, Lease)> {
    match acquire(object) {
        Ok(view) => describe(object, view, None),
        // The buffer protocol has no format for bfloat16, so NumPy refuses; the bits can be seen as
        // integers of the same size.
        Err(error) => match array_element_name(object).as_deref() {
            Some("bfloat16") => {
                let py = object.py();
                let bits = object.call_method1(intern!(py, "view"), (intern!(py, "uint16"),))?;
                describe(object, acquire(&bits)?, Some(DType::Bf16))
            }
            Some(name) => Err(unsupported_element(object, &format!("dtype {name}"))),
            None => Err(error),
        },
    }
}

fn acquire(object: &Bound<'_, PyAny>) -> PyResult<Box<ffi::Py_buffer>> {
    let mut view = Box::new(ffi::Py_buffer::new());
    // Without PyBUF_INDIRECT an exporter that needs suboffsets refuses.
    let flags = ffi::PyBUF_RECORDS_RO;
    // SAFETY: the object is alive, the GIL is held, and `view` is filled on success only.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    Ok(view)
}

fn describe(
    object: &Bound<'_, PyAny>,
    view: Box<ffi::Py_buffer>,
    dtype: Option<DType>,
) -> PyResult<(Layout, Lease)> {
    let (data, item_bytes) = (view.buf.cast::<u8>(), view.itemsize);
    let dimensions = usize::try_from(view.ndim).unwrap_or(0);
    let read_only = view.readonly != 0;
    let (format, shape, strides) = (view.format, view.shape, view.strides);
    // From here on the lease releases the buffer, also if an error ends this function.
    let lease = Lease::buffer(view);
    let format = match format.is_null() {
        true => c"B",
        // SAFETY: a format that is not null is a string that lives as long as the buffer.
        false => unsafe { CStr::from_ptr(format) },
    };
    let format = format.to_string_lossy();
    let Some(dtype) = dtype.or_else(|| dtype_of_format(&format, item_bytes)) else {
        let name = array_element_name(object);
        let what = name.map_or(format!("buffer format '{format}'"), |name| format!("dtype {name}"));
        return Err(unsupported_element(object, &what));
    };
    // SAFETY: both were asked for, so both have `dimensions` entries or are null: the shape of a
    // scalar, and strides of contiguous memory (ctypes returns none although they were requested).
    let (shape, strides) = unsafe { (list(shape, dimensions), list(strides, dimensions)) };
    let shape = shape.unwrap_or_default().iter().map(|&length| length.unsigned_abs());
    let shape = shape.collect::<Vec<usize>>();
    let strides = match strides {
        Some(strides) if !shape.contains(&0) => {
            Some(in_elements(object.py(), strides, item_bytes)?)
        }
        _ => None,
    };
    Ok((Layout { data, dtype, shape, strides, read_only, device: None }, lease))
}

/// # Safety
/// `numbers` is null or points to `count` numbers that live as long as `'a`.
unsafe fn list<'a>(numbers: *const isize, count: usize) -> Option<&'a [isize]> {
    // SAFETY: the caller's promise.
    (!numbers.is_null()).then(|| unsafe { std::slice::from_raw_parts(numbers, count) })
}

/// Strides in bytes -> strides in elements.
fn in_elements(py: Python<'_>, strides: &[isize], item_bytes: isize) -> PyResult<Vec<isize>> {
    let element_stride =
        |&stride: &isize| (item_bytes > 0 && stride % item_bytes == 0).then(|| stride / item_bytes);
    strides.iter().map(element_stride).collect::<Option<_>>().ok_or_else(|| {
        let what =
            format!("strides {strides:?} are not multiples of the element size {item_bytes}");
        invalid(py, format!("{what}; pass a contiguous copy"))
    })
}

/// The dtype of an item with a `struct` format, whose letters have platform-dependent sizes.
fn dtype_of_format(format: &str, item_bytes: isize) -> Option<DType> {
    let (order, letters) = match format.as_bytes() {
        [order @ (b'@' | b'=' | b'<' | b'>' | b'!' | b'|'), letters @ ..] => (*order, letters),
        letters => (b'@', letters),
    };
    let native = match order {
        b'<' => cfg!(target_endian = "little"),
        b'>' | b'!' => cfg!(target_endian = "big"),
        _ => true,
    };
    if !native && item_bytes > 1 {
        return None;
    }
    Some(match (letters, item_bytes) {
        (b"?", 1) => DType::Bool,
        (b"b", 1) => DType::I8,
        (b"B", 1) => DType::U8,
        (b"h" | b"i" | b"l" | b"q" | b"n", 2) => DType::I16,
        (b"h" | b"i" | b"l" | b"q" | b"n", 4) => DType::I32,
        (b"h" | b"i" | b"l" | b"q" | b"n", 8) => DType::I64,
        (b"H" | b"I" | b"L" | b"Q" | b"N", 2) => DType::U16,
        (b"H" | b"I" | b"L" | b"Q" | b"N", 4) => DType::U32,
        (b"H" | b"I" | b"L" | b"Q" | b"N", 8) => DType::U64,
        (b"e", 2) => DType::F16,
        (b"f", 4) => DType::F32,
        (b"d", 8) => DType::F64,
        (b"Zf", 8) => DType::Complex64,
        (b"Zd", 16) => DType::Complex128,
        _ => return None,
    })
}

/// What an array says of its elements, if it is an array.
fn array_element_name(object: &Bound<'_, PyAny>) -> Option<String> {
    let py = object.py();
    let dtype = object.getattr(intern!(py, "dtype")).ok()?;
    let name = dtype.getattr(intern!(py, "name")).ok()?.extract::<String>().ok()?;
    let order = dtype.getattr(intern!(py, "byteorder")).ok()?.extract::<String>().ok()?;
    Some(if order == ">" { format!("{name} in big-endian byte order") } else { name })
}
