//! polyrank's generator: `idl/*.webidl` in, the text of every generated file out.
//!
//! Text to text: it reads no file, writes no file, and knows nothing of the `polyrank` crate.

pub mod model;
