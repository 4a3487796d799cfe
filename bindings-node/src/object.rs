//! `NativeObject`: a handle on a group or a store of the core.

use std::cell::RefCell;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, JavaScriptClassExt};
use napi_derive::napi;
use polyrank::Error;
use polyrank::calls::Object;
use polyrank::calls::event_loop::group_handles::{add_handle, drop_handle};
use polyrank::calls::event_loop::threads;

use crate::realm::is_ending;
use crate::short::{forget_handle, note_handle};

/// A handle on a group or a store.
#[napi]
pub struct NativeObject {
    type_name: &'static str,
    identity: u64,
    /// None once it is released.
    object: RefCell<Option<Object>>,
}

#[napi]
impl NativeObject {
    /// The interface that it is an object of.
    #[napi(getter, js_name = "type")]
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// A number that no other object of this process ever has.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        // No process makes so many that a number would not say it exactly.
        self.identity as f64
    }

    /// A short description for debugging, the same in every language.
    #[napi]
    pub fn describe(&self) -> String {
        let object = self.object.borrow();
        let released = || format!("{}(released)", self.type_name);
        object.as_ref().map_or_else(released, ToString::to_string)
    }

    /// Releases the object; every later call with this handle fails.
    #[napi]
    pub fn release(&self) {
        match self.object.borrow_mut().take() {
            Some(Object::Group(group)) => {
                forget_handle(&group);
                drop_handle(group, is_ending());
            }
            Some(other) => threads::drop_later(other),
            None => {}
        }
    }
}

impl NativeObject {
    pub(crate) fn new(object: Object) -> NativeObject {
        if let Object::Group(group) = &object {
            add_handle(group.identity());
            note_handle(group);
        }
        NativeObject {
            type_name: object.type_name(),
            identity: object.identity(),
            object: RefCell::new(Some(object)),
        }
    }

    pub(crate) fn into_js(self, env: &Env) -> napi::Result<ClassInstance<'_, NativeObject>> {
        self.into_instance(env)
    }

    /// The object.
    pub(crate) fn object(&self) -> Result<Object, Error> {
        self.object.borrow().clone().ok_or_else(|| Object::released(self.type_name))
    }
}

impl Drop for NativeObject {
    fn drop(&mut self) {
        self.release();
    }
}
