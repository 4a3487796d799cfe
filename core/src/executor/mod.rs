//! Where schedules meet a transport: non-blocking state machines that run one rank's operations.
//! Knows the transport trait, no concrete transport; no process groups, no stores.

mod advance;
mod analysis;
#[cfg(feature = "tcp")]
mod background;
mod broken_group;
mod closed;
mod collectives;
mod deferral;
mod direct_exchange;
mod direct_parts;
mod direct_reduction;
#[cfg(feature = "tcp")]
mod driver;
mod exchange_choice;
mod failure;
mod finished_operation;
mod in_flight;
mod lent_blocks;
mod limits;
mod liveness;
mod liveness_check;
mod operation;
mod own_messages;
mod peers;
mod pending_messages;
mod point_to_point;
mod probes;
mod running_operation;
mod scratch;
mod sending;
#[cfg(not(feature = "tcp"))]
mod single;
mod slot_exchange;
mod small_collective;
mod small_operations;
mod state;
mod status;
mod stores_choice;
#[cfg(test)]
mod tests;
mod unexpected_frames;
mod windows;

pub use advance::{Executor, Progress};
pub use broken_group::{GroupIdentity, StallReport};
pub use direct_parts::suits_direct;
#[cfg(feature = "tcp")]
pub use driver::Driver;
pub use finished_operation::FinishedOperation;
pub use limits::{SEGMENT_BYTES, SPIN_LIMITS, TELLING_LIMIT, WINDOW_BYTES};
pub use operation::{
    Bindings, Envelope, Message, Operation, OwnPart, SlotProgress, SmallOperation,
};
pub use probes::{FoundMessage, MessageInfo, Probe, ProbeRequest};
#[cfg(not(feature = "tcp"))]
pub use single::{Driver, drive_all};
pub use small_collective::{SmallAttempt, SmallCollective};
pub use windows::{
    AccessAction, AccessTarget, ExposedMemory, Fence, Flush, GoneRanks, GoneReason, WindowAccess,
    WindowCall, WindowOperation, closed_by,
};

pub use crate::transport::EAGER_BYTES;
