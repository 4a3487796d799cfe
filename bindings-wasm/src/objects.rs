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
    id: u32,
    type_name: &'static str,
}

#[wasm_bindgen]
impl NativeObject {
    /// The interface of the IDL that it is an object of.
    #[wasm_bindgen(getter, js_name = "type")]
    pub fn type_name(&self) -> String {
        self.type_name.to_owned()
    }

    /// Its number in this realm.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lets go of the object. Later calls on this handle fail.
    pub fn release(&self) {
        OBJECTS.with_borrow_mut(|objects| objects.remove(&self.id));
    }
}

impl NativeObject {
    /// A handle on `object`.
    pub(crate) fn new(object: Object) -> NativeObject {
        let id = LAST.get().wrapping_add(1);
        LAST.set(id);
        let type_name = object.type_name();
        OBJECTS.with_borrow_mut(|objects| objects.insert(id, object));
        NativeObject { id, type_name }
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
    let id = Reflect::get(handle, &"id".into()).ok().and_then(|id| id.as_f64());
    let found = id.and_then(|id| find(id as u32));
    let released = || Error::InvalidType { message: "the object was released".to_owned() };
    found.map(Some).ok_or_else(released)
}

/// The object of this number, if its handle has not let go of it.
pub(crate) fn find(id: u32) -> Option<Object> {
    OBJECTS.with_borrow(|objects| objects.get(&id).cloned())
}
