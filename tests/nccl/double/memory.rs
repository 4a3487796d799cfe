//! Memory of the host that stands for a device's. Knows no stream.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

/// What freed memory is overwritten with.
const FREED: u8 = 0xDE;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("a size that can be")
}

fn allocated() -> &'static Mutex<HashMap<usize, usize>> {
    static ALLOCATED: OnceLock<Mutex<HashMap<usize, usize>>> = OnceLock::new();
    ALLOCATED.get_or_init(Mutex::default)
}

/// The address of so many new bytes, which are not none.
pub(crate) fn allocate(bytes: usize) -> usize {
    // SAFETY: the size is not zero.
    let at = unsafe { alloc(layout(bytes)) } as usize;
    allocated().lock().unwrap().insert(at, bytes);
    at
}

/// False if nothing was allocated there.
pub(crate) fn free(address: usize) -> bool {
    let Some(bytes) = allocated().lock().unwrap().remove(&address) else { return false };
    let at = address as *mut u8;
    // SAFETY: it was allocated with this size, and is not any more.
    unsafe {
        at.write_bytes(FREED, bytes);
        dealloc(at, layout(bytes));
    }
    true
}

pub(crate) fn copy(from: usize, into: usize, bytes: usize) {
    if from == into || bytes == 0 {
        return;
    }
    // SAFETY: the issuer of the operation keeps the memory until it is over, and gives places that
    // do not overlap otherwise.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, into as *mut u8, bytes) };
}
