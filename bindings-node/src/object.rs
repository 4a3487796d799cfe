//! `NativeObject`: a handle on a group or a store of the core.

use std::cell::RefCell;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, JavaScriptClassExt};
use napi_derive::napi;
use polyrank::Error;
use polyrank::calls::Object;

use crate::threads;

/// A handle on a group or a store.
#[napi]
pub struct NativeObject {
    type_name: &'static str,
    identity: usize,
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

    /// A number that is the object's own, as long as it is there.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        // Addresses have fewer bits than a number says exactly.
        self.identity as f64
    }

    /// Lets go of the object; every later call with this handle fails.
    #[napi]
    pub fn release(&self) {
        self.object.borrow_mut().take().into_iter().for_each(threads::drop_later);
    }
}

impl NativeObject {
    pub(crate) fn new(object: Object) -> NativeObject {
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
        self.object.borrow().clone().ok_or_else(|| Error::InvalidArgument {
            message: format!("the {} was released", self.type_name),
        })
    }
}

impl Drop for NativeObject {
    fn drop(&mut self) {
        self.release();
    }
}
