//! Between Python and the core: arguments in, results and errors out.
//!
//! What the generated methods call:
//! - a collective: `collective(group, &METHOD, args, kwargs)`, or `collective_of_default`;
//! - what is prepared once and started often: `prepare(group, &METHOD, args, kwargs)`;
//! - what core runs: `invoke`, `invoke_on`, `construct`, `attribute`, `set_attribute`;
//! - what is written by hand for Python: `resolve(py, &METHOD, args, kwargs)`, whose `Call` gives
//!   the arguments one by one; `detached(py, || …)` calls core without the GIL.
//!
//! `unsafe` stands here only (`array`, `buffer`, `descriptor`, `dlpack`, `fast_call`, `layout`,
//! `lease`, `memory`, `thread_state`): the other modules of this crate get tensors that are sound
//! to use from any thread, whatever Python does meanwhile.

mod answer;
mod array;
mod buffer;
mod call;
mod collective;
mod cuda;
mod descriptor;
mod detached;
mod dlpack;
mod exception;
mod fast_access;
mod fast_call;
mod fast_message;
mod handles;
mod invoke;
mod kind;
mod layout;
mod lease;
mod memory;
mod prepare;
mod tensor;
mod thread_state;
mod value;

use polyrank::Error;
use pyo3::prelude::*;

pub(crate) use answer::{answer, give, nothing, timedelta};
pub(crate) use call::{Call, arguments, resolve};
pub(crate) use collective::{collective, collective_of_default};
pub(crate) use descriptor::listener_from_fd;
pub(crate) use detached::{detached, end_call_with, keep_timeout};
pub(crate) use exception::{
    CoreResult, ErrorClass, Field, add_exceptions, error_kind, exception, invalid, invalid_type,
    raise,
};
pub(crate) use fast_access::fast_access;
pub(crate) use fast_message::{fast_message, sender_answer};
pub(crate) use handles::{non_group_member, object, store_of};
pub(crate) use invoke::{attribute, construct, constructed, invoke, invoke_on, run, set_attribute};
pub(crate) use lease::{releasing, visit_memory};
pub(crate) use memory::Memory;
pub(crate) use prepare::prepare;
pub(crate) use tensor::{current_streams, device_tensor, tensor};
pub(crate) use thread_state::{attach_thread, know_interpreter};
pub(crate) use value::{OpaqueObjects, object_of_value};

/// The exception of something that is only in the surface.
#[allow(dead_code, reason = "all may be built")]
pub(crate) fn unbuilt(py: Python<'_>, operation: &str) -> PyErr {
    let who = concat!("polyrank ", env!("CARGO_PKG_VERSION")).to_owned();
    raise(py, &Error::Unsupported { who, operation: operation.to_owned() })
}
