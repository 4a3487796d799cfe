//! Handles on objects of the core that JavaScript holds. Knows nothing of methods.

use std::cell::RefCell;

use js_sys::Reflect;
use polyrank::calls::Object;
use polyrank::calls::staged::ShortGroups;
use polyrank::{ProcessGroup, Result};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert;
use crate::events::note_failed;
use crate::numbered::Numbered;

thread_local! {
    static OBJECTS: RefCell<Numbered<Object>> = const { RefCell::new(Numbered::new()) };
    /// The groups among them.
    static GROUPS: RefCell<ShortGroups> = const { RefCell::new(ShortGroups::new()) };
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

    /// Releases the object. Later calls on this handle fail.
    pub fn release(&self) {
        let object = OBJECTS.with_borrow_mut(|objects| objects.remove(self.slot));
        if let Some(Object::Group(group)) = &object {
            GROUPS.with_borrow_mut(|groups| groups.remove(group));
        }
    }
}

impl NativeObject {
    /// A handle on `object`.
    pub(crate) fn new(object: Object) -> NativeObject {
        // Numbers are given one after the other, and never reach 2^53.
        let (type_name, id) = (object.type_name(), object.identity() as f64);
        if let Object::Group(group) = &object {
            GROUPS.with_borrow_mut(|groups| groups.add(group));
        }
        let slot = OBJECTS.with_borrow_mut(|objects| objects.add(object));
        NativeObject { slot, type_name, id }
    }
}

impl Drop for NativeObject {
    fn drop(&mut self) {
        self.release();
    }
}

/// Tells once that a group failed, unless by this rank's own will, as `onCompleted` tells of works:
/// by its number with a minus.
///
/// # Errors
/// Those of a handle that is none of a group.
#[wasm_bindgen(js_name = watchFailure)]
pub fn watch_failure(handle: &JsValue) -> std::result::Result<(), JsValue> {
    let watch = || -> Result<()> {
        let object = given(handle)?.ok_or_else(Object::not_a_handle)?;
        let group = object.group()?;
        let number = group.identity();
        // Its only hook: those of JavaScript are kept there.
        group.register_abort_hook(0, move || note_failed(number));
        Ok(())
    };
    watch().map_err(|error| convert::error(&error))
}

/// A number of the members that a group has now.
///
/// # Errors
/// That they are others than the `known` ones, for which `operation` was prepared, if there are
/// such; those of a handle that is none of a group.
#[wasm_bindgen(js_name = checkMembers)]
pub fn check_members(
    handle: &JsValue,
    known: Option<f64>,
    operation: &str,
) -> std::result::Result<f64, JsValue> {
    let check = || {
        let object = given(handle)?.ok_or_else(Object::not_a_handle)?;
        object.check_members(known.map(|known| known as u64), operation)
    };
    check().map(|epoch| epoch as f64).map_err(|error| convert::error(&error))
}

/// The group of this number that JavaScript has a handle on; 0 stands for the default group.
pub(crate) fn group(number: f64) -> Option<ProcessGroup> {
    GROUPS.with_borrow(|groups| groups.get(number))
}

/// The object of a handle that was given; none for null.
///
/// # Errors
/// [`Error::InvalidArgument`](polyrank::Error::InvalidArgument) for a handle whose object was
/// released; [`Error::InvalidType`](polyrank::Error::InvalidType) for what is not a handle.
pub(crate) fn given(handle: &JsValue) -> Result<Option<Object>> {
    if handle.is_null() || handle.is_undefined() {
        return Ok(None);
    }
    let property = |name: &str| Reflect::get(handle, &name.into()).ok();
    let slot = property("slot").and_then(|slot| slot.as_f64()).ok_or_else(Object::not_a_handle)?;
    let found = OBJECTS.with_borrow(|objects| objects.get(slot as u32).cloned());
    let type_name = || property("type").and_then(|name| name.as_string()).unwrap_or_default();
    found.map(Some).ok_or_else(|| Object::released(&type_name()))
}
