//! Why a group must break, or is broken, and the errors that say so. Knows no state machine.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::completion::{Completion, collective_name, error_of};
use crate::generated::error::Error;
use crate::transport::Rank;
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// How many operations are noted that ended with the reason why a group broke.
const NOTED: usize = 256;

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

/// A reason why an operation cannot be run, while earlier ones are in flight here that may well be
/// complete on the other ranks: these are not to fail for what came after them.
pub(super) struct DeferredFailure {
    pub(super) cause: Cause,
    /// The first operation that cannot be run.
    pub(super) sequence: u64,
    /// Until when those before it may take. `None`: as long as they need.
    pub(super) until: Option<Instant>,
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
    told: RefCell<Told>,
}

/// Who may have heard why the group broke.
#[derive(Default)]
struct Told {
    /// Operations of this rank that ended with the reason, until somebody has asked one of them.
    ended: Vec<Arc<Completion>>,
    /// Whether a collective is among them.
    has_collective: bool,
    has_asked: bool,
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
        BrokenGroup { abort, until, closed: false, told: RefCell::default() }
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
        self.told.borrow_mut().has_collective = true;
        self.error_named(group, collective_name(fingerprint), sequence)
    }

    /// Notes an operation of this rank that ends with the reason: who asks it has been told.
    pub(super) fn note(&self, completion: &Arc<Completion>) {
        let mut told = self.told.borrow_mut();
        told.look();
        if !told.has_asked && told.ended.len() < NOTED {
            told.ended.push(completion.clone());
        }
    }

    /// What the operation of this rank with this name and number ends with.
    pub(super) fn error_named(&self, group: &GroupIdentity, name: &str, sequence: u64) -> Error {
        error_of(&self.abort, &group.name, name, sequence)
    }

    /// The error that says why the group broke, if nobody has heard it and somebody should: ranks
    /// disagree, or a collective failed whose outcome nobody has asked for. It is handed out once.
    pub(super) fn untold(&self, group: &GroupIdentity) -> Option<Error> {
        let mut told = self.told.borrow_mut();
        told.look();
        let is_failure = match self.abort {
            Abort::Mismatch { .. } | Abort::MessageSize { .. } | Abort::MessageDType { .. } => true,
            Abort::Failed { .. } | Abort::Left { .. } | Abort::TimedOut { .. } => {
                told.has_collective
            }
            // Who aborts a group, or leaves it, has no use for what is in flight.
            Abort::User { .. } => false,
        };
        let is_news = is_failure && !std::mem::replace(&mut told.has_asked, true);
        is_news.then(|| self.error_named(group, "shutdown", 0))
    }
}

impl Told {
    /// Looks whether somebody has asked.
    fn look(&mut self) {
        if self.ended.iter().any(|completion| completion.was_asked()) {
            self.has_asked = true;
        }
        if self.has_asked {
            self.ended = Vec::new();
        }
    }
}
