//! The functions of an MPI library, found by name in a library that was loaded. Knows their types;
//! nothing of what they are called for.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use super::abi::Handle;

/// An address, or a distance, in bytes: `MPI_Aint`.
pub(super) type Address = isize;

/// A reduction of our own: `MPI_User_function`. The last argument, a pointer to the type's handle,
/// is not looked at.
pub(super) type UserFunction = extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut c_void);

/// What is called when a communicator with an attribute is copied: `MPI_Comm_copy_attr_function`.
pub(super) type CopyFunction<H> =
    extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// What is called when an attribute goes: `MPI_Comm_delete_attr_function`.
pub(super) type DeleteFunction<H> = extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;

/// A reduction of which every rank passes its tensor: `MPI_Iallreduce` and those like it.
pub(super) type ReduceFunction<H> = unsafe extern "C" fn(In, Out, Int, H, H, H, *mut H) -> c_int;

type In = *const c_void;
type Out = *mut c_void;
type Int = c_int;
type Ints = *const c_int;

macro_rules! functions {
    ($($(#[$condition:meta])? $name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// What is called of the library. Each returns `MPI_SUCCESS` (0) or an error code.
        pub(super) struct Functions<H> {
            $($(#[$condition])? pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            /// Finds all of them.
            ///
            /// # Errors
            /// The name of one that the library lacks.
            pub(super) fn find(library: &Library) -> Result<Functions<H>, String> {
                Ok(Functions {
                    // SAFETY: the type is the one that the standard gives the function, with
                    // handles as wide as the library's ABI has them, which the caller found out.
                    $($(#[$condition])? $name: *unsafe { library.get($symbol.as_bytes()) }
                        .map_err(|_| format!("it lacks {}", $symbol))?,)*
                })
            }
        }
    };
}

functions! {
    initialized = "MPI_Initialized" (*mut Int);
    finalized = "MPI_Finalized" (*mut Int);
    init_thread = "MPI_Init_thread" (*mut Int, *mut c_void, Int, *mut Int);
    query_thread = "MPI_Query_thread" (*mut Int);
    finalize = "MPI_Finalize" ();
    abort = "MPI_Abort" (H, Int);
    error_string = "MPI_Error_string" (Int, *mut c_char, *mut Int);
    comm_rank = "MPI_Comm_rank" (H, *mut Int);
    comm_size = "MPI_Comm_size" (H, *mut Int);
    comm_group = "MPI_Comm_group" (H, *mut H);
    comm_create_group = "MPI_Comm_create_group" (H, H, Int, *mut H);
    comm_free = "MPI_Comm_free" (*mut H);
    comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H);
    comm_create_keyval = "MPI_Comm_create_keyval"
        (CopyFunction<H>, DeleteFunction<H>, *mut Int, *mut c_void);
    comm_set_attr = "MPI_Comm_set_attr" (H, Int, *mut c_void);
    comm_get_attr = "MPI_Comm_get_attr" (H, Int, *mut c_void, *mut Int);
    group_incl = "MPI_Group_incl" (H, Int, Ints, *mut H);
    group_free = "MPI_Group_free" (*mut H);
    op_create = "MPI_Op_create" (UserFunction, Int, *mut H);
    type_contiguous = "MPI_Type_contiguous" (Int, H, *mut H);
    type_create_struct = "MPI_Type_create_struct" (Int, Ints, *const Address, *const H, *mut H);
    type_commit = "MPI_Type_commit" (*mut H);
    type_free = "MPI_Type_free" (*mut H);
    ibarrier = "MPI_Ibarrier" (H, *mut H);
    ibcast = "MPI_Ibcast" (Out, Int, H, Int, H, *mut H);
    // What is measured against; nothing else calls it.
    #[cfg(feature = "internals")]
    allreduce = "MPI_Allreduce" (In, Out, Int, H, H, H);
    iallreduce = "MPI_Iallreduce" (In, Out, Int, H, H, H, *mut H);
    ireduce = "MPI_Ireduce" (In, Out, Int, H, H, Int, H, *mut H);
    iscan = "MPI_Iscan" (In, Out, Int, H, H, H, *mut H);
    iexscan = "MPI_Iexscan" (In, Out, Int, H, H, H, *mut H);
    iallgather = "MPI_Iallgather" (In, Int, H, Out, Int, H, H, *mut H);
    iallgatherv = "MPI_Iallgatherv" (In, Int, H, Out, Ints, Ints, H, H, *mut H);
    ireduce_scatter = "MPI_Ireduce_scatter" (In, Out, Ints, H, H, H, *mut H);
    ireduce_scatter_block = "MPI_Ireduce_scatter_block" (In, Out, Int, H, H, H, *mut H);
    ialltoallw = "MPI_Ialltoallw"
        (In, Ints, Ints, *const H, Out, Ints, Ints, *const H, H, *mut H);
    isend = "MPI_Isend" (In, Int, H, Int, Int, H, *mut H);
    improbe = "MPI_Improbe" (Int, Int, H, *mut Int, *mut H, *mut c_void);
    imrecv = "MPI_Imrecv" (Out, Int, H, *mut H, *mut H);
    test = "MPI_Test" (*mut H, *mut Int, *mut c_void);
    get_elements_x = "MPI_Get_elements_x" (*const c_void, H, *mut i64);
}
