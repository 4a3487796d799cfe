//! Memory that an operation reads and writes while it is in flight, shared by count.

#![allow(unsafe_code)]

mod loan;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

pub use self::loan::Loan;
use super::pages::prefer_large_pages;

/// A part of a piece of memory that stays valid as long as any `Region` of it lives.
///
/// The executor of a group hands regions to its transport and kernels under one progress lock.
/// Several groups may be given the same memory, so [`Region::read`] and [`Region::write`] exclude
/// one another as readers and writers.
#[derive(Clone)]
pub struct Region {
    piece: Arc<Piece>,
    start: usize,
    len: usize,
}

/// Where memory of a CUDA device lies, and in whose order it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnDevice {
    /// The device's index.
    pub index: u32,
    /// The stream (`CUstream`) on which the owner works with the memory: operations come after what
    /// was issued there before them, and waiting for one has what is issued there come after it.
    pub stream: usize,
}

struct Piece {
    /// Where the bytes are now; changed only by a [`Loan`], which excludes all readers and writers.
    place: AtomicPtr<u8>,
    /// Whether that is memory which will be taken back.
    is_on_loan: AtomicBool,
    len: usize,
    /// None if it is memory of the host.
    device: Option<OnDevice>,
    /// Readers of the moment, or [`WRITER`].
    accesses: AtomicU32,
    /// Owner of the memory, if it has one that must outlive the piece.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the pointer is only followed by `Region::read` and `Region::write`, which exclude one
// another through `accesses`; `Region::from_raw_parts` requires memory usable from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Region {
    /// Takes `bytes`.
    pub fn from_vec(bytes: Vec<u8>) -> Region {
        Self::from_owner(bytes, |bytes| (bytes.as_mut_ptr(), bytes.len()))
    }

    /// No bytes, in the place of memory that a call cannot have where it lies, for its owner moves
    /// it: who asks takes it for memory on loan.
    pub(crate) fn elsewhere() -> Region {
        let region = Self::zeroed(0);
        region.piece.is_on_loan.store(true, Ordering::Release);
        region
    }

    /// Zeroed memory of `len` bytes.
    pub fn zeroed(len: usize) -> Region {
        Self::from_vec(vec![0; len])
    }

    /// Zeroed memory of `len` bytes that elements of any type may lie in; none if there is no so
    /// much memory. Much of it lies where other ranks of this host can read it, so that operations
    /// of it copy less.
    pub fn for_elements(len: usize) -> Option<Region> {
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        if len as u64 > super::shared::machine_bytes() {
            return None;
        }
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        if len >= super::shared::MIN_BYTES
            && let Some(region) = super::shared::allocate(len)
        {
            return Some(region);
        }
        let mut blocks: Vec<u128> = Vec::new();
        blocks.try_reserve_exact(len.div_ceil(size_of::<u128>())).ok()?;
        prefer_large_pages(blocks.spare_capacity_mut());
        blocks.resize(len.div_ceil(size_of::<u128>()), 0);
        Some(Self::from_owner(blocks, |blocks| (blocks.as_mut_ptr().cast(), len)))
    }

    /// Takes `owner`, whose memory does not move when `owner` itself moves.
    pub(crate) fn from_owner<T: Any + Send + Sync>(
        owner: T,
        memory: impl FnOnce(&mut T) -> (*mut u8, usize),
    ) -> Region {
        let mut owner = Box::new(owner);
        let (ptr, len) = memory(&mut owner);
        // SAFETY: the memory belongs to `owner`, which the piece keeps and nobody else can reach.
        unsafe { Self::from_raw_parts(ptr, len, Some(owner)) }
    }

    /// Memory that somebody else owns.
    ///
    /// # Safety
    /// `ptr` must be valid for reads and writes of `len` bytes from any thread until the last
    /// region of it is dropped (which `owner` may ensure), and nobody but the regions may write to
    /// it, or read what they write, in that time. Memory given only as input of operations is never
    /// written and may be read by others.
    pub unsafe fn from_raw_parts(
        ptr: *mut u8,
        len: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Region {
        let ptr = NonNull::new(ptr).unwrap_or(NonNull::dangling());
        Region { piece: Arc::new(Piece::new(ptr, len, None, owner)), start: 0, len }
    }

    /// Memory of a CUDA device, at this address of it.
    ///
    /// # Safety
    /// `address` must be that of `len` bytes of the device, valid until the last region of them is
    /// dropped (which `owner` may ensure), and what else is done with them is issued on the stream
    /// that `device` names, or ordered with it.
    pub unsafe fn from_device_parts(
        address: usize,
        len: usize,
        device: OnDevice,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Region {
        let ptr = NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling());
        Region { piece: Arc::new(Piece::new(ptr, len, Some(device), owner)), start: 0, len }
    }

    /// The device on which the memory lies; none if it is the host's.
    pub fn device(&self) -> Option<OnDevice> {
        self.piece.device
    }

    /// What keeps the memory, if it is a `T`.
    #[doc(hidden)]
    pub fn owner<T: Any>(&self) -> Option<&T> {
        self.piece.owner.as_ref()?.downcast_ref()
    }

    /// The owner of the memory, if it is a `T` and this, all of the memory, is the only region of
    /// it.
    pub(crate) fn into_owner<T: Any>(self) -> Result<T, Region> {
        let is_whole = self.start == 0 && self.len == self.piece.len;
        if !is_whole || !self.piece.owner.as_ref().is_some_and(|owner| owner.as_ref().is::<T>()) {
            return Err(self);
        }
        let (start, len) = (self.start, self.len);
        match Arc::try_unwrap(self.piece) {
            Err(piece) => Err(Region { piece, start, len }),
            Ok(mut piece) => {
                match piece.owner.take().map(<Box<dyn Any + Send + Sync>>::downcast::<T>) {
                    Some(Ok(owner)) => Ok(*owner),
                    // Not reached: the type was checked above.
                    _ => Err(Region { piece: Arc::new(piece), start, len: 0 }),
                }
            }
        }
    }

    /// Whether no other region shares this memory.
    #[cfg(test)]
    pub(crate) fn is_unique(&self) -> bool {
        Arc::strong_count(&self.piece) == 1
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of this region at `range`, which must lie inside it.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Region {
        assert!(range.start <= range.end && range.end <= self.len, "range outside of the region");
        Region { piece: self.piece.clone(), start: self.start + range.start, len: range.len() }
    }

    /// Whether it lies in memory that will be taken back, so that nobody may be told the address.
    pub(crate) fn is_on_loan(&self) -> bool {
        self.piece.is_on_loan.load(Ordering::Acquire)
    }

    /// Where it begins; for comparing only.
    pub fn address(&self) -> usize {
        self.piece.place() as usize + self.start
    }

    /// Where it begins, for a library that reads or writes the memory itself, and orders its
    /// accesses and ours by what it promises of its calls.
    #[cfg(feature = "mpi")]
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        // SAFETY: in bounds, kept by `slice`.
        unsafe { self.piece.place().add(self.start) }
    }

    /// Whether the memory is lent by somebody who waits until it is not used any more, so that a
    /// region does not keep it.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.piece.owner.is_none()
    }

    /// Whether both are the same bytes.
    pub fn same_memory(&self, other: &Region) -> bool {
        // Not by addresses, where a loan might end between the looks at them.
        if Arc::ptr_eq(&self.piece, &other.piece) {
            return self.start == other.start && self.len == other.len;
        }
        self.address() == other.address() && self.len == other.len
    }

    /// Whether both are the same part of the same piece of memory, which empty parts that have the
    /// same address need not be.
    pub(crate) fn is(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.piece, &other.piece) && self.start == other.start && self.len == other.len
    }

    /// Whether any byte of one is also a byte of the other.
    pub fn overlaps(&self, other: &Region) -> bool {
        let (a, b) = match Arc::ptr_eq(&self.piece, &other.piece) {
            true => (self.start, other.start),
            false => (self.address(), other.address()),
        };
        a < b + other.len && b < a + self.len
    }

    /// Shows the bytes to `f`, while nobody writes to this piece of memory. Must not be called
    /// inside of a `write` of it.
    ///
    /// # Panics
    /// As `write` and `write_from`, if the memory is a device's: the host cannot reach it.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let _access = wait_for(|| Access::read(&self.piece));
        f(self.bytes())
    }

    /// Lets `f` change the bytes, while nobody else reads or writes this piece of memory. Must not
    /// be called inside of another access to it.
    pub fn write<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let _access = wait_for(|| Access::write(&self.piece));
        // SAFETY: in bounds (kept by `slice`), valid by the constructor's contract, and exclusive
        // by the access.
        f(unsafe { std::slice::from_raw_parts_mut(self.piece.place().add(self.start), self.len) })
    }

    /// Runs `f`, which reads or changes the bytes by another way than this region, while nobody
    /// else reads or writes this piece of memory. Must not be called inside of another access to
    /// it.
    pub(crate) fn exclude<R>(&self, f: impl FnOnce() -> R) -> R {
        let _access = wait_for(|| Access::write(&self.piece));
        f()
    }

    /// Shows the bytes of `from` and lets `f` change those of `self`; the two do not overlap.
    pub fn write_from<R>(&self, from: &Region, f: impl FnOnce(&mut [u8], &[u8]) -> R) -> R {
        assert!(!self.overlaps(from), "operands overlap");
        let same_piece = Arc::ptr_eq(&self.piece, &from.piece);
        // Both or neither: holding one while waiting for the other could wait for ever.
        let _accesses = wait_for(|| {
            let write = Access::write(&self.piece)?;
            if same_piece {
                Some((write, None))
            } else {
                Some((write, Some(Access::read(&from.piece)?)))
            }
        });
        // SAFETY: in bounds and valid as in `write`; exclusive by the accesses, and disjoint from
        // `from`, which may be of the same piece, by the assertion.
        let into =
            unsafe { std::slice::from_raw_parts_mut(self.piece.place().add(self.start), self.len) };
        f(into, from.bytes())
    }

    /// The bytes. The caller holds an access to the piece.
    fn bytes(&self) -> &[u8] {
        debug_assert!(self.start + self.len <= self.piece.len);
        // SAFETY: in bounds (kept by `slice`), valid by the constructor's contract, and not written
        // while the caller holds its access.
        unsafe { std::slice::from_raw_parts(self.piece.place().add(self.start), self.len) }
    }
}

impl Piece {
    fn new(
        start: NonNull<u8>,
        len: usize,
        device: Option<OnDevice>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Piece {
        Piece {
            place: AtomicPtr::new(start.as_ptr()),
            is_on_loan: AtomicBool::new(false),
            len,
            device,
            accesses: AtomicU32::new(0),
            owner,
        }
    }

    /// Where it begins. Who has an access keeps it there.
    fn place(&self) -> *mut u8 {
        self.place.load(Ordering::Relaxed)
    }

    /// Following the pointer of a device's memory would end the process, or worse.
    fn assert_reachable(&self) {
        assert!(
            self.device.is_none(),
            "memory of a CUDA device is not the host's to read or write"
        );
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}, {} bytes)", self.address(), self.len)
    }
}

/// The value of [`Piece::accesses`] while somebody writes.
const WRITER: u32 = u32::MAX;

/// The right to read or write a piece of memory, until it is dropped.
struct Access<'a> {
    piece: &'a Piece,
    writes: bool,
}

impl<'a> Access<'a> {
    /// The right to read, unless somebody writes.
    fn read(piece: &'a Piece) -> Option<Access<'a>> {
        piece.assert_reachable();
        let taken = piece.accesses.fetch_update(Ordering::Acquire, Ordering::Relaxed, |readers| {
            (readers < WRITER - 1).then(|| readers + 1)
        });
        // Lazily: an access that was not granted must not be given back.
        taken.is_ok().then(|| Access { piece, writes: false })
    }

    /// The right to write, unless somebody reads or writes.
    fn write(piece: &'a Piece) -> Option<Access<'a>> {
        piece.assert_reachable();
        let taken =
            piece.accesses.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Access { piece, writes: true })
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if self.writes {
            self.piece.accesses.store(0, Ordering::Release);
        } else {
            self.piece.accesses.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Tries until `acquire` succeeds. Accesses last as long as one kernel or one call of the system
/// that does not block, and they meet only where a tensor is given to several groups at once.
fn wait_for<T>(acquire: impl Fn() -> Option<T>) -> T {
    loop {
        if let Some(acquired) = acquire() {
            return acquired;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_exclude() {
        let region = Region::zeroed(8);
        let sum = region.read(|outer| region.read(|inner| outer.len() + inner.len()));
        assert_eq!(sum, 16);
        let total = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        region.write(|bytes| bytes.iter_mut().for_each(|b| *b = b.wrapping_add(1)));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..1000 {
                    region.read(|bytes| assert!(bytes.iter().all(|byte| *byte == bytes[0])));
                }
            });
            4000_u32
        });
        assert!(region.read(|bytes| bytes.iter().all(|&byte| byte == total as u8)));
    }

    #[test]
    fn two_threads_that_copy_crosswise_both_finish() {
        let (a, b) = (Region::zeroed(64), Region::zeroed(64));
        std::thread::scope(|scope| {
            for (into, from) in [(&a, &b), (&b, &a)] {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        into.write_from(from, |into, from| into.copy_from_slice(from));
                    }
                });
            }
        });
    }

    #[test]
    fn the_owner_comes_back_when_nothing_else_holds_the_memory() {
        let region = Region::from_vec(vec![1, 2, 3]);
        let other = region.slice(0..1);
        let region = match region.into_owner::<Vec<u8>>() {
            Ok(_) => panic!("another region holds the memory"),
            Err(region) => region,
        };
        let part = match other.into_owner::<Vec<u8>>() {
            Ok(_) => panic!("it is a part"),
            Err(part) => part,
        };
        drop(part);
        assert_eq!(region.into_owner::<Vec<u8>>().ok(), Some(vec![1, 2, 3]));
    }
}
