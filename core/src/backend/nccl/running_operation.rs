//! An operation that was enqueued: the event recorded after it, and what must not move until
//! that event has completed. Knows no store.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::communicator::Communicator;
use super::progress::REST;
use crate::backend::Backend;
use crate::backend::group_status::GroupStatus;
use crate::clock::Instant;
use crate::completion::{Completion, Outcome};
use crate::generated::error::{Error, Result};
use crate::tensor::Region;
use crate::tensor::cuda::{Event, Scratch};

/// The ranks of one group, and the communicator that they have once they used it.
pub(super) struct Group {
    pub(super) status: GroupStatus,
    pub(super) communicator: OnceLock<Arc<Communicator>>,
    /// Operations that have not ended, also those that are being enqueued.
    pub(super) in_flight: AtomicUsize,
    /// How many threads are about to abort the communicator, or do so.
    pub(super) aborting: AtomicUsize,
    /// Fails when the group's backend for the host finds that a rank is gone, which takes it
    /// milliseconds: the library may never notice.
    pub(super) host_failure: Option<Arc<Completion>>,
    /// That backend.
    pub(super) host: Option<Weak<dyn Backend>>,
    /// Whether somebody finds out why the library says that it failed.
    pub(super) is_failing: AtomicBool,
}

/// While it lives, the communicator of a group is being aborted, or about to be.
pub(super) struct Aborting(Arc<Group>);

/// While it lives, operations of a group are being enqueued: the device may do them, and other
/// ranks be done with them and end, before they are known here.
pub(super) struct Enqueuing(Arc<Group>);

impl Drop for Enqueuing {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.aborting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Group {
    /// Notes that operations are about to be enqueued.
    pub(super) fn begin_enqueuing(self: &Arc<Self>) -> Enqueuing {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Enqueuing(self.clone())
    }

    /// Notes that the communicator is about to be aborted.
    pub(super) fn begin_abort(self: &Arc<Self>) -> Aborting {
        self.aborting.fetch_add(1, Ordering::SeqCst);
        Aborting(self.clone())
    }

    /// Waits until nothing aborts the communicator, or `until`.
    pub(super) fn wait_aborted(&self, until: Instant) {
        while self.aborting.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(REST);
        }
    }

    /// Whether the group's backend for the host has seen the end of `rank`.
    pub(super) fn has_died(&self, rank: u32) -> bool {
        let host = self.host.as_ref().and_then(Weak::upgrade);
        host.is_some_and(|host| host.has_died(rank))
    }

    /// Leaves it cleanly, when nothing is under way.
    pub(super) fn leave(&self) {
        if self.status.leave()
            && let Some(communicator) = self.communicator.get()
        {
            communicator.leave();
        }
    }
}

/// What an operation uses on the device: the tensors', and its own.
pub(super) type Memory = (Vec<Region>, Vec<Scratch>);

/// An operation that was enqueued.
pub(super) struct RunningOperation {
    pub(super) group: Arc<Group>,
    pub(super) name: &'static str,
    /// Its number among the group's collectives, or messages.
    pub(super) sequence: u64,
    pub(super) is_collective: bool,
    /// What comes when it is over on the device.
    pub(super) event: Arc<Event>,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    /// What the device uses until then. Never looked at.
    pub(super) memory: Memory,
    /// The streams of the tensors' owners.
    pub(super) streams: Vec<usize>,
    /// Whether waiting without a limit orders streams, and does not block.
    pub(super) orders: bool,
    pub(super) finish: Option<Outcome>,
    pub(super) completion: Arc<Completion>,
    /// Set when the other ranks are known to run the same, if that is looked at.
    pub(super) compared: Option<Arc<AtomicBool>>,
}

/// An operation that is over, to be settled without any lock.
pub(super) struct FinishedOperation {
    completion: Arc<Completion>,
    result: Result<()>,
}

impl FinishedOperation {
    /// Settles the completion. Runs callbacks and wakers, so no lock may be held.
    pub(super) fn settle(self) {
        self.completion.complete(self.result);
    }
}

impl RunningOperation {
    /// Whether it is over.
    ///
    /// # Errors
    /// What the driver says of the device.
    pub(super) fn is_over(&self) -> Result<bool> {
        use std::sync::atomic::Ordering::SeqCst;
        let compared = self.compared.as_ref().is_none_or(|compared| compared.load(SeqCst));
        Ok(compared && self.event.is_over()?)
    }

    /// Ends it well. Releases memory, whose owner may run anything then, so no lock may be held.
    pub(super) fn end(mut self) -> FinishedOperation {
        use std::sync::atomic::Ordering::SeqCst;
        if let Some(finish) = self.finish.take() {
            finish();
        }
        drop(self.memory);
        self.group.in_flight.fetch_sub(1, SeqCst);
        FinishedOperation { completion: self.completion, result: Ok(()) }
    }

    /// Ends it for those that wait, and hands back what the device continues with.
    pub(super) fn give_up(mut self, error: Error) -> (FinishedOperation, AbandonedOperation) {
        use std::sync::atomic::Ordering::SeqCst;
        self.group.in_flight.fetch_sub(1, SeqCst);
        self.finish = None;
        let over = FinishedOperation { completion: self.completion, result: Err(error) };
        (over, AbandonedOperation { event: Some(self.event), memory: self.memory })
    }
}

/// What a device continues with after an operation was given up.
pub(super) struct AbandonedOperation {
    /// What comes when it is over. None if nobody knows how much was enqueued: then it is over when
    /// the communicator was aborted and its stream is empty.
    pub(super) event: Option<Arc<Event>>,
    pub(super) memory: Memory,
}
