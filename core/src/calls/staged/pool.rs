//! Native memory for staging, kept for a while after its use: fresh memory has to be cleared and
//! mapped by the system, which costs about as much as the copy. Knows nothing of calls.

use std::sync::{Mutex, PoisonError};

#[cfg(all(feature = "tcp", target_os = "linux"))]
use crate::tensor::FreshPages;
use crate::tensor::{Region, prefer_large_pages};

/// Bytes below which memory is not worth keeping: the allocator has it at hand.
const MIN_BYTES: usize = 16 << 10;

/// Bytes that are kept at most, in all: a part of the 32 MiB that a rank may have beside its
/// tensors, of which the executor has most.
const MAX_BYTES: usize = 8 << 20;

/// Blocks that are kept at most.
const MAX_BLOCKS: usize = 64;

static POOL: Mutex<BlockPool> = Mutex::new(BlockPool { blocks: Vec::new(), bytes: 0 });

struct BlockPool {
    /// The one that was used last stands last.
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

/// Memory that goes back to the pool when it is dropped.
struct Block(Vec<u8>);

/// Memory of `len` bytes with any content; none if there is not as much.
pub(super) fn region(len: usize) -> Option<Region> {
    if len < MIN_BYTES {
        return Some(Region::zeroed(len));
    }
    // What is not kept is often not used either, by an operation in the language's own memory.
    #[cfg(all(feature = "tcp", target_os = "linux"))]
    if len > MAX_BYTES {
        let pages = FreshPages::new(len)?;
        return Some(Region::from_owner(pages, |pages| (pages.as_mut().as_mut_ptr(), len)));
    }
    let kept = POOL.lock().unwrap_or_else(PoisonError::into_inner).take(len);
    let block = Block(kept.or_else(|| fresh(len))?);
    Some(Region::from_owner(block, |block| (block.0.as_mut_ptr(), len)))
}

fn fresh(len: usize) -> Option<Vec<u8>> {
    // Asked for first, as programs may want anything and the process shall outlive that; what is
    // then made is cleared by the system, not here.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(len).ok()?;
    // Or the compiler would leave out what is not used, and take it to be there.
    drop(std::hint::black_box(probe));
    let mut block = vec![0; len];
    prefer_large_pages(&mut block);
    Some(block)
}

impl BlockPool {
    /// The shortest block of `len` bytes or more, but not more than twice as many: a call that has
    /// a short tensor and a long one must find the same blocks again as the call before it.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |block: &Vec<u8>| len <= block.len() && block.len() <= 2 * len;
        // Of those that are equally long, the one that was used last.
        let found = self.blocks.iter().enumerate().rev().filter(|(_, block)| fits(block));
        let (position, _) = found.min_by_key(|(_, block)| block.len())?;
        let block = self.blocks.remove(position);
        self.bytes -= block.capacity();
        Some(block)
    }

    fn put(&mut self, block: Vec<u8>) {
        if block.capacity() > MAX_BYTES {
            return;
        }
        self.bytes += block.capacity();
        self.blocks.push(block);
        // The one that was not used for the longest time goes first.
        while self.bytes > MAX_BYTES || self.blocks.len() > MAX_BLOCKS {
            let oldest = self.blocks.remove(0);
            self.bytes -= oldest.capacity();
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let block = std::mem::take(&mut self.0);
        POOL.lock().unwrap_or_else(PoisonError::into_inner).put(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_blocks_are_found_again_in_any_order() {
        let mut kept = BlockPool { blocks: Vec::new(), bytes: 0 };
        for order in [[1 << 18, 1 << 17], [1 << 17, 1 << 18]] {
            kept.put(vec![0; 1 << 17]);
            kept.put(vec![0; 1 << 18]);
            let taken = order.map(|len| kept.take(len).map(|block| block.len()));
            assert_eq!(taken, order.map(Some));
        }
    }

    #[test]
    fn what_is_too_large_to_be_kept_is_all_there() {
        let len = MAX_BYTES + 4097;
        let region = region(len).map(|region| {
            region.write(|bytes| bytes.fill(7));
            region.read(|bytes| bytes.iter().filter(|byte| **byte == 7).count())
        });
        assert_eq!(region, Some(len));
        assert!(super::region(isize::MAX as usize / 2).is_none(), "more than there is");
    }

    #[test]
    fn what_was_used_is_used_again_and_the_oldest_is_given_up() {
        let mut kept = BlockPool { blocks: Vec::new(), bytes: 0 };
        kept.put(vec![1; 1 << 20]);
        assert!(kept.take(1 << 18).is_none(), "a quarter would waste most of it");
        assert!(kept.take(1 << 21).is_none());
        assert_eq!(kept.take(1 << 19).map(|block| block.len()), Some(1 << 20), "cut by who asks");
        assert_eq!(kept.bytes, 0);
        for _ in 0..3 {
            kept.put(vec![0; 3 << 20]);
        }
        assert_eq!((kept.blocks.len(), kept.bytes), (2, 6 << 20));
        kept.put(vec![0; 9 << 20]);
        assert_eq!((kept.blocks.len(), kept.bytes), (2, 6 << 20), "too large to be kept");
    }
}
