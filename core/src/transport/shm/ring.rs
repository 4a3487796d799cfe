//! A ring of entries of different lengths from one writer to one reader, in shared memory. It never
//! waits or locks: a side that stops at any instruction leaves the ring valid. Generic over the
//! memory, so that a model checker can run it; knows nothing of frames.
//!
//! ```text
//! cells of 64 bytes   | stamp · cells, tag · body …   | stamp · … |
//! ```
//! An entry takes consecutive whole cells; one that does not fit before the end of the ring is
//! preceded by padding. The reader polls only the stamp of the cell at its position p: the entry
//! there is complete when the stamp is p + 1. Cells still hold bytes of earlier entries, which
//! might look like a stamp, so the writer clears the stamp after an entry before it publishes the
//! entry. The cache line that the reader polls is the one that holds the message, and no other has
//! to be transferred.

/// Bytes of a cell: a line of the processors' caches.
pub(super) const CELL_BYTES: usize = 64;
/// Bytes in front of an entry's body.
pub(super) const ENTRY_HEAD_BYTES: usize = 16;
/// The tag of padding; entries have others.
const PADDING: u32 = 0;

/// Memory that the two sides share. Offsets are bytes.
pub(super) trait SharedMemory {
    /// Loads a word. What was written before the word was stored can be read afterwards (acquire).
    fn load(&self, at: usize) -> u64;
    /// Stores a word, after everything that was written before (release).
    fn store(&self, at: usize, value: u64);
    /// Writes a word and returns what it was.
    fn swap(&self, at: usize, value: u64) -> u64;
    /// If two sides each store, fence, and load what the other stored, at least one sees the
    /// other's value.
    fn fence(&self);
    /// This side will soon write the cache line of a word.
    fn expect_write(&self, _at: usize) {}
    /// Writes bytes that belong to the writer.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Reads bytes that belong to the reader.
    fn read(&self, at: usize, into: &mut [u8]);
}

/// The place of a ring in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Offset of the cells.
    pub(super) start: usize,
    /// How many there are.
    pub(super) cells: u64,
    /// Offset of the word in which the reader says how many cells it is done with.
    pub(super) consumed: usize,
}

/// The other side has written something invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CorruptRing;

/// The writer's side.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Cells written since the beginning.
    position: u64,
    /// Cells that the reader is known to be done with.
    consumed: u64,
}

/// The reader's side.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Cells read since the beginning.
    position: u64,
    /// The cells that the writer was told of.
    told: u64,
}

/// An entry that the reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tag: u32,
    /// Offset of the body.
    pub(super) body: usize,
    /// Most bytes of the body; its content must say how many it really has.
    pub(super) room: usize,
    cells: u32,
}

impl Ring {
    /// The longest body that fits whatever is in front of it.
    pub(super) fn longest(&self) -> usize {
        (self.cells as usize / 2 - 1) * CELL_BYTES - ENTRY_HEAD_BYTES
    }

    fn at(&self, position: u64) -> usize {
        self.start + (position % self.cells) as usize * CELL_BYTES
    }

    fn cells_of(body: usize) -> u64 {
        (ENTRY_HEAD_BYTES + body).div_ceil(CELL_BYTES) as u64
    }
}

impl Writer {
    /// Cells written since the beginning.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Cells that the reader is done with.
    pub(super) fn consumed(
        &mut self,
        ring: &Ring,
        memory: &impl SharedMemory,
    ) -> Result<u64, CorruptRing> {
        let consumed = memory.load(ring.consumed);
        if consumed < self.consumed || consumed > self.position {
            return Err(CorruptRing);
        }
        self.consumed = consumed;
        Ok(consumed)
    }

    /// Finds room for an entry with a body of `bytes`, at most [`Ring::longest`]. Returns where the
    /// body goes, or `None` if there is no room now.
    pub(super) fn reserve(
        &mut self,
        ring: &Ring,
        memory: &impl SharedMemory,
        bytes: usize,
    ) -> Result<Option<usize>, CorruptRing> {
        debug_assert!(bytes <= ring.longest(), "an entry of {bytes} bytes");
        let cells = Ring::cells_of(bytes);
        let rest = ring.cells - self.position % ring.cells;
        let skipped = if cells <= rest { 0 } else { rest };
        // The stamp after the entry is cleared, so its cell must be free, too.
        let end = self.position + skipped + cells + 1;
        if end - self.consumed > ring.cells {
            let consumed = self.consumed(ring, memory)?;
            if end - consumed > ring.cells {
                return Ok(None);
            }
        }
        if skipped > 0 {
            self.publish_cells(ring, memory, PADDING, skipped);
        }
        Ok(Some(ring.at(self.position) + ENTRY_HEAD_BYTES))
    }

    /// Whether there is room now for `entries` entries with bodies of up to `bytes` bytes.
    pub(super) fn has_room(
        &mut self,
        ring: &Ring,
        memory: &impl SharedMemory,
        entries: usize,
        bytes: usize,
    ) -> Result<bool, CorruptRing> {
        let cells = Ring::cells_of(bytes);
        // One of them may not fit before the end of the ring; the stamp after the last is cleared.
        let end = self.position + (entries as u64 + 1) * cells + 1;
        Ok(end - self.consumed <= ring.cells || end - self.consumed(ring, memory)? <= ring.cells)
    }

    /// Publishes the entry that was reserved with `bytes` and whose body is written. The tag is not
    /// 0.
    pub(super) fn publish(
        &mut self,
        ring: &Ring,
        memory: &impl SharedMemory,
        tag: u32,
        bytes: usize,
    ) {
        debug_assert!(tag != PADDING);
        self.publish_cells(ring, memory, tag, Ring::cells_of(bytes));
    }

    fn publish_cells(&mut self, ring: &Ring, memory: &impl SharedMemory, tag: u32, cells: u64) {
        let at = ring.at(self.position);
        let next = self.position + cells;
        memory.store(ring.at(next), 0);
        let word = cells | u64::from(tag) << 32;
        memory.write(at + 8, &word.to_le_bytes());
        memory.store(at, self.position + 1);
        self.position = next;
    }
}

impl Reader {
    /// Cells read since the beginning.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whether there is anything to read.
    pub(super) fn is_ready(&self, ring: &Ring, memory: &impl SharedMemory) -> bool {
        memory.load(ring.at(self.position)) == self.position + 1
    }

    /// The next entry, if it is there. It stays the next one until [`Reader::pass`].
    pub(super) fn next(
        &mut self,
        ring: &Ring,
        memory: &impl SharedMemory,
    ) -> Result<Option<Entry>, CorruptRing> {
        while self.is_ready(ring, memory) {
            let at = ring.at(self.position);
            let mut word = [0; 8];
            memory.read(at + 8, &mut word);
            let word = u64::from_le_bytes(word);
            let (cells, tag) = (word as u32, (word >> 32) as u32);
            if cells == 0 || u64::from(cells) > ring.cells - self.position % ring.cells {
                return Err(CorruptRing);
            }
            if tag != PADDING {
                let room = cells as usize * CELL_BYTES - ENTRY_HEAD_BYTES;
                return Ok(Some(Entry { tag, body: at + ENTRY_HEAD_BYTES, room, cells }));
            }
            self.position += u64::from(cells);
        }
        Ok(None)
    }

    /// Advances past `entry`, the next one. Its body may be overwritten when the writer is told.
    pub(super) fn pass(&mut self, entry: Entry) {
        self.position += u64::from(entry.cells);
    }

    /// Whether so much was read that the writer should be told.
    pub(super) fn is_telling_due(&self, ring: &Ring) -> bool {
        self.position - self.told >= ring.cells / 4
    }

    /// Publishes to the writer what was read.
    pub(super) fn tell(&mut self, ring: &Ring, memory: &impl SharedMemory) {
        if self.told != self.position {
            self.told = self.position;
            memory.store(ring.consumed, self.position);
        }
    }
}
