//! `NativeMemory`: memory of the core that JavaScript looks at without a copy.

use std::cell::RefCell;

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polyrank::{Error, Region};

use crate::convert::{Kept, Owned, raise, view_of};

/// Memory that operations use in place.
#[napi]
pub struct NativeMemory {
    region: Owned,
    /// The view, once somebody asked for it.
    view: RefCell<Option<Kept>>,
}

#[napi]
impl NativeMemory {
    /// Its bytes.
    #[napi(getter)]
    pub fn bytes(&self) -> f64 {
        self.region.len() as f64
    }

    /// The memory as a `Uint8Array`, the same one each time.
    #[napi]
    pub fn view<'env>(&self, env: Env) -> napi::Result<Unknown<'env>> {
        let mut view = self.view.borrow_mut();
        if let Some(view) = &*view {
            return Ok(view.get()?.into_unknown());
        }
        let made = view_of(env, &self.region)?;
        *view = Some(Kept::new(made)?);
        Ok(made.into_unknown())
    }
}

impl NativeMemory {
    /// Zeroed memory for elements of any type.
    pub(crate) fn new(env: Env, bytes: f64) -> napi::Result<NativeMemory> {
        // More than this no array of JavaScript can have.
        const MOST_BYTES: f64 = (1_u64 << 53) as f64;
        let is_number = bytes.fract() == 0.0 && (0.0..MOST_BYTES).contains(&bytes);
        let region = if is_number { Region::for_elements(bytes as usize) } else { None };
        let region = region.ok_or_else(|| {
            let message = format!("there is no memory for {bytes} bytes");
            raise(env, &Error::InvalidArgument { message })
        })?;
        Ok(NativeMemory { region, view: RefCell::new(None) })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

impl Drop for NativeMemory {
    fn drop(&mut self) {
        self.view.borrow_mut().take().into_iter().for_each(Kept::forget);
    }
}
