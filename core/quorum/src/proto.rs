//! The messages of torchft 0.2.0 and its services, generated from `proto/torchft.proto`.

pub use crate::generated::torchft::*;
