//! Memory for tensors that other processes of this host can read in place. Knows nothing of who
//! reads it.
//!
//! Blocks lie in pools, each of them a file of memory; large blocks have one of their own. A pool
//! is known by its number, so that another process maps it once and is then told offsets in it.

#![allow(unsafe_code)]

mod export;
mod file;
mod pool;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

pub(crate) use self::export::MappingRef;
pub(crate) use self::export::{ExportedMemory, MappedMemory};
pub(crate) use self::file::{File, Mapping};
use self::pool::FreeList;
use super::Region;

/// Blocks of fewer bytes are not worth a page of their own.
pub(crate) const MIN_BYTES: usize = 32 << 10;

/// Bytes of a pool of many blocks. Only what is touched takes memory.
const POOL_BYTES: usize = 256 << 20;

/// Blocks of more bytes have a pool of their own.
const LARGE_BYTES: usize = 16 << 20;

const PAGE_BYTES: usize = 4096;

/// The pools of this process.
static POOLS: RwLock<Vec<Weak<Pool>>> = RwLock::new(Vec::new());

/// The pool in which blocks are looked for first, so that it stays while it is empty.
static CURRENT: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A file of memory and the blocks in it.
#[derive(Debug)]
pub(crate) struct Pool {
    number: u64,
    file: File,
    mapping: Mapping,
    /// The process that made it: a forked child has the same memory, and must not give it back.
    process_id: u32,
    free: Mutex<FreeList>,
    /// Beginnings and ends of memory that is not to be used again once it is free.
    condemned: Mutex<Vec<(usize, usize)>>,
}

/// The position of memory in a pool.
#[derive(Debug)]
pub(crate) struct PoolOffset {
    pub(crate) pool: Arc<Pool>,
    /// Offset in its file.
    pub(crate) at: usize,
}

/// A block, which is free again when this is dropped.
struct Block {
    pool: Arc<Pool>,
    at: usize,
    bytes: usize,
}

impl Pool {
    /// Its number, which no other pool of this process ever has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its memory.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn new(bytes: usize) -> Option<Arc<Pool>> {
        let file = File::new(bytes).ok()?;
        let mapping = file.map().ok()?;
        let pool = Arc::new(Pool {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            file,
            mapping,
            process_id: std::process::id(),
            free: Mutex::new(FreeList::new(bytes)),
            condemned: Mutex::default(),
        });
        let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Some(pool)
    }

    /// Forgets the condemned memory between `at` and `end`; whether there was any.
    fn take_condemned(&self, at: usize, end: usize) -> bool {
        let mut condemned = self.condemned.lock().unwrap_or_else(PoisonError::into_inner);
        let before = condemned.len();
        condemned.retain(|part| part.1 <= at || end <= part.0);
        condemned.len() < before
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        let at = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(bytes)?;
        Some(Block { pool: self.clone(), at, bytes })
    }
}

/// Zeroed memory of `len` bytes on pages of its own; `None` if the system provides none.
pub(crate) fn allocate(len: usize) -> Option<Region> {
    let bytes = len.checked_next_multiple_of(PAGE_BYTES)?;
    let block = if bytes > LARGE_BYTES { Pool::new(bytes)?.take(bytes)? } else { small(bytes)? };
    Some(Region::from_owner(block, |block| {
        // SAFETY: the block lies inside of the pool.
        (unsafe { block.pool.mapping.start().add(block.at) }, len)
    }))
}

/// All memory of the machine, swap included. The system promises a file of memory of any size, and
/// kills the process that touches more of it than there is.
pub(super) fn machine_bytes() -> u64 {
    let known = rustix::system::sysinfo();
    (known.totalram as u64 + known.totalswap as u64) * u64::from(known.mem_unit)
}

/// A block of a pool of many.
fn small(bytes: usize) -> Option<Block> {
    let process_id = std::process::id();
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    // A forked child shares its parent's pools, so its own blocks lie elsewhere.
    let known = current.as_ref().filter(|pool| pool.process_id == process_id);
    if let Some(block) = known.and_then(|pool| pool.take(bytes)) {
        return Some(block);
    }
    let known: Vec<Arc<Pool>> = {
        let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    };
    let mut own = known.iter().filter(|pool| pool.process_id == process_id);
    if let Some(block) = own.find_map(|pool| pool.take(bytes)) {
        return Some(block);
    }
    let pool = Pool::new(POOL_BYTES)?;
    let block = pool.take(bytes);
    *current = Some(pool);
    block
}

/// The pool and offset of the `bytes` bytes at `address`, if they are in a pool of this process.
pub(crate) fn find(address: usize, bytes: usize) -> Option<PoolOffset> {
    let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
    pools.iter().find_map(|pool| {
        let pool = pool.upgrade()?;
        let at = address.checked_sub(pool.mapping.start() as usize)?;
        let inside = at.checked_add(bytes)? <= pool.file.bytes();
        (inside && pool.process_id == std::process::id()).then_some(PoolOffset { pool, at })
    })
}

/// Sees to it that where `region` lies, nothing else ever will: another process may still write
/// there. When the region is dropped, its memory goes back to the system.
pub(crate) fn condemn(region: &Region) {
    let (address, bytes) = (region.address(), region.len());
    let Some(PoolOffset { pool, at }) = find(address, bytes).filter(|_| bytes > 0) else { return };
    let mut condemned = pool.condemned.lock().unwrap_or_else(PoisonError::into_inner);
    condemned.push((at, at + bytes));
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.pool.process_id != std::process::id() {
            return;
        }
        // What is taken next is to be zero, and what is free is to take no memory.
        if let Err(error) = self.pool.file.forget(self.at, self.bytes) {
            tracing::warn!(%error, "cannot give shared memory back");
            return;
        }
        if self.pool.take_condemned(self.at, self.at + self.bytes) {
            return;
        }
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.give_back(self.at, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn blocks_are_zero_apart_and_found() {
        let sizes = [1, PAGE_BYTES, 100_000, LARGE_BYTES + 1, 5 << 20];
        for _ in 0..3 {
            let blocks: Vec<Region> = sizes.iter().map(|size| allocate(*size).unwrap()).collect();
            for (block, size) in blocks.iter().zip(sizes) {
                assert_eq!(block.len(), size);
                assert!(block.address().is_multiple_of(PAGE_BYTES));
                assert!(block.read(|bytes| bytes.iter().all(|byte| *byte == 0)));
                block.write(|bytes| bytes.fill(7));
                let found = find(block.address() + 1, size - 1).unwrap();
                let other = found.pool.file().map_to_read().unwrap();
                assert!(other.show(found.at, size - 1).iter().all(|byte| *byte == 7));
            }
            for (index, one) in blocks.iter().enumerate() {
                assert!(blocks[..index].iter().all(|other| !one.overlaps(other)));
            }
        }
    }

    #[test]
    fn where_condemned_memory_was_nothing_lies_again() {
        let take = || allocate(MIN_BYTES).unwrap();
        let block = take();
        let address = block.address();
        block.write(|bytes| bytes.fill(7));
        condemn(&block.slice(100..200));
        let pool = find(address, 1).unwrap().pool;
        let at = address - pool.mapping.start() as usize;
        drop(block);
        assert!(pool.mapping.show(at, MIN_BYTES).iter().all(|byte| *byte == 0), "it takes none");
        let others: Vec<Region> = (0..POOL_BYTES / MIN_BYTES).map(|_| take()).collect();
        let is_there = |other: &Region| (address..address + MIN_BYTES).contains(&other.address());
        assert!(!others.iter().any(is_there));
        assert!(!pool.take_condemned(0, POOL_BYTES), "it is forgotten");
    }

    #[test]
    fn other_memory_is_not_found() {
        let region = Region::zeroed(1 << 20);
        assert!(find(region.address(), region.len()).is_none());
        let block = allocate(LARGE_BYTES + 1).unwrap();
        assert!(find(block.address(), usize::MAX).is_none());
        let pool = Arc::downgrade(&find(block.address(), 1).unwrap().pool);
        drop(block);
        assert!(pool.upgrade().is_none(), "a large block's pool goes with it");
    }
}
