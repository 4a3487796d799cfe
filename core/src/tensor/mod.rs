//! Tensors as operations see them: memory, element type, shape. Knows nothing of who moves them.

mod element;
mod region;
mod strided;
mod tensor;

pub use element::Element;
pub use region::Region;
pub use tensor::{Device, Tensor};
