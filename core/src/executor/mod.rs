//! Where schedules meet a transport: non-blocking state machines that run one rank's operations.
//! Knows the transport trait, no concrete transport; no process groups, no stores.

mod completion;
pub mod kernels;
mod operation;

pub use completion::Completion;
pub use operation::{Bindings, Message, Operation, Outcome};
