//! Views on a JavaScript thread's memory, for the moment of a copy. Knows nothing of tensors.
//!
//! Nobody but this thread touches an ArrayBuffer, and it does not run JavaScript meanwhile: its
//! memory can be lent as a slice. A SharedArrayBuffer other threads write to at any time: it is
//! copied by atomic loads and stores, which give any of the values that were there.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::{ptr, slice};

use napi::{Result, sys};
use polyrank::calls::staged::{CallerMemory, Loan, copy_part};
use polyrank::{DType, Region};

use super::js::{Js, check};
use super::shared::SharedBytes;

/// The memory of a `Uint8Array` as it is now. JavaScript must not run while it is used.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    start: *mut u8,
    bytes: usize,
    /// Whether other threads may have it, too.
    shared: bool,
    _call: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// The memory of a `Uint8Array`; without bytes if that was detached. None of another value.
    pub(crate) fn of(value: Js<'a>) -> Result<Option<View<'a>>> {
        let found = View::of_array(value)?;
        Ok(found.filter(|(kind, _)| *kind == sys::TypedarrayType::uint8_array).map(|(_, it)| it))
    }

    /// The memory of a typed array whose elements have a type of the core, and that type.
    pub(crate) fn of_elements(value: Js<'a>) -> Result<Option<(DType, View<'a>)>> {
        let Some((kind, view)) = View::of_array(value)? else { return Ok(None) };
        Ok(element_type(kind).map(|dtype| (dtype, view)))
    }

    fn of_array(value: Js<'a>) -> Result<Option<(sys::napi_typedarray_type, View<'a>)>> {
        let (env, value) = value.raw();
        let mut is = false;
        // SAFETY: the environment and the value are Node's, of this call, here and below; places
        // for results are valid.
        check(unsafe { sys::napi_is_typedarray(env, value, &mut is) })?;
        if !is {
            return Ok(None);
        }
        let (mut kind, mut elements, mut start) = (0, 0, ptr::null_mut());
        let mut buffer = ptr::null_mut();
        // SAFETY: as above; what is not asked for may be null.
        check(unsafe {
            sys::napi_get_typedarray_info(
                env,
                value,
                &mut kind,
                &mut elements,
                &mut start,
                &mut buffer,
                ptr::null_mut(),
            )
        })?;
        let Some(dtype) = element_type(kind) else { return Ok(None) };
        let bytes = if start.is_null() { 0 } else { elements * dtype.size_bytes() };
        let mut alone = false;
        // SAFETY: as above; the buffer is Node's. A SharedArrayBuffer is not an ArrayBuffer to it.
        check(unsafe { sys::napi_is_arraybuffer(env, buffer, &mut alone) })?;
        let view = View { start: start.cast(), bytes, shared: !alone, _call: PhantomData };
        Ok(Some((kind, view)))
    }

    /// Where it begins; to tell which arrays share memory.
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// Whether any byte of one is also a byte of the other.
    pub(crate) fn overlaps(&self, other: &View<'_>) -> bool {
        let (one, two) = (self.start.addr(), other.start.addr());
        one < two + other.bytes && two < one + self.bytes
    }

    /// A copy of it.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        self.read(0, &mut copy);
        copy
    }
}

impl CallerMemory for View<'_> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        let last = at.checked_add(into.len());
        assert!(last.is_some_and(|last| last <= self.bytes), "a read outside of the array");
        if into.is_empty() {
            return;
        }
        // SAFETY: in bounds, as was just checked, of memory that is there as long as JavaScript
        // does not run.
        let start = unsafe { self.start.add(at) };
        if self.shared {
            // SAFETY: as above, for as many bytes.
            unsafe { SharedBytes::new(start, into.len()) }.load(into);
        } else {
            // SAFETY: as above; nobody writes to it meanwhile.
            let from = unsafe { slice::from_raw_parts(start, into.len()) };
            copy_part(into, from, self.bytes);
        }
    }

    fn write(&self, at: usize, from: &[u8]) {
        let last = at.checked_add(from.len());
        assert!(last.is_some_and(|last| last <= self.bytes), "a write outside of the array");
        if from.is_empty() {
            return;
        }
        // SAFETY: as in `read`.
        let start = unsafe { self.start.add(at) };
        if self.shared {
            // SAFETY: as in `read`.
            unsafe { SharedBytes::new(start, from.len()) }.store(from);
        } else {
            // SAFETY: as in `read`; nobody else looks at it meanwhile.
            let into = unsafe { slice::from_raw_parts_mut(start, from.len()) };
            copy_part(into, from, self.bytes);
        }
    }

    fn lend(&self, region: &Region) -> Option<Loan> {
        if self.shared || region.len() != self.bytes {
            return None;
        }
        let start = NonNull::new(self.start)?;
        // SAFETY: the memory has as many bytes. It is an ArrayBuffer's, which nobody but this
        // thread reads, writes, detaches or resizes, and JavaScript does not run while a view is
        // used: the caller gives the loan back before that.
        unsafe { Loan::new(region, start) }
    }
}

/// The type of the elements of a typed array of this kind; a `Float16Array` has none to Node.
fn element_type(kind: sys::napi_typedarray_type) -> Option<DType> {
    use sys::TypedarrayType as Kind;
    Some(match kind {
        Kind::int8_array => DType::I8,
        Kind::uint8_array | Kind::uint8_clamped_array => DType::U8,
        Kind::int16_array => DType::I16,
        Kind::uint16_array => DType::U16,
        Kind::int32_array => DType::I32,
        Kind::uint32_array => DType::U32,
        Kind::float32_array => DType::F32,
        Kind::float64_array => DType::F64,
        Kind::bigint64_array => DType::I64,
        Kind::biguint64_array => DType::U64,
        _ => return None,
    })
}

/// The views of a list of arrays; what is not a `Uint8Array` has no bytes.
pub(crate) fn views<'a>(list: Js<'a>) -> Result<Vec<View<'a>>> {
    if list.is_nothing()? {
        return Ok(Vec::new());
    }
    let nothing = View { start: ptr::null_mut(), bytes: 0, shared: false, _call: PhantomData };
    let views = (0..list.len()?).map(|index| Ok(View::of(list.at(index)?)?.unwrap_or(nothing)));
    views.collect()
}
