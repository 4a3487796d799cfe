//! Memory of the core that JavaScript looks at, and `Uint8Array`s. Knows nothing of tensors.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use napi::{Env, Result, sys};
use polyrank::Region;

use super::js::{Js, check};

/// Memory of the core that stays where it is while JavaScript looks at it.
pub(crate) type OwnedMemory = Region;

/// A `Uint8Array` over the memory of `region`, which lives as long as that does.
pub(crate) fn view_of<'a>(env: Env, region: &OwnedMemory) -> Result<Js<'a>> {
    let bytes = region.len();
    let mut buffer = ptr::null_mut();
    let keep = Box::into_raw(Box::new(region.clone()));
    let start = region.address() as *mut c_void;
    // SAFETY: the region that `keep` owns keeps the memory until `release` is called, which Node
    // does once, when nothing looks at the memory any more. JavaScript may write to it at any time:
    // a program that hands it to operations knows that it is shared.
    //
    // Memory that Node did not take it may have released all the same: nothing is done about that.
    check(unsafe {
        let (hint, finish) = (keep.cast::<c_void>(), Some(release as Finish));
        sys::napi_create_external_arraybuffer(env.raw(), start, bytes, finish, hint, &mut buffer)
    })?;
    array(env, buffer, bytes)
}

/// A `Uint8Array` with a copy of `bytes`.
pub(super) fn copy_of<'a>(env: Env, bytes: &[u8]) -> Result<Js<'a>> {
    let (mut start, mut buffer) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the environment is Node's, of this call; places for results are valid.
    check(unsafe {
        sys::napi_create_arraybuffer(env.raw(), bytes.len(), &mut start, &mut buffer)
    })?;
    if !bytes.is_empty() {
        // SAFETY: the new buffer has so many bytes, and nobody else knows it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
    }
    array(env, buffer, bytes.len())
}

fn array<'a>(env: Env, buffer: sys::napi_value, bytes: usize) -> Result<Js<'a>> {
    let mut view = ptr::null_mut();
    // SAFETY: the buffer is one of this environment, of so many bytes.
    check(unsafe {
        let kind = sys::TypedarrayType::uint8_array;
        sys::napi_create_typedarray(env.raw(), kind, bytes, buffer, 0, &mut view)
    })?;
    Ok(Js::new(env.raw(), view))
}

type Finish = unsafe extern "C" fn(sys::napi_env, *mut c_void, *mut c_void);

/// Called by Node when the buffer is gone.
unsafe extern "C" fn release(_: sys::napi_env, _: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is what `view_of` gave, and this is called once.
    drop(unsafe { Box::from_raw(hint.cast::<Region>()) });
}
