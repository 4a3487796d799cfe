//! A JavaScript value, with the accessors this package needs. Knows nothing of the core.
//!
//! napi-rs has accessors of its own, but copies the name of a property for each access, reads a
//! string in two calls of Node, and creates a thread-safe function for each promise: calls that
//! take microseconds would take noticeably longer.

#![allow(unsafe_code)]

use std::any::TypeId;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;

use napi::bindgen_prelude::{JsValue, Unknown};
use napi::{Env, Error, Result, Status, sys};

/// A value, for as long as the call of JavaScript lasts in which it came.
#[derive(Clone, Copy)]
pub(crate) struct Js<'a> {
    env: sys::napi_env,
    value: sys::napi_value,
    _call: PhantomData<&'a ()>,
}

/// What sort of value it is, as far as this package distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Bool,
    Number,
    BigInt,
    Text,
    Object,
    Other,
}

/// An error of the interface between Node and this package.
pub(super) fn check(status: sys::napi_status) -> Result<()> {
    match status {
        sys::Status::napi_ok => Ok(()),
        other => Err(Error::new(Status::from(other), "a value could not be read or made")),
    }
}

impl<'a> Js<'a> {
    pub(super) fn new(env: sys::napi_env, value: sys::napi_value) -> Js<'a> {
        Js { env, value, _call: PhantomData }
    }

    /// A value that a function of this package was given.
    pub(crate) fn of(value: Unknown<'a>) -> Js<'a> {
        let parts = value.value();
        Js::new(parts.env, parts.value)
    }

    /// An object of a class of this package.
    pub(crate) fn of_instance<'env, T: JsValue<'env>>(instance: &T) -> Js<'a> {
        let parts = instance.value();
        Js::new(parts.env, parts.value)
    }

    /// A value that a function of this package returns.
    pub(crate) fn into_unknown(self) -> Unknown<'a> {
        // SAFETY: both parts came from Node and belong together.
        unsafe { Unknown::from_raw_unchecked(self.env, self.value) }
    }

    pub(crate) fn env(&self) -> Env {
        Env::from_raw(self.env)
    }

    pub(super) fn raw(&self) -> (sys::napi_env, sys::napi_value) {
        (self.env, self.value)
    }

    pub(crate) fn kind(&self) -> Result<Kind> {
        let mut kind = 0;
        // SAFETY: the environment and the value are Node's, of this call, in this function and in
        // all below; places for results are valid for the time of the call.
        check(unsafe { sys::napi_typeof(self.env, self.value, &mut kind) })?;
        Ok(match kind {
            sys::ValueType::napi_undefined | sys::ValueType::napi_null => Kind::Nothing,
            sys::ValueType::napi_boolean => Kind::Bool,
            sys::ValueType::napi_number => Kind::Number,
            sys::ValueType::napi_bigint => Kind::BigInt,
            sys::ValueType::napi_string => Kind::Text,
            sys::ValueType::napi_object => Kind::Object,
            _ => Kind::Other,
        })
    }

    pub(crate) fn is_nothing(&self) -> Result<bool> {
        Ok(self.kind()? == Kind::Nothing)
    }

    pub(crate) fn bool(&self) -> Result<bool> {
        let mut value = false;
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_value_bool(self.env, self.value, &mut value) })?;
        Ok(value)
    }

    pub(crate) fn number(&self) -> Result<f64> {
        let mut value = 0.0;
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_value_double(self.env, self.value, &mut value) })?;
        Ok(value)
    }

    /// A BigInt, if it fits.
    pub(crate) fn big_int(&self) -> Result<Option<i64>> {
        let (mut value, mut is_exact) = (0, false);
        // SAFETY: as in `kind`.
        check(unsafe {
            sys::napi_get_value_bigint_int64(self.env, self.value, &mut value, &mut is_exact)
        })?;
        Ok(is_exact.then_some(value))
    }

    pub(crate) fn text(&self) -> Result<String> {
        let mut short = [0u8; 64];
        let mut len = 0;
        // SAFETY: as in `kind`; at most `short.len()` bytes are written.
        check(unsafe {
            let place = short.as_mut_ptr().cast();
            sys::napi_get_value_string_utf8(self.env, self.value, place, short.len(), &mut len)
        })?;
        // The last byte is a zero; a text that fills the rest may have been cut short.
        if len + 4 < short.len() {
            return Ok(String::from_utf8_lossy(&short[..len]).into_owned());
        }
        // SAFETY: as in `kind`; without a place only the length is written.
        check(unsafe {
            sys::napi_get_value_string_utf8(self.env, self.value, ptr::null_mut(), 0, &mut len)
        })?;
        let mut text = vec![0u8; len + 1];
        // SAFETY: as in `kind`; at most `text.len()` bytes are written.
        check(unsafe {
            let place = text.as_mut_ptr().cast();
            sys::napi_get_value_string_utf8(self.env, self.value, place, text.len(), &mut len)
        })?;
        text.truncate(len);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) fn is_array(&self) -> Result<bool> {
        let mut is = false;
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_is_array(self.env, self.value, &mut is) })?;
        Ok(is)
    }

    /// Length of an array.
    pub(crate) fn len(&self) -> Result<u32> {
        let mut len = 0;
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_array_length(self.env, self.value, &mut len) })?;
        Ok(len)
    }

    /// The elements of an array.
    pub(super) fn items(&self) -> Result<Vec<Js<'a>>> {
        (0..self.len()?).map(|index| self.at(index)).collect()
    }

    /// An element of an array.
    pub(crate) fn at(&self, index: u32) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_element(self.env, self.value, index, &mut value) })?;
        Ok(Js::new(self.env, value))
    }

    /// A property of an object.
    pub(crate) fn get(&self, name: &CStr) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`; the name ends with a zero.
        check(unsafe {
            sys::napi_get_named_property(self.env, self.value, name.as_ptr(), &mut value)
        })?;
        Ok(Js::new(self.env, value))
    }

    /// A property of an object, if it is there and neither undefined nor null.
    pub(crate) fn find(&self, name: &CStr) -> Result<Option<Js<'a>>> {
        let value = self.get(name)?;
        Ok(if value.is_nothing()? { None } else { Some(value) })
    }

    /// The names of an object's own enumerable properties; symbols are not among them.
    pub(crate) fn names(&self) -> Result<Js<'a>> {
        let mut names = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe {
            sys::napi_get_all_property_names(
                self.env,
                self.value,
                sys::KeyCollectionMode::own_only,
                sys::KeyFilter::enumerable | sys::KeyFilter::skip_symbols,
                sys::KeyConversion::numbers_to_strings,
                &mut names,
            )
        })?;
        Ok(Js::new(self.env, names))
    }

    /// A property of an object by a name that is a value.
    pub(crate) fn get_by(&self, name: Js<'a>) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_property(self.env, self.value, name.value, &mut value) })?;
        Ok(Js::new(self.env, value))
    }

    /// Sets a property of an object.
    pub(crate) fn set(&self, name: &CStr, value: Js<'_>) -> Result<()> {
        // SAFETY: as in `kind`; the name ends with a zero.
        check(unsafe {
            sys::napi_set_named_property(self.env, self.value, name.as_ptr(), value.value)
        })
    }

    /// Sets an element of an array.
    pub(crate) fn set_index(&self, index: u32, value: Js<'_>) -> Result<()> {
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_set_element(self.env, self.value, index, value.value) })
    }

    /// Calls a function with one argument.
    pub(crate) fn call(&self, argument: Js<'_>) -> Result<()> {
        let arguments = [argument.value];
        let nothing = Js::nothing(self.env())?;
        let mut result = ptr::null_mut();
        // SAFETY: as in `kind`; there is one argument.
        check(unsafe {
            let (this, function) = (nothing.value, self.value);
            sys::napi_call_function(self.env, this, function, 1, arguments.as_ptr(), &mut result)
        })
    }

    pub(crate) fn nothing(env: Env) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_null(env.raw(), &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    pub(crate) fn of_bool(env: Env, is: bool) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_boolean(env.raw(), is, &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    pub(crate) fn of_number(env: Env, number: f64) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_create_double(env.raw(), number, &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    /// A number if that says it exactly, else a BigInt.
    pub(crate) fn of_integer(env: Env, number: i64) -> Result<Js<'a>> {
        const SAFE: u64 = (1 << 53) - 1;
        if number.unsigned_abs() <= SAFE {
            return Js::of_number(env, number as f64);
        }
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_create_bigint_int64(env.raw(), number, &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    pub(crate) fn of_text(env: Env, text: &str) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        let len = text.len() as isize;
        // SAFETY: as in `kind`; `len` bytes of text can be read.
        check(unsafe {
            sys::napi_create_string_utf8(env.raw(), text.as_ptr().cast(), len, &mut value)
        })?;
        Ok(Js::new(env.raw(), value))
    }

    pub(crate) fn array(env: Env) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_create_array(env.raw(), &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    pub(crate) fn object(env: Env) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_create_object(env.raw(), &mut value) })?;
        Ok(Js::new(env.raw(), value))
    }

    /// An `Error` with this message.
    pub(crate) fn error(env: Env, message: &str) -> Result<Js<'a>> {
        let message = Js::of_text(env, message)?;
        let mut value = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe {
            sys::napi_create_error(env.raw(), ptr::null_mut(), message.value, &mut value)
        })?;
        Ok(Js::new(env.raw(), value))
    }

    /// Forgets an exception that would be thrown as soon as JavaScript runs again.
    pub(crate) fn forget_exception(env: Env) -> Result<()> {
        let mut is_pending = false;
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_is_exception_pending(env.raw(), &mut is_pending) })?;
        if !is_pending {
            return Ok(());
        }
        let mut exception = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_get_and_clear_last_exception(env.raw(), &mut exception) })
    }

    /// Runs `f` in a handle scope.
    pub(crate) fn scope<T>(env: Env, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut scope = ptr::null_mut();
        // SAFETY: as in `kind`.
        check(unsafe { sys::napi_open_handle_scope(env.raw(), &mut scope) })?;
        let result = f();
        // SAFETY: the scope is the innermost one, as `f` closes those that it opens.
        check(unsafe { sys::napi_close_handle_scope(env.raw(), scope) })?;
        result
    }
}

/// A value that is kept from one call to the next, on its own thread.
pub(crate) struct Reference {
    env: sys::napi_env,
    reference: sys::napi_ref,
}

impl Reference {
    pub(crate) fn new(value: Js<'_>) -> Result<Reference> {
        let mut reference = ptr::null_mut();
        // SAFETY: the environment and the value are Node's, of this call.
        check(unsafe { sys::napi_create_reference(value.env, value.value, 1, &mut reference) })?;
        Ok(Reference { env: value.env, reference })
    }

    pub(crate) fn get<'a>(&self) -> Result<Js<'a>> {
        let mut value = ptr::null_mut();
        // SAFETY: a `Reference` stays on the thread of its environment, which outlives it: see
        // `forget`.
        check(unsafe { sys::napi_get_reference_value(self.env, self.reference, &mut value) })?;
        Ok(Js::new(self.env, value))
    }

    /// Releases the value. Without this it is kept until the environment ends.
    pub(crate) fn forget(self) {
        // SAFETY: as in `get`; the reference is not used again. There is nothing to do about a
        // failure.
        let _ = unsafe { sys::napi_delete_reference(self.env, self.reference) };
    }
}

/// A promise that is not settled yet.
pub(crate) struct Deferred(sys::napi_deferred);

// SAFETY: other threads only carry it back to its own, which alone settles it.
unsafe impl Send for Deferred {}

impl Deferred {
    /// A promise, and what settles it.
    pub(crate) fn new<'a>(env: Env) -> Result<(Deferred, Js<'a>)> {
        let (mut deferred, mut promise) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: as in `Js::kind`.
        check(unsafe { sys::napi_create_promise(env.raw(), &mut deferred, &mut promise) })?;
        Ok((Deferred(deferred), Js::new(env.raw(), promise)))
    }

    /// Settles the promise, on its own thread.
    pub(crate) fn settle(self, result: std::result::Result<Js<'_>, Js<'_>>) -> Result<()> {
        // SAFETY: as in `Js::kind`; the promise was not settled before, as this takes `self`.
        check(unsafe {
            match result {
                Ok(Js { env, value, .. }) => sys::napi_resolve_deferred(env, self.0, value),
                Err(Js { env, value, .. }) => sys::napi_reject_deferred(env, self.0, value),
            }
        })
    }
}

/// A value of ours that JavaScript carries around, until its collector drops it. The type of the
/// value stands before it, where it can be read whatever the type is.
#[repr(C)]
struct CarriedValue<T> {
    mark: u64,
    type_id: TypeId,
    value: T,
}

/// What every value of ours begins with: somebody else's is told apart by it.
const MARK: u64 = 0x706f_6c79_7261_6e6b;

impl<'a> Js<'a> {
    /// `value` for JavaScript to carry around.
    pub(crate) fn carrying<T: 'static>(env: Env, value: T) -> Result<Js<'a>> {
        let carried =
            Box::into_raw(Box::new(CarriedValue { mark: MARK, type_id: TypeId::of::<T>(), value }));
        let mut made = ptr::null_mut();
        // SAFETY: as in `kind`; `finish` gets the pointer back once, when nobody has it any more.
        let result = check(unsafe {
            let (data, finish) = (carried.cast::<c_void>(), Some(finish::<T> as Finish));
            sys::napi_create_external(env.raw(), data, finish, ptr::null_mut(), &mut made)
        });
        if let Err(error) = result {
            // SAFETY: Node did not take it.
            drop(unsafe { Box::from_raw(carried) });
            return Err(error);
        }
        Ok(Js::new(env.raw(), made))
    }

    /// The value that JavaScript carries; an error if it is not a `T`.
    pub(crate) fn carried<T: 'static>(&self) -> Result<&'a T> {
        let mut data = ptr::null_mut();
        // SAFETY: as in `kind`; a value that is not an external one is refused.
        check(unsafe { sys::napi_get_value_external(self.env, self.value, &mut data) })?;
        // SAFETY: the JavaScript half of this package has only external values that `carrying`
        // made, which live as long as the JavaScript value, which the running call has. All of
        // them begin with the same fields.
        let head = unsafe { data.cast::<CarriedValue<()>>().as_ref() };
        match head {
            Some(head) if head.mark == MARK && head.type_id == TypeId::of::<T>() => {
                // SAFETY: as above, and it is a `T`.
                Ok(unsafe { &(*data.cast::<CarriedValue<T>>()).value })
            }
            _ => Err(Error::new(Status::InvalidArg, "not a value of this type and package")),
        }
    }
}

type Finish = unsafe extern "C" fn(sys::napi_env, *mut c_void, *mut c_void);

unsafe extern "C" fn finish<T>(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: `data` is what `carrying` gave, and this is called once.
    drop(unsafe { Box::from_raw(data.cast::<CarriedValue<T>>()) });
}
