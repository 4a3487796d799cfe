//! `NativeMemory`: memory of the core, which JavaScript looks at without a copy where it is the
//! host's.

use std::cell::RefCell;

use napi::Env;
use napi::bindgen_prelude::{BigInt, JavaScriptClassExt, Unknown};
use napi_derive::napi;
use polyrank::Region;
use polyrank::calls::event_loop::threads;

use crate::convert::{Js, OwnedMemory, Reference, Weight, invalid, view_of};

/// Memory that operations use in place.
#[napi]
pub struct NativeMemory {
    /// Without bytes once it is released.
    region: RefCell<OwnedMemory>,
    /// The view, once somebody asked for it.
    view: RefCell<Option<Reference>>,
    /// For the collector, which does not see a device's memory.
    weight: RefCell<Option<Weight>>,
}

#[napi]
impl NativeMemory {
    /// Its bytes.
    #[napi(getter)]
    pub fn bytes(&self) -> f64 {
        self.region.borrow().len() as f64
    }

    /// Where it begins.
    #[napi(getter)]
    pub fn address(&self) -> BigInt {
        BigInt::from(self.region.borrow().address() as u64)
    }

    /// Releases it before the collector does. Operations under way keep it.
    #[napi]
    pub fn release(&self) {
        let region = self.region.replace(Region::zeroed(0));
        drop(self.weight.take());
        // The driver may wait until the device has done what it was given.
        if region.device().is_some() {
            threads::drop_later(region);
        }
    }

    /// The memory as a `Uint8Array`, the same one each time.
    #[napi]
    pub fn view<'env>(&self, env: Env) -> napi::Result<Unknown<'env>> {
        let mut view = self.view.borrow_mut();
        if let Some(view) = &*view {
            return Ok(view.get()?.into_unknown());
        }
        let region = self.region();
        if region.device().is_some() {
            return Err(invalid(env, "memory of a device is not the host's to look at"));
        }
        let made = view_of(env, &region)?;
        *view = Some(Reference::new(made)?);
        Ok(made.into_unknown())
    }
}

impl NativeMemory {
    /// Zeroed memory for elements of any type.
    pub(crate) fn new(env: Env, bytes: f64) -> napi::Result<NativeMemory> {
        // More than this no array of JavaScript can have.
        const MAX_BYTES: f64 = (1_u64 << 53) as f64;
        let is_number = bytes.fract() == 0.0 && (0.0..MAX_BYTES).contains(&bytes);
        let region = if is_number { Region::for_elements(bytes as usize) } else { None };
        let lack = || invalid(env, &format!("not enough memory for {bytes} bytes"));
        Ok(NativeMemory::of(region.ok_or_else(lack)?))
    }

    /// Memory that is there.
    pub(crate) fn of(region: Region) -> NativeMemory {
        NativeMemory {
            region: RefCell::new(region),
            view: RefCell::new(None),
            weight: RefCell::new(None),
        }
    }

    /// New memory of a device.
    pub(crate) fn made(env: Env, region: Region) -> NativeMemory {
        let weight = Weight::new(env, region.len());
        let memory = NativeMemory::of(region);
        memory.weight.replace(Some(weight));
        memory
    }

    pub(crate) fn into_js<'a>(self, env: Env) -> napi::Result<Js<'a>> {
        Ok(Js::of_instance(&self.into_instance(&env)?))
    }

    pub(crate) fn region(&self) -> Region {
        self.region.borrow().clone()
    }
}

impl Drop for NativeMemory {
    fn drop(&mut self) {
        self.view.borrow_mut().take().into_iter().for_each(Reference::forget);
        self.release();
    }
}
