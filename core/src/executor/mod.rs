//! Where schedules meet a transport: non-blocking state machines that run one rank's operations.
//! Knows the transport trait, no concrete transport; no process groups, no stores.

mod advance;
mod analysis;
#[cfg(feature = "tcp")]
mod background;
mod collectives;
mod completion;
#[cfg(feature = "tcp")]
mod driver;
mod failure;
mod in_flight;
pub mod kernels;
mod operation;
mod peers;
mod point_to_point;
mod running;
mod scratch;
mod state;
#[cfg(test)]
mod tests;

pub use advance::{Executor, GroupIdentity, Progress};
pub use completion::Completion;
#[cfg(feature = "tcp")]
pub use driver::{Driver, SpinPolicy};
pub use failure::StallReport;
pub use operation::{Bindings, Message, Operation, Outcome, Waiting};
pub use state::Finished;

/// Messages of up to this many bytes are sent without asking the receiver.
pub const EAGER: usize = 32 << 10;

/// Bytes of a segment, the part of a larger message that one frame carries. A multiple of every
/// element's size.
pub const SEGMENT: usize = 256 << 10;

/// Bytes, with headers, that may be under way to a peer for operations that it may not have issued.
pub const WINDOW: usize = 1 << 20;

/// What a frame counts in [`WINDOW`] besides its payload, bytes: header and bookkeeping.
const FRAME_COST: usize = 96;

/// Bytes of one message that the transport has queued at most, so that other messages to the same
/// peer get their turn.
const IN_TRANSPORT: usize = 4 * SEGMENT;
