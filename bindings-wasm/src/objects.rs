//! Handles on objects of the core that JavaScript holds. Knows nothing of methods.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use js_sys::Reflect;
use polyrank::calls::Object;
use polyrank::{Error, Result};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

thread_local! {
    static OBJECTS: RefCell<HashMap<u32, Object>> = RefCell::default();
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// A group or a store. Opaque: its methods are called by name.
#[wasm_bindgen]
pub struct NativeObject {
    slot: u32,
    type_name: &'static str,
    id: f64,
}

#[wasm_bindgen]
impl NativeObject {
    /// The interface of the IDL that it is an object of.
    #[wasm_bindgen(getter, js_name = "type")]
    pub fn type_name(&self) -> String {
        self.type_name.to_owned()
    }

    /// A number that is the object's own in this realm, as long as there is a handle on it.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> f64 {
        self.id
    }

    /// A number that is this handle's own.
    #[wasm_bindgen(getter)]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Lets go of the object. Later calls on this handle fail.
    pub fn release(&self) {
        OBJECTS.with_borrow_mut(|objects| objects.remove(&self.slot));
    }
}

impl NativeObject {
    /// A handle on `object`.
    pub(crate) fn new(object: Object) -> NativeObject {
        let slot = LAST.get().wrapping_add(1);
        LAST.set(slot);
        // Numbers are given one after the other, and never reach 2^53.
        let (type_name, id) = (object.type_name(), object.identity() as f64);
        OBJECTS.with_borrow_mut(|objects| objects.insert(slot, object));
        NativeObject { slot, type_name, id }
    }
}

impl Drop for NativeObject {
    fn drop(&mut self) {
        self.release();
    }
}

/// The object of a handle that was given; none for null.
///
/// # Errors
/// [`Error::InvalidType`] for a handle that has let go of its object, or none.
pub(crate) fn given(handle: &JsValue) -> Result<Option<Object>> {
    if handle.is_null() || handle.is_undefined() {
        return Ok(None);
    }
    let slot = Reflect::get(handle, &"slot".into()).ok().and_then(|slot| slot.as_f64());
    let find = |slot| OBJECTS.with_borrow(|objects| objects.get(&slot).cloned());
    let found = slot.and_then(|slot| find(slot as u32));
    let released = || Error::InvalidType { message: "the object was released".to_owned() };
    found.map(Some).ok_or_else(released)
}
