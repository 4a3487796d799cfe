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

#[cfg(test)]
impl Loan {
    /// As [`Loan::new`], of memory of the test, which outlives it and is not used meanwhile.
    pub(crate) fn between(region: &Region, memory: &Region) -> Option<Loan> {
        assert_eq!(region.len(), memory.len());
        // SAFETY: as the test promises.
        unsafe { Loan::new(region, NonNull::new(memory.piece.place())?) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_not_over_goes_along_and_the_lender_s_memory_is_left_alone() {
        let (region, memory) = (Region::zeroed(8), Region::from_vec(vec![5; 8]));
        let part = region.slice(2..6);
        let loan = Loan::between(&region, &memory).unwrap();
        assert!(region.is_on_loan() && part.is_on_loan());
        assert_eq!(part.read(<[u8]>::to_vec), [5; 4]);
        part.write(|bytes| bytes.fill(6));
        assert_eq!(memory.read(<[u8]>::to_vec), [5, 5, 6, 6, 6, 6, 5, 5]);
        drop(loan);
        assert!(!part.is_on_loan());
        part.write(|bytes| bytes.fill(7));
        assert_eq!(region.read(<[u8]>::to_vec), [5, 5, 7, 7, 7, 7, 5, 5]);
        assert_eq!(memory.read(<[u8]>::to_vec), [5, 5, 6, 6, 6, 6, 5, 5]);
    }

    #[test]
    fn without_a_copy_the_region_has_its_own_memory_again() {
        let (region, memory) = (Region::from_vec(vec![1; 3]), Region::from_vec(vec![5; 3]));
        Loan::between(&region, &memory).unwrap().end_without_copy();
        assert_eq!(region.read(<[u8]>::to_vec), [1; 3]);
        // And its owner may have it back.
        assert_eq!(region.into_owner::<Vec<u8>>().ok(), Some(vec![1; 3]));
    }

    #[test]
    fn parts_and_what_is_on_loan_already_are_not_moved() {
        let (region, memory) = (Region::zeroed(4), Region::zeroed(4));
        let (part, other) = (region.slice(0..2), Region::zeroed(2));
        assert!(Loan::between(&part, &other).is_none());
        let nothing = Region::zeroed(0);
        assert!(Loan::between(&nothing, &nothing).is_none());
        let first = Loan::between(&region, &memory).unwrap();
        assert!(Loan::between(&region, &Region::zeroed(4)).is_none());
        drop(first);
    }

    #[test]
    fn a_reader_on_another_thread_sees_one_memory_or_the_other() {
        let (region, memory) = (Region::zeroed(64), Region::from_vec(vec![9; 64]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..5000 {
                    region.write(|bytes| {
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                        bytes.fill(bytes[0].wrapping_add(1));
                    });
                }
            });
            for _ in 0..5000 {
                drop(Loan::between(&region, &memory));
            }
        });
    }
}
