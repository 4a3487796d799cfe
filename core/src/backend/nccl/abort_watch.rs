//! Ends a wait for the other ranks when the group breaks: on this rank, or on another, as the store
//! tells. Knows no library.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use crate::backend::group_status::{FoundBy, GroupStatus, STALL};
use crate::clock::Instant;
use crate::generated::error::{Error, Result};
use crate::wire::abort::Abort;

/// How long a wait may last, and what ends it early.
#[derive(Clone, Copy)]
pub(super) struct WaitLimit<'a> {
    pub(super) until: Instant,
    pub(super) watch: &'a AbortWatch<'a>,
}

/// Watches, during one call, for the reason why the group broke. The caller breaks the group for
/// that reason, without locks.
pub(super) struct AbortWatch<'a> {
    status: Option<&'a GroupStatus>,
    /// The collective that waits for the others, 0 if none does.
    collective: Cell<u64>,
    reason: RefCell<Option<(Abort, FoundBy)>>,
}

impl<'a> AbortWatch<'a> {
    /// Watches what the ranks of a group publish.
    pub(super) fn new(status: &'a GroupStatus) -> AbortWatch<'a> {
        AbortWatch { status: Some(status), collective: Cell::new(0), reason: RefCell::default() }
    }

    /// Watches nothing.
    pub(super) fn none() -> AbortWatch<'static> {
        AbortWatch { status: None, collective: Cell::new(0), reason: RefCell::default() }
    }

    /// The collective of this number waits from now on. If it stands still, the ranks compare what
    /// they run.
    pub(super) fn waits_in(&self, collective: u64) {
        self.collective.set(collective);
    }

    /// Looks whether the group broke; the store is asked only from time to time. It was `waited`
    /// until now.
    ///
    /// # Errors
    /// That the group broke. What the call ends with is the reason, which is known now.
    pub(super) fn check(&self, waited: Duration) -> Result<()> {
        let Some(status) = self.status else { return Ok(()) };
        let mut reason = self.reason.borrow_mut();
        if reason.is_none() && !status.is_broken() && status.is_due() {
            let stalled = if waited >= STALL { self.collective.get() } else { 0 };
            *reason = status.look(stalled);
        }
        match reason.is_some() || status.is_broken() {
            true => Err(Error::InvalidGroup { message: "the process group broke".to_owned() }),
            false => Ok(()),
        }
    }

    /// Asks why the library says that another rank failed, if a rank has published it.
    pub(super) fn poll_failure(&self) {
        let Some(status) = self.status.filter(|status| !status.is_broken()) else { return };
        let mut reason = self.reason.borrow_mut();
        if reason.is_none() {
            *reason = status.wait_for_reason();
        }
    }

    /// Why the group broke, if another rank published it.
    pub(super) fn take_reason(&self) -> Option<(Abort, FoundBy)> {
        self.reason.borrow_mut().take()
    }
}
