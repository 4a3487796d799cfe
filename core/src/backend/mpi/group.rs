//! One group over a communicator: how much of it is under way, memory that it keeps, and what its
//! ranks tell one another through the store, since MPI tells nothing. Knows no requests.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use super::abi::Handle;
use crate::backend::group_status::GroupStatus;
use crate::tensor::Region;

/// Bytes that are kept for small operations at least.
const MIN_SCRATCH: usize = 4096;

/// The ranks of one group.
pub(super) struct Group<H: Handle> {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) comm: H,
    /// Why it broke, and what the ranks tell one another. It breaks under the lock of the
    /// operations only, so that none is added to a group that is broken.
    pub(super) status: GroupStatus,
    /// Operations that have not ended for the caller.
    pub(super) in_flight: AtomicUsize,
    /// Requests that the library has not ended, for the caller or not.
    pub(super) in_library: AtomicUsize,
    /// Whether a thread compares what this group holds.
    pub(super) comparing: AtomicBool,
    /// Memory for small operations, while none uses it.
    scratch: Mutex<Option<Region>>,
}

impl<H: Handle> Group<H> {
    pub(super) fn new((rank, size): (u32, u32), comm: H, status: GroupStatus) -> Group<H> {
        Group {
            rank,
            size,
            comm,
            status,
            in_flight: AtomicUsize::new(0),
            in_library: AtomicUsize::new(0),
            comparing: AtomicBool::new(false),
            scratch: Mutex::default(),
        }
    }

    /// Memory of so many bytes at least, for a small operation.
    pub(super) fn take_scratch(&self, bytes: usize) -> Region {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = scratch.take_if(|kept| kept.len() >= bytes);
        kept.unwrap_or_else(|| Region::zeroed(bytes.next_power_of_two().max(MIN_SCRATCH)))
    }

    /// Gives back what [`Group::take_scratch`] gave, when MPI does not use it any more.
    pub(super) fn put_scratch(&self, scratch: Region) {
        *self.scratch.lock().unwrap_or_else(PoisonError::into_inner) = Some(scratch);
    }
}
