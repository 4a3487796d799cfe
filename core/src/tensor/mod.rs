//! Tensors as operations see them: memory, element type, shape. Knows nothing of who moves them.

mod buffers;
mod element;
mod pages;
mod region;
mod strided;
mod view;

pub use buffers::{Buffers, ConstBuffers, OwnedBuffers, TensorMut};
pub(crate) use buffers::{lend, lend_mut};
pub use element::Element;
pub(crate) use pages::prefer_large_pages;
pub use region::Region;
pub(crate) use strided::is_apart;
pub use view::{Device, Tensor};
