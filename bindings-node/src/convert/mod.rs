//! JavaScript's values as the core's, and back. All of this package that is `unsafe` is here.

mod answers;
mod arrays;
mod device;
mod errors;
mod js;
mod memory;
mod script;
mod shared;
mod wake;

pub(crate) use answers::to_js;
pub(crate) use arrays::{View, views};
pub(crate) use device::{Weight, memory_at};
pub(crate) use errors::{describe, invalid, raise, raise_value};
pub(crate) use js::{Deferred, Js, Reference};
pub(crate) use memory::{OwnedMemory, view_of};
pub(crate) use wake::ThreadWaker;
