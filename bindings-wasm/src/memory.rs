//! Memory of the module that JavaScript has as a tensor: operations need no copy of it. Knows
//! nothing of tensors.

use std::cell::RefCell;

use js_sys::{Uint8Array, WebAssembly};
use polyrank::{Error, Region};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::convert;
use crate::numbered::Numbered;

thread_local! {
    static MEMORIES: RefCell<Numbered<Region>> = const { RefCell::new(Numbered::new()) };
}

/// A block of memory. An operation that uses it keeps it.
#[wasm_bindgen]
pub struct NativeMemory {
    id: u32,
    region: Region,
}

#[wasm_bindgen]
impl NativeMemory {
    /// Its number in this realm.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its length, bytes.
    #[wasm_bindgen(getter)]
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// The memory, as it lies now. When the module's memory grows, which any call may cause, the
    /// view becomes empty and a new one must be asked for.
    pub fn view(&self) -> Result<Uint8Array, JsValue> {
        let memory: WebAssembly::Memory = wasm_bindgen::memory().dyn_into()?;
        let (start, bytes) = (self.region.address() as u32, self.region.len() as u32);
        Ok(Uint8Array::new_with_byte_offset_and_length(&memory.buffer(), start, bytes))
    }

    /// Releases the memory; views of it must not be used any more.
    pub fn release(&mut self) {
        MEMORIES.with_borrow_mut(|memories| memories.remove(self.id));
        self.region = Region::zeroed(0);
    }
}

impl Drop for NativeMemory {
    fn drop(&mut self) {
        self.release();
    }
}

/// Cleared memory of `bytes`.
///
/// # Errors
/// [`Error::InvalidArgument`] if there is not as much.
#[wasm_bindgen]
pub fn alloc(bytes: f64) -> Result<NativeMemory, JsValue> {
    let refused = || {
        let message = format!("not enough memory for {bytes} bytes");
        convert::error(&Error::InvalidArgument { message })
    };
    let fits = bytes >= 0.0 && bytes.fract() == 0.0 && bytes <= f64::from(i32::MAX);
    // Aligned for every element type, which an array that looks at it demands.
    let region = if fits { Region::for_elements(bytes as usize) } else { None };
    region.map(NativeMemory::of).ok_or_else(refused)
}

impl NativeMemory {
    /// A handle on memory that is there.
    pub(crate) fn of(region: Region) -> NativeMemory {
        let id = MEMORIES.with_borrow_mut(|memories| memories.add(region.clone()));
        NativeMemory { id, region }
    }
}

/// The memory of this number, if its handle has not released it.
pub(crate) fn find(id: u32) -> Option<Region> {
    MEMORIES.with_borrow(|memories| memories.get(id).cloned())
}
