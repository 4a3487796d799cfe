//! Frames of operations that this rank has not issued yet. Knows nothing of their meaning.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::transport::Rank;
use crate::wire::frame::Header;

/// A frame that is kept.
pub(super) struct UnexpectedFrame {
    pub(super) peer: Rank,
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
}

/// All of them.
#[derive(Default)]
pub(super) struct UnexpectedFrames {
    /// Ordered by sequence number, then by arrival.
    frames: BinaryHeap<QueuedFrame>,
    /// How many were ever kept.
    kept: u64,
}

impl UnexpectedFrames {
    /// Keeps a frame.
    pub(super) fn keep(&mut self, frame: UnexpectedFrame) {
        self.kept += 1;
        self.frames.push(QueuedFrame { order: Reverse((frame.header.sequence, self.kept)), frame });
    }

    /// Takes a frame of an operation up to `sequence`, in the order in which they came.
    pub(super) fn take(&mut self, sequence: u64) -> Option<UnexpectedFrame> {
        let first = self.frames.peek()?;
        if first.frame.header.sequence > sequence {
            return None;
        }
        self.frames.pop().map(|kept| kept.frame)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Releases all.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
    }
}

/// A frame and its unique place in the order.
struct QueuedFrame {
    order: Reverse<(u64, u64)>,
    frame: UnexpectedFrame,
}

impl Ord for QueuedFrame {
    fn cmp(&self, other: &QueuedFrame) -> Ordering {
        self.order.cmp(&other.order)
    }
}

impl PartialOrd for QueuedFrame {
    fn partial_cmp(&self, other: &QueuedFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedFrame {
    fn eq(&self, other: &QueuedFrame) -> bool {
        self.order == other.order
    }
}

impl Eq for QueuedFrame {}
