//! Memory that operations need while they run, kept for the next ones: memory that the system has
//! just given costs as much to touch for the first time as to copy. Knows no operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::tensor::{Region, prefer_large_pages};

/// Most bytes that are kept.
const MAX_BYTES: usize = 64 << 20;

/// Pieces that nobody uses, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct KeptMemory(Mutex<Vec<Vec<u8>>>);

/// A piece that somebody uses.
struct TakenPiece {
    bytes: Vec<u8>,
    home: Weak<KeptMemory>,
}

impl KeptMemory {
    /// Memory of `len` bytes, whatever they are. When the last region of it is dropped, it is kept.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Region {
        let kept = {
            let mut pieces = self.pieces();
            let fits = |piece: &Vec<u8>| piece.len() >= len && piece.len() / 2 <= len;
            pieces.iter().rposition(fits).map(|place| pieces.remove(place))
        };
        let bytes = kept.unwrap_or_else(|| {
            let mut bytes = vec![0; len];
            prefer_large_pages(&mut bytes);
            bytes
        });
        let piece = TakenPiece { bytes, home: Arc::downgrade(self) };
        Region::from_owner(piece, |piece| (piece.bytes.as_mut_ptr(), len))
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TakenPiece {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let piece = std::mem::take(&mut self.bytes);
        if piece.is_empty() || piece.len() > MAX_BYTES {
            return;
        }
        let mut pieces = home.pieces();
        pieces.push(piece);
        let mut all: usize = pieces.iter().map(Vec::len).sum();
        let surplus = pieces.iter().take_while(|piece| {
            let is_surplus = all > MAX_BYTES;
            all -= piece.len();
            is_surplus
        });
        let surplus = surplus.count();
        let dropped: Vec<Vec<u8>> = pieces.drain(..surplus).collect();
        // Giving much memory back takes time.
        drop(pieces);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(memory: &KeptMemory) -> Vec<usize> {
        memory.pieces().iter().map(Vec::len).collect()
    }

    #[test]
    fn what_nobody_uses_any_more_is_taken_again() {
        let memory = Arc::new(KeptMemory::default());
        let first = memory.take(1000);
        let (part, address) = (first.slice(10..20), first.address());
        drop(first);
        assert!(kept(&memory).is_empty(), "a part of it is in use");
        drop(part);
        assert_eq!(kept(&memory), [1000]);
        assert_eq!(memory.take(400).len(), 400, "of its own: that piece is too large");
        assert_eq!(kept(&memory), [1000, 400]);
        let again = memory.take(600);
        assert_eq!((again.address(), again.len()), (address, 600));
        assert_eq!(kept(&memory), [400]);
    }

    #[test]
    fn not_more_is_kept_than_may_be() {
        let memory = Arc::new(KeptMemory::default());
        let sizes = [MAX_BYTES + 1, MAX_BYTES / 2, 0, 7, MAX_BYTES / 2, MAX_BYTES / 4];
        let taken = sizes.map(|size| memory.take(size));
        taken.into_iter().for_each(drop);
        assert_eq!(kept(&memory), [7, MAX_BYTES / 2, MAX_BYTES / 4], "what was used last");
        let outlives = memory.take(7);
        drop(memory);
        assert_eq!(outlives.read(<[u8]>::len), 7);
    }
}
