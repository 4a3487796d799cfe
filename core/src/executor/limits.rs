//! What the state machines of a rank allow one another and their peers: times and bytes.

use std::time::Duration;

use crate::spin::SpinLimits;

/// How long a rank that leaves a broken group takes to tell the others why. Without it, ranks that
/// have no connection to the failed one would blame the one that left.
pub const FAREWELL: Duration = Duration::from_millis(250);

/// How long a thread that waits for other ranks looks again before it sleeps.
pub const SPIN_LIMITS: SpinLimits =
    SpinLimits { spin: Duration::from_micros(100), yielding: Duration::from_micros(50) };

/// Bytes of a segment, the part of a larger message that one frame carries. A multiple of every
/// element's size.
pub const SEGMENT_BYTES: usize = 256 << 10;

/// Bytes, with headers, that may be under way to a peer for operations that it may not have issued.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Bytes, with headers, of messages that may be under way to a peer which may not receive them: so
/// much of each of the others a rank may come to hold. A message of 1 MiB, and small ones behind.
pub(super) const MESSAGE_WINDOW_BYTES: usize = WINDOW_BYTES + WINDOW_BYTES / 4;

/// What a frame counts in these windows besides its payload, bytes: header and bookkeeping.
pub(super) const FRAME_COST_BYTES: usize = 96;

/// Bytes of one message that the transport has queued at most, so that other messages to the same
/// peer get their turn.
pub(super) const TRANSPORT_QUEUE_BYTES: usize = 4 * SEGMENT_BYTES;
