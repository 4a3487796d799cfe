//! Why a group must break, or is broken, and the errors that say so. Knows no state machine.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Instant;
use crate::completion::{collective_name, error_of};
use crate::generated::error::Error;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// Which group an executor works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupIdentity {
    /// The name, for errors.
    pub name: String,
    /// Generation of the membership: frames of another generation are dropped.
    pub generation: u32,
}

/// Why a group must break.
pub(super) struct Cause {
    pub(super) abort: Abort,
    /// Whether this rank found it; else another rank told.
    pub(super) found_here: bool,
}

/// A disagreement on an operation, while earlier ones are in flight here that may well be complete
/// on the other ranks: these are not to fail for what came after them.
pub(super) struct DeferredFailure {
    pub(super) cause: Cause,
    /// The operation on which ranks disagree.
    pub(super) sequence: u64,
    pub(super) until: Instant,
}

/// A peer whose connection ended; an abort may still explain it better.
pub(super) struct Suspicion {
    pub(super) peer: Rank,
    pub(super) why: String,
    pub(super) until: Instant,
}

/// A group that is broken.
pub(super) struct BrokenGroup {
    pub(super) abort: Abort,
    /// When its connections are closed, whether or not all others were told.
    pub(super) until: Instant,
    pub(super) closed: bool,
    /// Whether an operation of this rank ended with the reason.
    told: Cell<bool>,
}

/// An operation that does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallReport {
    /// Its number.
    pub sequence: u64,
    /// What it is.
    pub fingerprint: Fingerprint,
    /// How long nothing has moved.
    pub stalled_for: Duration,
    /// The ranks it waits for.
    pub waiting_for: Vec<Rank>,
    /// Those of them from which nothing ever came, not even the end of a connection.
    pub unheard_of: Vec<Rank>,
}

impl BrokenGroup {
    /// One that tells the others why until its connections are closed at `until`.
    pub(super) fn telling(abort: Abort, until: Instant) -> BrokenGroup {
        BrokenGroup { abort, until, closed: false, told: Cell::new(false) }
    }

    /// One that is closed already.
    pub(super) fn closed(abort: Abort, now: Instant) -> BrokenGroup {
        BrokenGroup { closed: true, ..BrokenGroup::telling(abort, now) }
    }

    /// What a collective of this rank ends with.
    pub(super) fn error(
        &self,
        group: &GroupIdentity,
        fingerprint: &Fingerprint,
        sequence: u64,
    ) -> Error {
        self.error_named(group, collective_name(fingerprint), sequence)
    }

    /// What the operation of this rank with this name and number ends with.
    pub(super) fn error_named(&self, group: &GroupIdentity, name: &str, sequence: u64) -> Error {
        self.told.set(true);
        error_of(&self.abort, &group.name, name, sequence)
    }

    /// The error that says that ranks disagree, if no operation of this rank has ended with it.
    pub(super) fn untold(&self, group: &GroupIdentity) -> Option<Error> {
        let is_disagreement = matches!(
            self.abort,
            Abort::Mismatch { .. } | Abort::MessageSize { .. } | Abort::MessageDType { .. }
        );
        let is_news = is_disagreement && !self.told.get();
        is_news.then(|| self.error_named(group, "shutdown", 0))
    }
}
