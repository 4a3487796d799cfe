//! The WebAssembly half of the browser package: what its JavaScript half calls. Knows the core, and
//! nothing of how the package is used.

pub mod drawing;
