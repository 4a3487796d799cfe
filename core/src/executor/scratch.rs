//! Memory for the scratch blocks of schedules, kept between operations because new pages cost more
//! than the data that passes through them. Knows nothing of operations.

use crate::tensor::Region;

/// Most bytes that are kept.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// Most pieces that are kept.
const MAX_KEPT_PIECES: usize = 32;

/// Scratch memory that no operation uses, the oldest first.
#[derive(Default)]
pub(super) struct ScratchPool {
    pieces: Vec<Region>,
    bytes: usize,
}

impl ScratchPool {
    /// Bytes that are kept.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Memory of `bytes` bytes with arbitrary content. A piece is reused for its own length only,
    /// since training repeats the same sizes.
    pub(super) fn take(&mut self, bytes: usize) -> Region {
        match self.pieces.iter().rposition(|piece| piece.len() == bytes) {
            Some(place) => {
                self.bytes -= bytes;
                self.pieces.remove(place)
            }
            None => Region::zeroed(bytes),
        }
    }

    /// Keeps `pieces` for later, and drops older ones if there are too many.
    pub(super) fn give_back(&mut self, pieces: &mut Vec<Region>) {
        for piece in pieces.drain(..) {
            if piece.is_empty() || piece.len() > MAX_KEPT_BYTES {
                continue;
            }
            self.bytes += piece.len();
            self.pieces.push(piece);
            while self.bytes > MAX_KEPT_BYTES || self.pieces.len() > MAX_KEPT_PIECES {
                self.bytes -= self.pieces.remove(0).len();
            }
        }
    }
}
