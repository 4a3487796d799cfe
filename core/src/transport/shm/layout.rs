//! The layout of a rank's segment, which its peers on the host map, too. Pure arithmetic.
//!
//! ```text
//! page of words | lane to local rank 0 | lane to local rank 1 | …
//! lane: page of words | ring | area for long payloads
//! ```
//! The owner of a segment writes its lanes, and each peer reads the lane to it. Lanes to the owner
//! itself, and to ranks to which nothing is sent, are never touched, so they cost no memory.

use super::area::Area;
use super::prices::PRICES_BYTES;
use super::ring::{CELL_BYTES, Ring};

const PAGE_BYTES: usize = 4096;

/// Offset of the word that says whether the owner sleeps.
pub(super) const ASLEEP: usize = 0;
/// Offsets of the words that say where the segment lies in its owner's memory, and which process
/// that is, see `attach`.
pub(super) const OWN_ADDRESS: usize = CELL_BYTES;
pub(super) const NONCE: usize = CELL_BYTES + 8;

/// Where in a lane's first page the prices lie.
const PRICES_AT: usize = 4 * CELL_BYTES;
const _: () = assert!(PRICES_AT + PRICES_BYTES <= PAGE_BYTES, "the prices fit their page");

/// Offset of the word that says whether the owner has broken the group, and so told the others why,
/// or tried to.
pub(super) const BROKEN: usize = 2 * CELL_BYTES;

/// Bytes of a ring.
const RING_BYTES: usize = 64 << 10;

/// Up to this many ranks on a host, lanes have large areas.
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
    /// Offset of the word in which the writer says that it waits for the reader.
    pub(super) waits: usize,
    /// Offset of the word in which the reader says that it can read the writer's own memory.
    pub(super) attached: usize,
    /// Offset of the words in which the reader says what reading costs, see `prices`.
    pub(super) prices: usize,
    /// Offset of the word with a position: the writer has taken back what it lent before it.
    pub(super) revoked: usize,
}

impl Layout {
    /// The layout if `ranks` ranks share a host.
    pub(super) fn new(ranks: usize) -> Layout {
        Layout { ranks, area_bytes: if ranks <= FEW_RANKS { 1 << 20 } else { 512 << 10 } }
    }

    /// Bytes of a segment.
    pub(super) fn bytes(&self) -> usize {
        PAGE_BYTES + self.ranks * self.lane_bytes()
    }

    /// The lane to the rank with the number `index` among those of the host.
    pub(super) fn lane(&self, index: usize) -> Lane {
        let start = PAGE_BYTES + index * self.lane_bytes();
        // What the reader writes lies apart from what the writer writes.
        let (consumed, freed, attached) = (start, start + 8, start + 16);
        let (waits, revoked) = (start + 2 * CELL_BYTES, start + 2 * CELL_BYTES + 8);
        let ring =
            Ring { start: start + PAGE_BYTES, cells: (RING_BYTES / CELL_BYTES) as u64, consumed };
        let area =
            Area { start: start + PAGE_BYTES + RING_BYTES, bytes: self.area_bytes as u64, freed };
        Lane { ring, area, waits, attached, prices: start + PRICES_AT, revoked }
    }

    fn lane_bytes(&self) -> usize {
        PAGE_BYTES + RING_BYTES + self.area_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for ranks in [1, 2, 8, 9, 64] {
            let layout = Layout::new(ranks);
            let mut end = PAGE_BYTES;
            for index in 0..ranks {
                let Lane { ring, area, waits, attached, prices, revoked } = layout.lane(index);
                assert!(ring.consumed >= end && area.freed < attached && attached < waits);
                assert!(revoked < prices && prices + PRICES_BYTES <= ring.start);
                assert_eq!(ring.start + RING_BYTES, area.start);
                assert!(
                    ring.start.is_multiple_of(CELL_BYTES) && area.start.is_multiple_of(PAGE_BYTES)
                );
                end = area.start + area.bytes as usize;
            }
            assert_eq!(end, layout.bytes());
        }
    }
}
