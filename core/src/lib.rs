//! One process group, ranks in any language: the collectives of PyTorch's c10d without PyTorch.

pub mod backend;
mod blocking;
pub mod calls;
pub mod clock;
pub mod completion;
pub mod distributed;
pub mod env;
pub mod executor;
#[cfg(feature = "tcp")]
mod fork;
mod generated;
pub mod kernels;
#[cfg(feature = "objects")]
pub mod objects;
pub mod process_group;
mod random;
pub mod rendezvous;
pub mod request;
pub mod schedule;
mod sorted;
pub mod store;
pub mod tensor;
pub mod transport;
pub mod wire;
mod work;

pub use generated::arguments;
pub use generated::collective::{Blocks, Collective, Facts, Sizes};
pub use generated::dtype::DType;
pub use generated::error::{Error, ErrorField, Result};
pub use generated::options;
pub use generated::reduce_op::ReduceOp;
pub use process_group::{
    DEFAULT_TIMEOUT, GroupOptions, PreparedOperation, ProcessGroup, SHUTDOWN_LIMIT, SplitOptions,
};
pub use request::Request;
pub use tensor::{
    Buffers, ConstBuffers, Device, Element, OnDevice, OwnedBuffers, Region, Tensor, TensorMut,
};
pub use work::Work;
