//! Memory that an operation reads and writes while it is in flight, shared by count.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A part of a piece of memory that stays valid as long as any `Region` of it lives.
///
/// The executor hands regions to transports and kernels, all under one progress lock, so that at
/// most one closure of [`Region::read`] or [`Region::write`] runs on a piece at a time; a flag in
/// the piece turns a breach into a panic instead of aliasing.
#[derive(Clone)]
pub struct Region {
    piece: Arc<Piece>,
    start: usize,
    len: usize,
}

struct Piece {
    ptr: NonNull<u8>,
    len: usize,
    borrowed: AtomicBool,
    /// Owner of the memory, if it has one that must outlive the piece.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the pointer is only followed by `Region::read` and `Region::write`, which exclude one
// another through `borrowed`; `Region::from_raw_parts` requires memory usable from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Region {
    /// Takes `bytes`.
    pub fn from_vec(bytes: Vec<u8>) -> Region {
        Self::from_owner(bytes, |bytes| (bytes.as_mut_ptr(), bytes.len()))
    }

    /// Zeroed memory of `len` bytes.
    pub fn zeroed(len: usize) -> Region {
        Self::from_vec(vec![0; len])
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
        let piece = Piece { ptr, len, borrowed: AtomicBool::new(false), owner };
        Region { piece: Arc::new(piece), start: 0, len }
    }

    /// The owner of the memory, if it is a `T` and this is the only region of it.
    pub(crate) fn into_owner<T: Any>(self) -> Result<T, Region> {
        if !self.piece.owner.as_ref().is_some_and(|owner| owner.as_ref().is::<T>()) {
            return Err(self);
        }
        let (start, len) = (self.start, self.len);
        match Arc::try_unwrap(self.piece) {
            Err(piece) => Err(Region { piece, start, len }),
            Ok(Piece { ptr, len: all, borrowed, owner }) => {
                match owner.map(<Box<dyn Any + Send + Sync>>::downcast::<T>) {
                    Some(Ok(owner)) => Ok(*owner),
                    // Not reached: the type was checked above.
                    _ => {
                        let piece = Piece { ptr, len: all, borrowed, owner: None };
                        Err(Region { piece: Arc::new(piece), start, len: 0 })
                    }
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

    /// Where it begins; for comparing only.
    pub fn address(&self) -> usize {
        self.piece.ptr.as_ptr() as usize + self.start
    }

    /// Whether both are the same bytes.
    pub fn same_memory(&self, other: &Region) -> bool {
        self.address() == other.address() && self.len == other.len
    }

    /// Whether any byte of one is also a byte of the other.
    pub fn overlaps(&self, other: &Region) -> bool {
        let (a, b) = (self.address(), other.address());
        a < b + other.len && b < a + self.len
    }

    /// Shows the bytes to `f`. Must not be nested with a `write` of the same piece of memory.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let _guard = Guard::lock(&self.piece);
        debug_assert!(self.start + self.len <= self.piece.len);
        // SAFETY: in bounds (kept by `slice`), valid by the constructor's contract, and exclusive
        // by the guard.
        f(unsafe { std::slice::from_raw_parts(self.piece.ptr.as_ptr().add(self.start), self.len) })
    }

    /// Lets `f` change the bytes. Must not be nested with another access to the same piece.
    pub fn write<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let _guard = Guard::lock(&self.piece);
        // SAFETY: as in `read`.
        f(unsafe {
            std::slice::from_raw_parts_mut(self.piece.ptr.as_ptr().add(self.start), self.len)
        })
    }

    /// Shows the bytes of `from` and lets `f` change those of `self`; the two do not overlap.
    pub fn write_from<R>(&self, from: &Region, f: impl FnOnce(&mut [u8], &[u8]) -> R) -> R {
        assert!(!self.overlaps(from), "operands overlap");
        if Arc::ptr_eq(&self.piece, &from.piece) {
            let _guard = Guard::lock(&self.piece);
            let base = self.piece.ptr.as_ptr();
            // SAFETY: in bounds, exclusive by the guard, and disjoint by the assertion.
            let (into, from) = unsafe {
                (
                    std::slice::from_raw_parts_mut(base.add(self.start), self.len),
                    std::slice::from_raw_parts(base.add(from.start), from.len),
                )
            };
            return f(into, from);
        }
        from.read(|from| self.write(|into| f(into, from)))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}, {} bytes)", self.address(), self.len)
    }
}

/// Marks a piece as borrowed.
struct Guard<'a>(&'a Piece);

impl<'a> Guard<'a> {
    fn lock(piece: &'a Piece) -> Guard<'a> {
        let was = piece.borrowed.swap(true, Ordering::Acquire);
        assert!(!was, "nested access to the memory of an operation");
        Guard(piece)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.borrowed.store(false, Ordering::Release);
    }
}
