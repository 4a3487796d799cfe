//! Between Python and the core: arguments in, results and errors out.
//!
//! What the generated methods call:
//! - a collective: `collective(group, &METHOD, args, kwargs)`, or `collective_of_default`;
//! - anything else: `resolve(py, &METHOD, args, kwargs)`, whose `Call` gives the arguments one by
//!   one; then `blocking(py, || …)` for calls of the core, `give` for values that are there.
//!
//! `unsafe` stands here only (`array`, `buffer`, `dlpack`, `layout`, `lease`, `memory`, `short`):
//! the other rooms of this crate get tensors that are sound to use from any thread, whatever Python
//! does meanwhile.

mod array;
mod buffer;
mod call;
mod collective;
mod cuda;
mod descriptor;
mod dlpack;
mod exception;
mod give;
mod kind;
mod layout;
mod lease;
mod memory;
mod short;
mod short_message;
mod tensor;
mod value;

use polyrank::Error;
use pyo3::prelude::*;

pub(crate) use call::{Call, arguments, resolve};
pub(crate) use collective::{collective, collective_of_default};
pub(crate) use cuda::current_streams;
pub(crate) use descriptor::listener_from_fd;
pub(crate) use exception::{ErrorClass, Field, add_exceptions, raise};
pub(crate) use give::{Member, blocking, detached, give, non_group_member};
pub(crate) use lease::releasing;
pub(crate) use memory::Memory;
pub(crate) use short_message::message_at_once;
pub(crate) use tensor::device_tensor;
pub(crate) use value::{Foreigns, object_of_value};

/// The exception of something that only stands in the surface.
pub(crate) fn unbuilt(py: Python<'_>, operation: &str) -> PyErr {
    let who = concat!("polyrank ", env!("CARGO_PKG_VERSION")).to_owned();
    raise(py, &Error::Unsupported { who, operation: operation.to_owned() })
}

/// Views of strings or of byte strings, as the core takes them.
pub(crate) fn references<T, R: ?Sized>(items: &[T]) -> Vec<&R>
where
    T: std::borrow::Borrow<R>,
{
    items.iter().map(std::borrow::Borrow::borrow).collect()
}
