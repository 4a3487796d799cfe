//! The functions of an NCCL library, found by name in a library that was loaded, with the types and
//! numbers that they take. Knows nothing of what they are called for.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use super::config::Config;
use super::version::Version;

/// A communicator: `ncclComm_t`.
pub(super) type Comm = *mut c_void;
/// A reduction operator: `ncclRedOp_t`.
pub(super) type Op = c_int;
/// A type of elements: `ncclDataType_t`.
pub(super) type Type = c_int;
type Stream = *mut c_void;

/// The number of success, and the other results that are looked at.
pub(super) mod code {
    use super::c_int;

    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const REMOTE_ERROR: c_int = 6;
    /// Of a communicator that does not block: ask again.
    pub(crate) const IN_PROGRESS: c_int = 7;
}

/// The numbers of types.
pub(super) mod types {
    use super::Type;

    pub(crate) const I8: Type = 0;
    pub(crate) const U8: Type = 1;
    pub(crate) const I32: Type = 2;
    pub(crate) const U32: Type = 3;
    pub(crate) const I64: Type = 4;
    pub(crate) const U64: Type = 5;
    pub(crate) const F16: Type = 6;
    pub(crate) const F32: Type = 7;
    pub(crate) const F64: Type = 8;
    pub(crate) const BF16: Type = 9;
}

/// The numbers of operators.
pub(super) mod ops {
    use super::Op;

    pub(crate) const SUM: Op = 0;
    pub(crate) const PROD: Op = 1;
    pub(crate) const MAX: Op = 2;
    pub(crate) const MIN: Op = 3;
    pub(crate) const AVG: Op = 4;
}

/// What all ranks of a communicator know when it is made: `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub(super) [u8; UniqueId::BYTES]);

impl UniqueId {
    pub(super) const BYTES: usize = 128;
}

/// The colour of a rank that takes part in a split, and in no communicator of it.
pub(super) const NO_COLOR: c_int = -1;
/// Where the factor of an operator is: in the host's memory, read immediately.
pub(super) const FACTOR_IN_HOST: c_int = 1;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// What is called of the library. Each returns an `ncclResult_t`.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            pub(super) error_string: unsafe extern "C" fn(c_int) -> *const c_char,
            pub(super) last_error: unsafe extern "C" fn(Comm) -> *const c_char,
        }

        impl Functions {
            /// Finds all of them.
            ///
            /// # Errors
            /// The name of one that the library lacks.
            pub(super) fn find(library: &Library) -> Result<Functions, String> {
                let lacks = |symbol: &str| format!("it lacks {symbol}");
                Ok(Functions {
                    // SAFETY: the type is the one that nccl.h gives the function.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }
                        .map_err(|_| lacks($symbol))?,)*
                    // SAFETY: as above.
                    error_string: *unsafe { library.get(b"ncclGetErrorString") }
                        .map_err(|_| lacks("ncclGetErrorString"))?,
                    // SAFETY: as above.
                    last_error: *unsafe { library.get(b"ncclGetLastError") }
                        .map_err(|_| lacks("ncclGetLastError"))?,
                })
            }
        }
    };
}

functions! {
    get_unique_id = "ncclGetUniqueId" (*mut UniqueId);
    comm_init = "ncclCommInitRankConfig" (*mut Comm, c_int, UniqueId, c_int, *mut Config);
    comm_split = "ncclCommSplit" (Comm, c_int, c_int, *mut Comm, *mut Config);
    comm_finalize = "ncclCommFinalize" (Comm);
    comm_destroy = "ncclCommDestroy" (Comm);
    comm_abort = "ncclCommAbort" (Comm);
    comm_count = "ncclCommCount" (Comm, *mut c_int);
    comm_user_rank = "ncclCommUserRank" (Comm, *mut c_int);
    comm_async_error = "ncclCommGetAsyncError" (Comm, *mut c_int);
    group_start = "ncclGroupStart" ();
    group_end = "ncclGroupEnd" ();
    all_reduce = "ncclAllReduce"
        (*const c_void, *mut c_void, usize, Type, Op, Comm, Stream);
    broadcast = "ncclBroadcast"
        (*const c_void, *mut c_void, usize, Type, c_int, Comm, Stream);
    reduce = "ncclReduce"
        (*const c_void, *mut c_void, usize, Type, Op, c_int, Comm, Stream);
    all_gather = "ncclAllGather"
        (*const c_void, *mut c_void, usize, Type, Comm, Stream);
    reduce_scatter = "ncclReduceScatter"
        (*const c_void, *mut c_void, usize, Type, Op, Comm, Stream);
    send = "ncclSend" (*const c_void, usize, Type, c_int, Comm, Stream);
    recv = "ncclRecv" (*mut c_void, usize, Type, c_int, Comm, Stream);
    op_create_premul_sum = "ncclRedOpCreatePreMulSum"
        (*mut Op, *mut c_void, Type, c_int, Comm);
    op_destroy = "ncclRedOpDestroy" (Op, Comm);
}

impl Functions {
    /// The version of `library`, which may be older than what has all functions.
    ///
    /// # Errors
    /// Why it is not NCCL.
    pub(super) fn version(library: &Library) -> Result<Version, String> {
        type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
        // SAFETY: the type is the one that nccl.h gives the function.
        let get = unsafe { library.get::<GetVersion>(b"ncclGetVersion") };
        let get = get.map_err(|_| "it lacks ncclGetVersion".to_owned())?;
        let mut version: c_int = 0;
        // SAFETY: the argument is where one integer goes.
        match unsafe { get(&raw mut version) } {
            code::SUCCESS => Ok(Version(version)),
            other => Err(format!("ncclGetVersion fails with code {other}")),
        }
    }
}
