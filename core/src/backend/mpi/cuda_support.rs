//! Whether an MPI library takes memory of CUDA devices, by what it says itself when it runs: no
//! version, and no name, tells that. Knows no job and no group.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use libloading::os::unix::Library;

use super::abi::Handle;
use crate::backend::CudaMemory;

/// What Open MPI and MPICH answer it by.
const QUERY: &[u8] = b"MPIX_Query_cuda_support";
/// What a communicator's kinds of memory are called since MPI 4.1: `mpi,system,cuda:device`.
const KINDS: &CStr = c"mpi_memory_alloc_kinds";
/// Most bytes of them that are looked at.
const MAX_KINDS: usize = 4096;

/// The answer of a library that is initialised.
pub(super) fn ask<H: Handle>(library: &Library, comm_world: H) -> CudaMemory {
    type Query = unsafe extern "C" fn() -> c_int;
    // SAFETY: the type is the one that both makers give it; the library is initialised.
    let answered = unsafe { library.get::<Query>(QUERY).map(|query| query()) };
    match answered {
        Ok(answer) => CudaMemory::of(answer == 1),
        Err(_) => kinds(library, comm_world)
            .map_or(CudaMemory::Unknown, |kinds| CudaMemory::of(names_cuda(&kinds))),
    }
}

/// The kinds of memory that the standard's own question names, if the library answers that.
fn kinds<H: Handle>(library: &Library, comm_world: H) -> Option<String> {
    type GetInfo<H> = unsafe extern "C" fn(H, *mut H) -> c_int;
    type GetString<H> =
        unsafe extern "C" fn(H, *const c_char, *mut c_int, *mut c_char, *mut c_int) -> c_int;
    type Free<H> = unsafe extern "C" fn(*mut H) -> c_int;
    let (mut info, mut there) = (comm_world, 0);
    let mut length = MAX_KINDS as c_int;
    let mut text = vec![0_u8; MAX_KINDS];
    // SAFETY: the types are those of the standard, with handles as wide as the library's; the text
    // has as many bytes as said, with the zero at the end.
    let failed = unsafe {
        let get_info = library.get::<GetInfo<H>>(b"MPI_Comm_get_info").ok()?;
        let get_string = library.get::<GetString<H>>(b"MPI_Info_get_string").ok()?;
        let free = library.get::<Free<H>>(b"MPI_Info_free").ok()?;
        if get_info(comm_world, &raw mut info) != 0 {
            return None;
        }
        let text = text.as_mut_ptr().cast::<c_char>();
        let failed = get_string(info, KINDS.as_ptr(), &raw mut length, text, &raw mut there) != 0;
        free(&raw mut info);
        failed
    };
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned();
    (!failed && there != 0).then_some(text)
}

/// Whether a list of kinds, each with its restrictors behind colons, has CUDA's.
fn names_cuda(kinds: &str) -> bool {
    kinds.split(',').any(|kind| kind.trim().split(':').next() == Some("cuda"))
}

#[cfg(test)]
mod tests {
    use super::names_cuda;

    #[test]
    fn cuda_is_a_kind_of_its_own() {
        assert!(names_cuda("mpi,system,cuda:device,cuda:host"));
        assert!(names_cuda("cuda"));
        assert!(!names_cuda("mpi,system"));
        assert!(!names_cuda("mpi:cuda,rocm"));
    }
}
