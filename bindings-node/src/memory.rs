//! `NativeMemory`: memory of the core, which JavaScript looks at without a copy where it is the
//! host's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

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
    /// Where the arrays that look at it lie, once there are any.
    looked_at: Cell<Option<usize>>,
}

/// Memory that arrays look at, or did before it was released, which it has no bytes after.
struct Home {
    bytes: usize,
    region: Region,
}

thread_local! {
    /// What arrays of this thread look at, by where it begins.
    static HOMES: RefCell<BTreeMap<usize, Home>> = const { RefCell::new(BTreeMap::new()) };
}

/// The part of a memory of this thread that lies in these bytes; `None` if they lie in none. An
/// error if the memory was released, or is not where elements of this size are whole.
pub(crate) fn home_of(
    address: usize,
    bytes: usize,
    element_bytes: usize,
) -> Result<Option<Region>, NotWhole> {
    HOMES.with_borrow(|homes| {
        let Some((start, home)) = homes.range(..=address).next_back() else { return Ok(None) };
        let from = address - start;
        if from + bytes > home.bytes {
            return Ok(None);
        }
        let is_whole = home.region.len() == home.bytes && from.is_multiple_of(element_bytes);
        if is_whole { Ok(Some(home.region.slice(from..from + bytes))) } else { Err(NotWhole) }
    })
}

/// Memory is not there as elements.
pub(crate) struct NotWhole;

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
        self.with_home(|homes, start| {
            homes.entry(start).and_modify(|home| home.region = Region::zeroed(0));
        });
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
        if !region.is_empty() {
            let start = region.address();
            let home = Home { bytes: region.len(), region };
            HOMES.with_borrow_mut(|homes| homes.insert(start, home));
            self.looked_at.set(Some(start));
        }
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
            looked_at: Cell::new(None),
        }
    }

    /// Changes what is known of where it lies, if arrays have looked at it.
    fn with_home(&self, change: impl FnOnce(&mut BTreeMap<usize, Home>, usize)) {
        if let Some(start) = self.looked_at.get() {
            // The thread may be ending, with what belongs to it.
            let _ = HOMES.try_with(|homes| change(&mut homes.borrow_mut(), start));
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
        self.with_home(|homes, start| {
            homes.remove(&start);
        });
    }
}
