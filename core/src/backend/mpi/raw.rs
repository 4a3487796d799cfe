//! MPI's own allreduce of `f32` by the same library, job and thread, for measuring what polyrank
//! adds to it. Nothing else uses it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::time::Duration;

use super::abi::Handle;
use super::world::{AnyWorld, World, world};
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::tensor::Region;

/// Which of MPI's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawCall {
    /// `MPI_Allreduce`.
    Blocking,
    /// `MPI_Iallreduce`, then `MPI_Test` until it is done: the only way that can have a deadline.
    Testing,
}

/// How long `repeats` sums of `data` over all ranks of the job take, in place. All ranks call it.
///
/// # Errors
/// As [`super::rank_and_size`]; [`crate::Error::Network`] for what MPI says of it.
pub fn raw_allreduce(call: RawCall, data: &mut [f32], repeats: u32) -> Result<Duration> {
    measure_any(call, (data.as_mut_ptr().cast(), data.len()), repeats)
}

/// As [`raw_allreduce`], of memory that tensors have as well.
///
/// # Errors
/// As [`raw_allreduce`].
pub fn raw_allreduce_of(call: RawCall, data: &Region, repeats: u32) -> Result<Duration> {
    let count = data.len() / size_of::<f32>();
    data.write(|bytes| measure_any(call, (bytes.as_mut_ptr().cast(), count), repeats))
}

fn measure_any(call: RawCall, data: (*mut c_void, usize), repeats: u32) -> Result<Duration> {
    match world()? {
        AnyWorld::Ints(world) => measure(world, call, data, repeats),
        AnyWorld::Pointers(world) => measure(world, call, data, repeats),
    }
}

fn measure<H: Handle>(
    world: &World<H>,
    call: RawCall,
    (into, count): (*mut c_void, usize),
    repeats: u32,
) -> Result<Duration> {
    let (functions, constants) = (&world.job.functions, &world.job.constants);
    let (types, ops) = (&constants.types, &constants.ops);
    let in_place = constants.in_place as *const c_void;
    let ignore = constants.status_ignore as *mut c_void;
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    let (f32, sum, comm) = (types.f32, ops.sum, constants.comm_world);
    let start = Instant::now();
    for _ in 0..repeats {
        let mut request = constants.request_null;
        let mut flag: c_int = 0;
        // SAFETY: the memory has as many elements, and is borrowed until the operation is over,
        // which it is at the end of this block.
        unsafe {
            if call == RawCall::Blocking {
                let code = (functions.allreduce)(in_place, into, count, f32, sum, comm);
                world.job.check(code, "MPI_Allreduce")?;
                continue;
            }
            let request = &raw mut request;
            let code = (functions.iallreduce)(in_place, into, count, f32, sum, comm, request);
            world.job.check(code, "MPI_Iallreduce")?;
            while flag == 0 {
                (functions.test)(request, &raw mut flag, ignore);
            }
        }
    }
    Ok(start.elapsed())
}
