//! Memory of CUDA devices for the JavaScript half: made, filled and read on threads that may wait
//! for the driver. Knows nothing of tensors.

use std::ops::Range;

use napi::bindgen_prelude::{BigInt, ClassInstance, Unknown};
use napi::{Env, Result};
use napi_derive::napi;
use polyrank::calls::Answer;
use polyrank::calls::event_loop::threads;
use polyrank::tensor::{OnDevice, cuda};
use polyrank::{Error, Region};

use crate::convert::{Deferred, Js, View, invalid, memory_at, raise};
use crate::memory::NativeMemory;
use crate::realm::{Event, realm};

/// Memory of a device with a copy of the bytes of a `Uint8Array`; a promise.
#[napi]
pub fn cuda_upload<'env>(env: Env, bytes: Unknown<'_>, index: u32) -> Result<Unknown<'env>> {
    let view = View::of(Js::of(bytes))?;
    let bytes = view.ok_or_else(|| invalid(env, "what is copied is not a Uint8Array"))?.to_vec();
    make(env, move || cuda::upload(&bytes, index))
}

/// So many bytes of a device, zeroed or whatever they are; a promise.
#[napi]
pub fn cuda_allocate<'env>(
    env: Env,
    bytes: f64,
    index: u32,
    zeroed: bool,
) -> Result<Unknown<'env>> {
    let bytes = count(env, bytes)?;
    make(env, move || {
        if !zeroed {
            return cuda::allocate(bytes, index);
        }
        let mut zeros: Vec<u8> = Vec::new();
        let reserved = zeros.try_reserve_exact(bytes);
        let message = format!("not enough memory for {bytes} bytes");
        reserved.map_err(|_| Error::InvalidArgument { message })?;
        zeros.resize(bytes, 0);
        cuda::upload(&zeros, index)
    })
}

/// Memory at an address of a device, which `owner` keeps. Throws without a driver.
#[napi]
pub fn cuda_memory_at(
    env: Env,
    address: BigInt,
    bytes: f64,
    index: u32,
    stream: BigInt,
    owner: Unknown<'_>,
) -> Result<NativeMemory> {
    let missing = |why| raise(env, &Error::BackendUnavailable { backend: "cuda".into(), why });
    cuda::available().map_err(missing)?;
    let (address, stream) = (handle(env, &address)?, handle(env, &stream)?);
    let bytes = count(env, bytes)?;
    let device = OnDevice { index, stream };
    Ok(NativeMemory::of(memory_at(env, address, bytes, device, Js::of(owner))?))
}

/// A `Uint8Array` with a copy of a part of a device's memory, as it is after what was issued on its
/// stream; a promise.
#[napi]
pub fn cuda_download<'env>(
    env: Env,
    memory: ClassInstance<'_, NativeMemory>,
    from: f64,
    to: f64,
) -> Result<Unknown<'env>> {
    let region = memory.region();
    let part = Range { start: count(env, from)?, end: count(env, to)? };
    if part.start > part.end || part.end > region.len() {
        return Err(invalid(env, "a tensor of a device reaches beyond its memory"));
    }
    let part = region.slice(part);
    elsewhere(
        env,
        move || cuda::download(&part).map(Answer::Bytes),
        |deferred, bytes| Event::Ended(deferred, None, bytes),
    )
}

fn make<'env>(
    env: Env,
    make: impl FnOnce() -> polyrank::Result<Region> + Send + 'static,
) -> Result<Unknown<'env>> {
    elsewhere(env, make, Event::Made)
}

/// A promise of the result of `run`, which runs on another thread as it may wait for a device.
fn elsewhere<'env, T: 'static>(
    env: Env,
    run: impl FnOnce() -> polyrank::Result<T> + Send + 'static,
    event: fn(Deferred, polyrank::Result<T>) -> Event,
) -> Result<Unknown<'env>> {
    let realm = realm(env)?;
    let (deferred, promise) = Deferred::new(env)?;
    realm.expect_event(env);
    let mailbox = realm.mailbox.clone();
    threads::run(move || mailbox.send(event(deferred, run())));
    Ok(promise.into_unknown())
}

fn count(env: Env, number: f64) -> Result<usize> {
    // More than this no number of JavaScript says exactly.
    const MOST: f64 = 9_007_199_254_740_991.0;
    let is_count = number.fract() == 0.0 && (0.0..=MOST).contains(&number);
    let count = if is_count { usize::try_from(number as u64).ok() } else { None };
    count.ok_or_else(|| invalid(env, &format!("{number} is not a number of bytes")))
}

/// What the driver calls something by.
fn handle(env: Env, number: &BigInt) -> Result<usize> {
    let (is_negative, value, is_exact) = number.get_u64();
    let handle = if is_exact && !is_negative { usize::try_from(value).ok() } else { None };
    handle.ok_or_else(|| invalid(env, "an address or a stream is a BigInt of 64 bits"))
}
