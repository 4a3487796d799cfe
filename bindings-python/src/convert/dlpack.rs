//! Tensors of other libraries through DLPack: the C exchange table of a type where it has one,
//! `__dlpack__` otherwise. Knows nothing of operations.
//!
//! Layouts are those of `dlpack.h` 1.3; a table or a tensor of another major version is refused.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use polyrank::{DType, OnDevice};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::cuda;
use super::exception::invalid;
use super::layout::{Layout, unsupported_element};
use super::lease::Lease;

const MAJOR_VERSION: u32 = 1;
const FLAG_READ_ONLY: u64 = 1;
const FLAG_COPIED: u64 = 2;

const UNVERSIONED: &CStr = c"dltensor";
const UNVERSIONED_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const EXCHANGE_TABLE: &CStr = c"dlpack_exchange_api";

#[repr(C)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct View {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    element_type: ElementType,
    shape: *const i64,
    /// In elements; null if contiguous.
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    view: View,
    producer: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedVersioned {
    version: Version,
    producer: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    view: View,
}

/// A tensor whose consumer calls its deleter, once.
trait Exported: Sized {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Exported for Managed {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Managed)> {
        self.deleter
    }
}

impl Exported for ManagedVersioned {
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut ManagedVersioned)> {
        self.deleter
    }
}

/// `DLPackExchangeAPI`. Tables live as long as the process.
#[repr(C)]
pub(super) struct ExchangeTable {
    version: Version,
    previous: *const ExchangeTable,
    allocate: *const c_void,
    managed_from_object:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut ManagedVersioned) -> c_int>,
    managed_to_object: *const c_void,
    view_from_object: *const c_void,
    current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: tables are constant, and their functions are called with the GIL held.
unsafe impl Send for ExchangeTable {}
// SAFETY: as above.
unsafe impl Sync for ExchangeTable {}

/// The exchange table of a type, if it has one that can be used. A miss costs an AttributeError,
/// so callers cache the answer.
pub(super) fn exchange_table(class: &Bound<'_, PyAny>) -> Option<&'static ExchangeTable> {
    let capsule = class.getattr(intern!(class.py(), "__dlpack_c_exchange_api__")).ok()?;
    let capsule = capsule.cast_into::<PyCapsule>().ok()?;
    let mut table = capsule.pointer_checked(Some(EXCHANGE_TABLE)).ok()?.cast::<ExchangeTable>();
    loop {
        // SAFETY: the name says what the capsule points to, tables are static by the protocol, and
        // the version stands first in every version.
        let header: &'static ExchangeTable = unsafe { table.as_ref() };
        if header.version.major == MAJOR_VERSION {
            return header.managed_from_object.map(|_| header);
        }
        table = NonNull::new(header.previous.cast_mut())?;
    }
}

/// The memory of `object`, whose type has this exchange table.
pub(super) fn from_table(
    object: &Bound<'_, PyAny>,
    table: &'static ExchangeTable,
) -> PyResult<(Layout, Lease)> {
    let mut managed = std::ptr::null_mut();
    let convert = table
        .managed_from_object
        .ok_or_else(|| PyTypeError::new_err("the DLPack exchange table is incomplete"))?;
    // SAFETY: `object` is an instance of the type that published the table, the GIL is held, and
    // `managed` is written on success only.
    let failed = unsafe { convert(object.as_ptr().cast(), &raw mut managed) } != 0;
    match NonNull::new(managed) {
        Some(managed) if !failed => {
            adopt_versioned(object, managed, |index| stream_of_table(object, table, index))
        }
        _ => Err(PyErr::take(object.py())
            .unwrap_or_else(|| PyValueError::new_err("the DLPack exchange table gave no tensor"))),
    }
}

/// The memory of `object` through its method `__dlpack__`.
pub(super) fn from_method(object: &Bound<'_, PyAny>) -> PyResult<(Layout, Lease)> {
    let py = object.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), (1, 1))?;
    let stream = match cuda::index_of(object) {
        None => 0,
        Some(index) => {
            let stream = cuda::current_stream(&object.get_type(), index)?;
            // The exporter has what it issued before come first, if it is on another stream.
            keywords.set_item(intern!(py, "stream"), stream.max(cuda::LEGACY_STREAM))?;
            stream
        }
    };
    let method = object.getattr(intern!(py, "__dlpack__"))?;
    let capsule = match method.call((), Some(&keywords)) {
        // Producers of before DLPack 1.0 do not know the keyword.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            keywords.del_item(intern!(py, "max_version"))?;
            method.call((), Some(&keywords))?
        }
        other => other?,
    };
    let capsule = capsule.cast_into::<PyCapsule>()?;
    if let Ok(managed) = capsule.pointer_checked(Some(VERSIONED)) {
        consume(&capsule, VERSIONED_USED)?;
        adopt_versioned(object, managed.cast(), |_| Ok(stream))
    } else {
        let managed = capsule.pointer_checked(Some(UNVERSIONED))?;
        consume(&capsule, UNVERSIONED_USED)?;
        adopt(object, managed.cast(), stream)
    }
}

/// The stream on which the exporter of this table works with its tensors of a CUDA device.
pub(super) fn stream_of_table(
    object: &Bound<'_, PyAny>,
    table: &ExchangeTable,
    index: u32,
) -> PyResult<usize> {
    let Some(current) = table.current_stream else { return Ok(0) };
    let mut stream = std::ptr::null_mut();
    // SAFETY: the table is complete, and the last argument is where a handle goes.
    match unsafe { current(cuda::KIND, index as i32, &raw mut stream) } {
        0 => Ok(stream as usize),
        _ => Err(PyErr::take(object.py())
            .unwrap_or_else(|| PyValueError::new_err("the DLPack exchange table gave no stream"))),
    }
}

/// Renames the capsule, which tells its destructor that the tensor has a new owner.
fn consume(capsule: &Bound<'_, PyCapsule>, used: &'static CStr) -> PyResult<()> {
    // SAFETY: it is a capsule, and the name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    Ok(())
}

/// Keeps a tensor that was exported for this consumer alone.
fn lease<T: Exported>(tensor: NonNull<T>) -> Lease {
    unsafe fn delete<T: Exported>(tensor: NonNull<c_void>) {
        let tensor = tensor.cast::<T>().as_ptr();
        // SAFETY: it is the tensor of the lease, which is valid until its deleter is called.
        if let Some(deleter) = unsafe { (*tensor).deleter() } {
            // SAFETY: as above; the lease calls this once, with the GIL held.
            unsafe { deleter(tensor) };
        }
    }
    // SAFETY: by the protocol the deleter is its consumer's to call, on any thread with the GIL.
    unsafe { Lease::exported(tensor.cast(), delete::<T>) }
}

fn adopt(
    object: &Bound<'_, PyAny>,
    managed: NonNull<Managed>,
    stream: usize,
) -> PyResult<(Layout, Lease)> {
    let lease = lease(managed);
    // SAFETY: the tensor is valid until its deleter is called, which `lease` does.
    let view = unsafe { &managed.as_ref().view };
    // Producers of unversioned tensors cannot say that the memory is read-only, and refuse to
    // export it.
    Ok((layout(object, view, false, |_| Ok(stream))?, lease))
}

fn adopt_versioned(
    object: &Bound<'_, PyAny>,
    managed: NonNull<ManagedVersioned>,
    stream_of: impl FnOnce(u32) -> PyResult<usize>,
) -> PyResult<(Layout, Lease)> {
    // SAFETY: the version stands first in every version, then the deleter, in every version from
    // 1.0 on.
    let tensor = unsafe { managed.as_ref() };
    let lease = lease(managed);
    if tensor.version.major != MAJOR_VERSION {
        let what = format!(
            "{} exports DLPack {}.{}, but only version {MAJOR_VERSION} is known",
            object.get_type().name()?,
            tensor.version.major,
            tensor.version.minor
        );
        return Err(invalid(object.py(), what));
    }
    // What is written to a copy is lost, so a copy serves as input only.
    let read_only = tensor.flags & (FLAG_READ_ONLY | FLAG_COPIED) != 0;
    Ok((layout(object, &tensor.view, read_only, stream_of)?, lease))
}

fn layout(
    object: &Bound<'_, PyAny>,
    view: &View,
    read_only: bool,
    stream_of: impl FnOnce(u32) -> PyResult<usize>,
) -> PyResult<Layout> {
    let device = match (view.device.kind, u32::try_from(view.device.index)) {
        // Host memory, page-locked for CUDA, page-locked for ROCm.
        (1 | 3 | 11, _) => None,
        (cuda::KIND, Ok(index)) => Some(OnDevice { index, stream: stream_of(index)? }),
        _ => {
            let what = format!(
                "{} lies on {}, but only tensors in host memory and on CUDA devices can be taken",
                object.get_type().name()?,
                device_name(&view.device)
            );
            return Err(invalid(object.py(), what));
        }
    };
    let Some(dtype) = dtype(&view.element_type) else {
        let ElementType { code, bits, lanes } = view.element_type;
        return Err(unsupported_element(
            object,
            &format!("DLPack type code {code}, {bits} bits, {lanes} lanes"),
        ));
    };
    let dimensions = usize::try_from(view.dimensions)
        .map_err(|_| PyValueError::new_err("DLPack tensor with a negative number of dimensions"))?;
    let shape = list(view.shape, dimensions)
        .unwrap_or_default()
        .iter()
        .map(|&length| usize::try_from(length))
        .collect::<Result<Vec<usize>, _>>()
        .map_err(|_| PyValueError::new_err("DLPack tensor with a negative dimension"))?;
    if shape.len() != dimensions {
        return Err(PyValueError::new_err("DLPack tensor without a shape"));
    }
    let strides =
        list(view.strides, dimensions).map(|strides| strides.iter().map(|&s| s as isize).collect());
    let data = view.data.cast::<u8>().wrapping_add(view.byte_offset as usize);
    Ok(Layout { data, dtype, shape, strides, read_only, device })
}

/// `count` numbers at `numbers`; none if the pointer is null.
fn list<'a>(numbers: *const i64, count: usize) -> Option<&'a [i64]> {
    // SAFETY: shape and strides have as many entries as the tensor has dimensions, or are null; the
    // slices do not leave `layout`, during which the tensor lives.
    (!numbers.is_null()).then(|| unsafe { std::slice::from_raw_parts(numbers, count) })
}

fn dtype(element: &ElementType) -> Option<DType> {
    if element.lanes != 1 {
        return None;
    }
    Some(match (element.code, element.bits) {
        (0, 8) => DType::I8,
        (0, 16) => DType::I16,
        (0, 32) => DType::I32,
        (0, 64) => DType::I64,
        (1, 8) => DType::U8,
        (1, 16) => DType::U16,
        (1, 32) => DType::U32,
        (1, 64) => DType::U64,
        (2, 16) => DType::F16,
        (2, 32) => DType::F32,
        (2, 64) => DType::F64,
        (4, 16) => DType::Bf16,
        (5, 64) => DType::Complex64,
        (5, 128) => DType::Complex128,
        (6, 8) => DType::Bool,
        _ => return None,
    })
}

fn device_name(device: &Device) -> String {
    let name = match device.kind {
        2 => "cuda",
        4 => "opencl",
        7 => "vulkan",
        8 => "metal",
        10 => "rocm",
        13 => "cuda (managed memory)",
        14 => "oneapi",
        15 => "webgpu",
        other => return format!("DLPack device type {other}, index {}", device.index),
    };
    format!("{name}:{}", device.index)
}
