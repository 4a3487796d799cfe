//! Where things lie in a rank's segment, which its peers on the host map too. Pure arithmetic.
//!
//! ```text
//! page of words | room for cells of small collectives | lane to local rank 0 | to 1 | …
//! lane: page of words | ring | area for long payloads
//! ```
//! The owner of a segment writes its lanes, each peer reads the lane to it. Lanes to oneself and to
//! ranks to which nothing is sent are never touched, so that they cost no memory.

use super::area::Area;
use super::ring::{CELL, Ring};

const PAGE: usize = 4096;

/// Offset of the word that says whether the owner sleeps.
pub(super) const ASLEEP: usize = 0;

/// Bytes for the cells of small collectives.
pub(super) const BOARD_BYTES: usize = 64 << 10;

/// Bytes of a ring.
const RING_BYTES: usize = 64 << 10;

/// Up to so many ranks on a host, lanes have large areas.
const FEW_RANKS: usize = 8;

/// The lanes of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    ranks: usize,
    area_bytes: usize,
}

/// Where the parts of a lane lie in its segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) ring: Ring,
    pub(super) area: Area,
    /// Offset of the word in which the writer says that it waits for room.
    pub(super) waits: usize,
}

impl Layout {
    /// The layout where `ranks` ranks share a host.
    pub(super) fn new(ranks: usize) -> Layout {
        Layout { ranks, area_bytes: if ranks <= FEW_RANKS { 1 << 20 } else { 512 << 10 } }
    }

    /// Bytes of a segment.
    pub(super) fn bytes(&self) -> usize {
        PAGE + BOARD_BYTES + self.ranks * self.lane_bytes()
    }

    /// The lane to the rank with the number `index` among those of the host.
    pub(super) fn lane(&self, index: usize) -> Lane {
        let start = PAGE + BOARD_BYTES + index * self.lane_bytes();
        // What the reader writes lies apart from what the writer writes.
        let (consumed, freed, waits) = (start, start + 8, start + 2 * CELL);
        let ring = Ring { start: start + PAGE, cells: (RING_BYTES / CELL) as u64, consumed };
        let area = Area { start: start + PAGE + RING_BYTES, bytes: self.area_bytes as u64, freed };
        Lane { ring, area, waits }
    }

    fn lane_bytes(&self) -> usize {
        PAGE + RING_BYTES + self.area_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for ranks in [1, 2, 8, 9, 64] {
            let layout = Layout::new(ranks);
            let mut end = PAGE + BOARD_BYTES;
            for index in 0..ranks {
                let Lane { ring, area, waits } = layout.lane(index);
                assert!(ring.consumed >= end && area.freed < waits && waits < ring.start);
                assert_eq!(ring.start + RING_BYTES, area.start);
                assert!(ring.start.is_multiple_of(CELL) && area.start.is_multiple_of(PAGE));
                end = area.start + area.bytes as usize;
            }
            assert_eq!(end, layout.bytes());
        }
    }
}
