//! Memory of a caller in which a region lies for as long as a call lasts: the operation works where
//! the data is. What is not over by then continues in the memory of the region itself. Knows no
//! operation.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::{Access, Region, wait_for};

/// The loan of a caller's memory to a region. The region lies there until this ends or is dropped.
#[derive(Debug)]
#[must_use = "the memory is given back when this is dropped"]
pub struct Loan {
    region: Region,
    /// The region's own memory.
    own: NonNull<u8>,
    /// Whether what the region has goes with it.
    copies: bool,
}

impl Loan {
    /// Moves `region` to the `region.len()` bytes at `memory`; what it had stays behind. None if it
    /// is only a part of a piece of memory, lies on a device, or is on loan already.
    ///
    /// # Safety
    /// Until this has ended, the memory must be valid for reads and writes from any thread, and
    /// nobody but the region may write to it, or read what that writes. If operations are given the
    /// region only to read it, it is not written, and may be read by others.
    pub unsafe fn new(region: &Region, memory: NonNull<u8>) -> Option<Loan> {
        let piece = &region.piece;
        let is_whole = region.start == 0 && region.len == piece.len;
        if !is_whole || piece.device.is_some() || region.is_empty() || region.is_on_loan() {
            return None;
        }
        let _access = wait_for(|| Access::write(piece));
        let own = NonNull::new(piece.place.swap(memory.as_ptr(), Ordering::Relaxed))?;
        piece.is_on_loan.store(true, Ordering::Release);
        Some(Loan { region: region.clone(), own, copies: true })
    }

    /// Gives the memory back; the region's own takes its place, with any content. Whoever looks at
    /// the region after this, which nobody should, sees that.
    pub fn end_without_copy(mut self) {
        self.copies = false;
    }
}

/// Gives the memory back, and takes what the region has along. Waits for kernels that are at work.
impl Drop for Loan {
    fn drop(&mut self) {
        let piece = &self.region.piece;
        let _access = wait_for(|| Access::write(piece));
        if self.copies {
            // SAFETY: the loan's memory is valid until this has ended, the region's own as long as
            // the piece is; both have the length of the piece, they are different memories, and
            // the access keeps all others away.
            unsafe { self.own.as_ptr().copy_from_nonoverlapping(piece.place(), piece.len) };
        }
        piece.place.store(self.own.as_ptr(), Ordering::Relaxed);
        piece.is_on_loan.store(false, Ordering::Release);
    }
}

// SAFETY: the pointer is to memory that the region's piece owns, which may be used by any thread.
unsafe impl Send for Loan {}
