//! One process group, ranks in any language: the collectives of PyTorch's c10d without PyTorch.
//!
//! A Rust rank, a Python rank, a Node rank and a browser tab can be in the same group and reduce
//! one tensor. Names and meanings are those of c10d: [`ProcessGroup`], [`Work`], [`Store`],
//! [`ReduceOp`], `allreduce` and the others.
//!
//! ```no_run
//! use polyrank::ReduceOp;
//! use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
//!
//! fn main() -> polyrank::Result<()> {
//!     // Rank, size and where to meet come from the environment, as `polyrank run` sets it.
//!     let group = init_process_group(InitOptions::default())?;
//!     let mut gradient = vec![f64::from(group.rank()); 1000];
//!     group.allreduce(&mut gradient, ReduceOp::Sum)?;
//!     println!("rank {} of {}: {}", group.rank(), group.size(), gradient[0]);
//!     destroy_process_group(None)
//! }
//! ```
//!
//! `cargo install polyrank-cli`, then `polyrank run -n 4 target/release/train`. A program can also
//! start its ranks itself: [`spawn`].
//!
//! # In one process
//!
//! Ranks can be threads, with a store of their own: for tests, and to try things.
//!
//! ```
//! use std::sync::Arc;
//!
//! use polyrank::store::HashStore;
//! use polyrank::{GroupOptions, ProcessGroup, ReduceOp};
//!
//! let store = Arc::new(HashStore::new());
//! let ranks: Vec<_> = (0..3)
//!     .map(|rank| {
//!         let store = store.clone();
//!         std::thread::spawn(move || {
//!             let options = GroupOptions::default();
//!             let group = ProcessGroup::new(store, rank, 3, "example", options)?;
//!             let mut tensor = [1.0_f32, rank as f32];
//!             group.allreduce(&mut tensor, ReduceOp::Sum)?;
//!             group.shutdown()?;
//!             polyrank::Result::Ok(tensor)
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap()?, [3.0, 3.0]);
//! }
//! # Ok::<(), polyrank::Error>(())
//! ```
//!
//! # Waiting
//!
//! A call that borrows blocks until its end: `group.allreduce(&mut tensor, …)?`. One that owns its
//! tensor returns a [`Work`], a future that can also be waited for and hands the tensor back:
//! `group.allreduce_async(tensor, …)`. Within [`ProcessGroup::scope`], operations that borrow run
//! side by side.
//!
//! # Modules
//!
//! | module | what it has |
//! |---|---|
//! | [`distributed`] | this process's default group, and functions on it |
//! | [`device_mesh`] | ranks in an n-dimensional array, and a group along each dimension |
//! | [`process_group`] | [`ProcessGroup`] and what its calls return |
//! | [`options`] | the options of every operation; `Default`, and one method for each |
//! | [`store`] | where ranks meet: TCP, file, hash, prefix, WebSocket |
//! | [`rendezvous`] | from a URL (`env://`, `tcp://`, `file://`, `ws://`) to a store and a rank |
//! | [`tensor`] | what operations read and write: slices, vectors, [`Tensor`], CUDA memory |
//! | [`backend`] | what `tcp`, `websocket`, `mpi` and `nccl` can do, and their options |
//! | `objects` | collectives of values that serde knows |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `tcp` (default) | sockets and shared memory between processes, TCP stores |
//! | `mpi`, `nccl` (default) | the backends; the libraries are looked for when they are asked for |
//! | `websocket` | ranks in browsers and behind proxies |
//! | `tls` | `wss://` |
//! | `objects` | the module `objects` |
//! | `ndarray` | views of the crate ndarray as tensors |
//!
//! [`Store`]: store::Store

#![cfg_attr(
    not(feature = "internals"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the feature lets others have it")
)]

#[macro_use]
mod setters;

pub mod backend;
mod blocking;
#[cfg(all(feature = "tcp", not(feature = "internals")))]
mod call_site;
#[cfg(all(feature = "tcp", feature = "internals"))]
#[doc(hidden)]
pub mod call_site;
#[cfg(not(feature = "internals"))]
mod calls;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod calls;
mod cause;
#[cfg(not(feature = "internals"))]
mod clock;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod clock;
#[cfg(not(feature = "internals"))]
mod completion;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod completion;
mod context;
mod debug_level;
pub mod device_mesh;
pub mod distributed;
#[cfg(not(feature = "internals"))]
mod env;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod env;
#[cfg(not(feature = "internals"))]
mod executor;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod executor;
mod fnv;
#[cfg(feature = "tcp")]
mod fork;
mod generated;
#[cfg(all(feature = "tcp", not(feature = "internals")))]
mod held_ranks;
#[cfg(all(feature = "tcp", feature = "internals"))]
#[doc(hidden)]
pub mod held_ranks;
#[cfg(not(feature = "internals"))]
mod kernels;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod kernels;
#[cfg(feature = "objects")]
pub mod objects;
#[cfg(not(feature = "internals"))]
mod price;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod price;
#[cfg(feature = "tcp")]
mod process_end;
pub mod process_group;
#[cfg(not(feature = "internals"))]
mod process_mutex;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod process_mutex;
mod random;
#[cfg(all(feature = "tcp", not(feature = "internals")))]
mod recorder;
#[cfg(all(feature = "tcp", feature = "internals"))]
#[doc(hidden)]
pub mod recorder;
pub mod rendezvous;
#[cfg(not(feature = "internals"))]
mod request;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod request;
#[cfg(not(feature = "internals"))]
mod schedule;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod schedule;
mod sorted;
#[cfg(feature = "tcp")]
mod spawn;
#[cfg(not(feature = "internals"))]
mod spin;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod spin;
#[cfg(all(feature = "tcp", not(feature = "internals")))]
mod stall_report;
#[cfg(all(feature = "tcp", feature = "internals"))]
#[doc(hidden)]
pub mod stall_report;
#[cfg(not(feature = "internals"))]
mod standard_error;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod standard_error;
pub mod store;
pub mod tensor;
#[cfg(not(feature = "internals"))]
mod transport;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod transport;
#[cfg(feature = "tcp")]
mod whole_file;
#[cfg(not(feature = "internals"))]
mod wire;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod wire;
mod work;

pub use backend::register_backend;
pub use cause::Cause;
pub use device_mesh::DeviceMesh;
#[doc(hidden)]
pub use generated::arguments;
pub use generated::callback_arguments::{CompletionHookArgs, PostHookArgs, PreHookArgs};
pub use generated::collective::{Blocks, Collective, Facts, Sizes};
pub use generated::dtype::DType;
pub use generated::error::{Error, ErrorField, Result};
pub use generated::options;
pub use generated::reduce_op::ReduceOp;
pub use kernels::{Compression, CompressionLoss};
pub use process_group::topology::Topology;
pub use process_group::{
    DEFAULT_TIMEOUT, DeviceBackend, GroupHints, GroupOptions, PreparedOperation, ProcessGroup,
    SHUTDOWN_LIMIT, SplitOptions, Window, nan_check, nan_check_allowing_infinity,
};
#[cfg(feature = "tcp")]
pub use recorder::{OperationStats, PeerStats, ProcessGroupStats};
pub use request::{CustomOp, CustomReduction, Request};
#[cfg(feature = "tcp")]
pub use spawn::{SpawnError, spawn};
pub use tensor::{
    Buffers, ConstBuffers, Device, Element, OnDevice, OwnedBuffers, Region, Tensor, TensorMut,
    TensorRef,
};
#[doc(hidden)]
pub use work::WorkEnd;
pub use work::comm_name::{
    CommName, record_comm, record_comm_async, set_comm_name_source, set_thread_comm_name,
};
pub use work::{Future, Work, WorkResult};
