//! Limits of the executor: times, and bytes in flight.

use std::time::Duration;

use crate::spin::SpinLimits;

/// How long a rank that leaves a broken group may take to tell the others why it broke. Without
/// that, ranks that have no connection to the failed one would blame the one that left.
pub const TELLING_LIMIT: Duration = Duration::from_millis(250);

/// How long a thread that waits for other ranks polls before it sleeps.
pub const SPIN_LIMITS: SpinLimits =
    SpinLimits { spin: Duration::from_micros(100), yielding: Duration::from_micros(50) };

/// Bytes of a segment: the part of a large message that one frame carries. A multiple of every
/// element's size.
pub const SEGMENT_BYTES: usize = 256 << 10;

/// Most bytes, with headers, in flight to a peer for operations that it may not have issued.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Most bytes, with headers, of messages in flight to a peer that may not have posted a receive. A
/// rank may have to hold this much from each of the others: a message of 1 MiB and small ones
/// after it.
pub(super) const MESSAGE_WINDOW_BYTES: usize = WINDOW_BYTES + WINDOW_BYTES / 4;

/// Bytes that a frame takes of these windows besides its payload: header and bookkeeping.
pub(super) const FRAME_COST_BYTES: usize = 96;

/// Most bytes of one message that the transport has queued, so that other messages to the same peer
/// get their turn.
pub(super) const TRANSPORT_QUEUE_BYTES: usize = 4 * SEGMENT_BYTES;
