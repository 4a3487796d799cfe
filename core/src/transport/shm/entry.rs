//! The format of the entries of a lane. Pure; knows nothing of where they lie.

/// A frame as a whole: header, payload.
pub(super) const WHOLE: u32 = 1;
/// A frame whose payload, or the first piece of it, lies in the area: piece, header.
pub(super) const STAGED: u32 = 2;
/// The next piece of the payload of the frame before: piece.
pub(super) const MORE: u32 = 3;

/// A frame whose payload lies in the writer's own memory: number of the pool, piece, header. The
/// reader is done with it when it has passed the entry. The payload is valid only if the writer has
/// not taken it back by then.
pub(super) const LENT: u32 = 4;

/// A frame whose payload lies in the writer's own memory, and is read from there by cross-memory
/// attach: piece, whose position is an address, and header. Otherwise as [`LENT`].
pub(super) const ATTACHED: u32 = 5;

/// Payloads of up to this many bytes follow their header in the ring.
pub(super) const INLINE_BYTES: usize = 4096;

/// Bytes of a number.
pub(super) const NUMBER_BYTES: usize = 8;

/// Bytes of a [`Piece`].
pub(super) const PIECE_BYTES: usize = 16;

/// Where a piece of a payload lies in the area, or a payload in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its position, see [`Allocator`](super::area::Allocator), or its offset.
    pub(super) position: u64,
    /// Its length.
    pub(super) bytes: u64,
}

impl Piece {
    pub(super) fn encode(self) -> [u8; PIECE_BYTES] {
        let mut bytes = [0; PIECE_BYTES];
        bytes[..8].copy_from_slice(&self.position.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; PIECE_BYTES]) -> Piece {
        let [position, bytes] = [0, 8].map(|start| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[start..start + 8]);
            u64::from_le_bytes(word)
        });
        Piece { position, bytes }
    }
}
