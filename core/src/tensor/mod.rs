//! Tensors as operations see them: memory, element type, shape. Knows nothing of who moves them.

mod buffers;
#[cfg(all(unix, feature = "cuda"))]
#[cfg_attr(
    not(feature = "nccl"),
    allow(dead_code, unused_imports, reason = "streams are for the backend")
)]
pub mod cuda;
mod element;
mod elements;
mod lent_memory;
mod overlaps;
mod pages;
mod region;
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(crate) mod shared;
mod shared_bytes;
mod strided;
mod tensor_ref;
mod view;

pub(crate) use buffers::{
    Apart, InPlace, PlainInput, apart, given, in_place, lend, lend_bytes, lend_bytes_mut, lend_mut,
};
pub use buffers::{Buffers, ConstBuffers, OwnedBuffers, TensorMut};
pub use element::Element;
pub use lent_memory::LentMemory;
pub(crate) use overlaps::{RepeatPolicy, Runs, View, overlap, runs_of};
#[cfg(all(feature = "tcp", target_os = "linux"))]
pub(crate) use pages::FreshPages;
pub(crate) use pages::prefer_large_pages;
#[doc(hidden)]
pub use region::Loan;
pub use region::{OnDevice, Region};
pub use shared_bytes::{MAX_ATOMIC_BYTES, SharedBytes};
pub(crate) use strided::StridedLayout;
pub use tensor_ref::TensorRef;
pub use view::{Device, Tensor, single_tensor};
