//! Memory of devices that JavaScript has an address of, and what it weighs on this thread's heap.
//! Knows nothing of tensors.

#![allow(unsafe_code)]

use std::sync::Arc;

use napi::{Env, Result, sys};
use polyrank::Region;
use polyrank::tensor::OnDevice;

use super::js::Js;
use crate::realm::{Event, Mailbox, realm};

/// So many bytes at this address of a device. `owner` is kept as long as anything of the core may
/// use them, which may be longer than JavaScript knows of them.
///
/// Nothing is known of the address: the caller that names it vouches for it, as its documentation
/// says.
pub(crate) fn memory_at(
    env: Env,
    address: usize,
    bytes: usize,
    device: OnDevice,
    owner: Js<'_>,
) -> Result<Region> {
    let realm = realm(env)?;
    let owner = Owner { number: realm.keep(owner)?, mailbox: realm.mailbox.clone() };
    // SAFETY: the caller of JavaScript vouches for the address and for the stream, and that
    // `owner`, which the region keeps, keeps the memory.
    Ok(unsafe { Region::from_device_parts(address, bytes, device, Some(Box::new(owner))) })
}

/// A value of a JavaScript thread that is kept there until this is dropped, on whichever thread.
struct Owner {
    mailbox: Arc<Mailbox>,
    number: u32,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.mailbox.send(Event::Unused(self.number));
    }
}

/// Memory that the collector of this thread does not see, but shall reckon with, until this is
/// dropped.
pub(crate) struct Weight {
    env: sys::napi_env,
    bytes: i64,
}

impl Weight {
    pub(crate) fn new(env: Env, bytes: usize) -> Weight {
        let weight = Weight { env: env.raw(), bytes: bytes as i64 };
        weight.adjust(weight.bytes);
        weight
    }

    fn adjust(&self, change: i64) {
        let mut all = 0;
        // SAFETY: a `Weight` stays on the thread of its environment, with a value of that. If it
        // fails, the collector knows less.
        let _ = unsafe { sys::napi_adjust_external_memory(self.env, change, &mut all) };
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.adjust(-self.bytes);
    }
}
