//! The area of shared memory for long payloads from one writer to one reader, and where each piece
//! lies in it. Knows nothing of frames.
//!
//! Pieces are allocated in order and freed in order. Whenever none is in use, the next one starts
//! at the front again, so that the memory in use stays in the processors' caches.

use super::ring::{CELL_BYTES, CorruptRing, SharedMemory};

/// The place of an area in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// Offset of the first byte.
    pub(super) start: usize,
    /// How many bytes there are, a multiple of [`CELL_BYTES`].
    pub(super) bytes: u64,
    /// Offset of the word in which the reader says how far it has read.
    pub(super) freed: usize,
}

/// The writer's side.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    /// The end of the last piece. Positions rise for ever; their remainder is the place.
    end: u64,
    /// Where the area was last found empty: everything before is free.
    base: u64,
    /// Where it was last given back to the system: nothing was written since if it is the end.
    released: u64,
}

impl Area {
    /// The longest piece: half of the area, so that one can be written while another is read.
    pub(super) fn longest(&self) -> usize {
        self.bytes as usize / 2
    }

    /// Where the piece at `position` lies, if it lies inside.
    pub(super) fn place(&self, position: u64, bytes: usize) -> Option<usize> {
        let place = position % self.bytes;
        (place.checked_add(bytes as u64)? <= self.bytes).then(|| self.start + place as usize)
    }

    /// Marks the piece at `position` and all before it as read.
    pub(super) fn free(&self, memory: &impl SharedMemory, position: u64, bytes: usize) {
        memory.store(self.freed, position.wrapping_add(rounded(bytes)));
    }
}

impl Allocator {
    /// Finds room for a piece of `bytes`, at most [`Area::longest`], and returns its position.
    /// `None` if there is no room now.
    pub(super) fn allocate(
        &mut self,
        area: &Area,
        memory: &impl SharedMemory,
        bytes: usize,
    ) -> Result<Option<u64>, CorruptRing> {
        debug_assert!(bytes <= area.longest(), "a piece of {bytes} bytes");
        let bytes = rounded(bytes);
        let freed = memory.load(area.freed);
        if freed > self.end {
            return Err(CorruptRing);
        }
        let mut start = self.end;
        if freed == self.end {
            start = start.next_multiple_of(area.bytes);
            self.base = start;
        } else if start % area.bytes + bytes > area.bytes {
            start = start.next_multiple_of(area.bytes);
        }
        if start + bytes - freed.max(self.base) > area.bytes {
            return Ok(None);
        }
        self.end = start + bytes;
        Ok(Some(start))
    }

    /// Whether there is room now for pieces of `bytes` together, each of at most `longest`.
    pub(super) fn has_room(
        &self,
        area: &Area,
        memory: &impl SharedMemory,
        bytes: usize,
        longest: usize,
    ) -> bool {
        // Only the last of them may be shorter; what is left before the end of the area, where the
        // next one does not fit, is less than the longest.
        let needed = rounded(bytes) + rounded(longest);
        match memory.load(area.freed) {
            freed if freed == self.end => needed <= area.bytes,
            freed => self.end.saturating_sub(freed.max(self.base)) + needed <= area.bytes,
        }
    }

    /// Whether something was written to `area` since this was last true, and all of it was read.
    pub(super) fn take_unused(&mut self, area: &Area, memory: &impl SharedMemory) -> bool {
        let is_unused = self.released != self.end && memory.load(area.freed) == self.end;
        if is_unused {
            self.released = self.end;
        }
        is_unused
    }
}

fn rounded(bytes: usize) -> u64 {
    bytes.next_multiple_of(CELL_BYTES) as u64
}
