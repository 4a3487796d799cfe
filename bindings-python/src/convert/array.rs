//! NumPy arrays without asking NumPy: the fields of an array object, for calls that are over in
//! less time than the buffer protocol takes. Knows nothing of operations.
//!
//! The layout is part of NumPy's C interface and the same in its versions 1 and 2. It is not taken
//! on trust: before the first use an array is made, and what its fields say is compared with what
//! NumPy says. Where they differ, no array is looked at in this way.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use polyrank::DType;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// `PyArrayObject`, as far as it is used.
#[repr(C)]
struct Fields {
    head: ffi::PyObject,
    data: *mut u8,
    dimensions: i32,
    shape: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    element: *const Element,
    flags: i32,
}

/// `PyArray_Descr`, as far as it is used.
#[repr(C)]
struct Element {
    head: ffi::PyObject,
    class: *mut ffi::PyObject,
    kind: u8,
    letter: u8,
    byte_order: u8,
    unused: u8,
    number: i32,
}

const CONTIGUOUS: i32 = 0x1;
const ALIGNED: i32 = 0x100;
const WRITABLE: i32 = 0x400;

/// The memory of a contiguous array of one of the usual types.
#[derive(Clone, Copy)]
pub(super) struct Array {
    pub(super) data: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) dtype: DType,
    pub(super) writable: bool,
    /// The first of its lengths, 1 if it has none.
    pub(super) rows: usize,
}

impl Array {
    /// The memory of `object`, if it is exactly a NumPy array, contiguous, and of a type that NumPy
    /// itself has.
    pub(super) fn of(object: &Borrowed<'_, '_, PyAny>) -> Option<Array> {
        let class = known_class(object)?;
        // SAFETY: the object is alive; its type is compared only.
        if unsafe { ffi::Py_TYPE(object.as_ptr()) } != class {
            return None;
        }
        // SAFETY: it is an array, whose layout `known_class` has checked, and the GIL is held.
        let fields = unsafe { &*object.as_ptr().cast::<Fields>() };
        if fields.flags & (CONTIGUOUS | ALIGNED) != CONTIGUOUS | ALIGNED {
            return None;
        }
        // SAFETY: every array has a descriptor, which lives as long as it.
        let element = unsafe { &*fields.element };
        let dtype = dtype(element)?;
        let dimensions = usize::try_from(fields.dimensions).ok()?;
        let shape: &[isize] = match dimensions {
            0 => &[],
            // SAFETY: an array has as many lengths as dimensions.
            _ => unsafe { std::slice::from_raw_parts(fields.shape, dimensions) },
        };
        let elements = shape.iter().try_fold(1_usize, |product, &length| {
            product.checked_mul(usize::try_from(length).ok()?)
        })?;
        Some(Array {
            data: NonNull::new(fields.data)?,
            bytes: elements.checked_mul(dtype.size_bytes())?,
            dtype,
            writable: fields.flags & WRITABLE != 0,
            rows: shape.first().map_or(Some(1), |&rows| usize::try_from(rows).ok())?,
        })
    }

    /// Whether both have a byte in common.
    pub(super) fn overlaps(&self, other: &Array) -> bool {
        let (a, b) = (self.data.as_ptr() as usize, other.data.as_ptr() as usize);
        a < b + other.bytes && b < a + self.bytes
    }
}

fn dtype(element: &Element) -> Option<DType> {
    if !matches!(element.byte_order, b'=' | b'|') {
        return None;
    }
    Some(match (element.number, element.kind) {
        (0, b'b') => DType::Bool,
        (1, b'i') => DType::I8,
        (2, b'u') => DType::U8,
        (3, b'i') => DType::I16,
        (4, b'u') => DType::U16,
        (5, b'i') => DType::I32,
        (6, b'u') => DType::U32,
        (7 | 9, b'i') => DType::I64,
        (8 | 10, b'u') => DType::U64,
        (11, b'f') => DType::F32,
        (12, b'f') => DType::F64,
        (14, b'c') => DType::Complex64,
        (15, b'c') => DType::Complex128,
        (23, b'f') => DType::F16,
        _ => return None,
    })
}

/// NumPy's array type, if `object` is an array, or was one before, and the layout is as expected.
fn known_class(object: &Borrowed<'_, '_, PyAny>) -> Option<*mut ffi::PyTypeObject> {
    static KNOWN: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();
    let py = object.py();
    let known = match KNOWN.get(py) {
        Some(known) => known,
        None => {
            let class = object.get_type();
            let is_array = class.name().is_ok_and(|name| name == "ndarray")
                && class.module().is_ok_and(|module| module == "numpy");
            if !is_array {
                return None;
            }
            // Free-threaded builds have other heads, and `long` is not 64 bits everywhere.
            let expected = cfg!(all(target_os = "linux", target_pointer_width = "64"));
            let checked = (expected && check(&class).unwrap_or(false)).then(|| class.unbind());
            KNOWN.get_or_init(py, || checked)
        }
    };
    known.as_ref().map(|class| class.as_ptr().cast())
}

/// Whether the fields of a new array are what NumPy says of it.
fn check(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let probe = class.call1(((3, 5), "f8"))?;
    let interface = probe.getattr(intern!(py, "__array_interface__"))?;
    let (address, read_only): (usize, bool) = interface.get_item("data")?.extract()?;
    let element = probe.getattr(intern!(py, "dtype"))?;
    let number: i32 = element.getattr(intern!(py, "num"))?.extract()?;
    let kind: char = element.getattr(intern!(py, "kind"))?.extract()?;
    let flags: i32 = probe.getattr(intern!(py, "flags"))?.getattr(intern!(py, "num"))?.extract()?;
    let size = class.getattr(intern!(py, "__basicsize__"))?.extract::<usize>()?;
    if size < size_of::<Fields>() {
        return Err(PyTypeError::new_err("array objects are too small"));
    }
    // SAFETY: the object is large enough, and every field is read as plain bits; the pointers are
    // followed only where NumPy has confirmed what they must be.
    let fields = unsafe { &*probe.as_ptr().cast::<Fields>() };
    if fields.element.cast::<ffi::PyObject>() != element.as_ptr().cast_const() {
        return Ok(false);
    }
    let is_plain = fields.dimensions == 2
        && fields.data as usize == address
        && fields.flags == flags
        && (fields.flags & WRITABLE != 0) != read_only
        && !fields.shape.is_null();
    // SAFETY: it is the object that NumPy returns as the element type.
    let element = unsafe { &*fields.element };
    // SAFETY: an array of two dimensions has two lengths.
    Ok(is_plain
        && unsafe { (*fields.shape, *fields.shape.add(1)) } == (3, 5)
        && (element.number, char::from(element.kind), element.byte_order) == (number, kind, b'='))
}
