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

/// How long a broken group tells the others before it closes its connections.
const BROKEN_GROUP_LINGER: Duration = Duration::from_secs(1);

/// How long it keeps its connections at least, unless it is left: their ends would wake ranks that
/// are just about to learn why it broke, and keep the cores busy with that.
const CLOSING_DELAY: Duration = Duration::from_millis(50);

/// How long it waits before it opens connections to tell ranks to which it has none. Meanwhile they
/// hear of it over the connections that there are, which costs a tenth: neighbours have one.
pub(super) const UNREACHED_DELAY: Duration = Duration::from_millis(5);

/// Most operations that are noted as ended by the failure of a broken group.
const MAX_NOTED_OPERATIONS: usize = 256;

/// The group that an executor works for.
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
    /// Whether this rank found it; otherwise another rank reported it.
    pub(super) found_here: bool,
    /// Whether every other rank should find it without being told; those that have not after a
    /// moment are told.
    pub(super) is_plain_to_all: bool,
    /// The collective from which on nothing can be run, where those before may end well.
    pub(super) first_lost: Option<u64>,
}

impl Cause {
    /// A reason that this rank found.
    pub(super) fn found(abort: Abort) -> Cause {
        let first_lost = abort.first_lost();
        Cause { abort, found_here: true, is_plain_to_all: false, first_lost }
    }

    /// A reason that another rank reported, and the first collective that it has not run to its
    /// end, if it said so.
    pub(super) fn told(abort: Abort, first_lost: Option<u64>) -> Cause {
        let first_lost = abort.first_lost().into_iter().chain(first_lost).min();
        Cause { abort, found_here: false, is_plain_to_all: false, first_lost }
    }
}

/// What another rank told of the end of the group. What it and others had sent before may complete
/// operations here, as it did there: only then this rank breaks the group as well.
pub(super) struct HeardAbort {
    pub(super) abort: Abort,
    /// How many operations may still be completed first.
    pub(super) operations: usize,
    /// The first collective that the rank that told has not run to its end, if it said so.
    pub(super) first_lost: Option<u64>,
}

/// The reason why an operation cannot be run, while earlier ones are in flight here, or still to
/// come. Those may be complete on the other ranks already, so they must not fail because of a later
/// one.
pub(super) struct DeferredFailure {
    pub(super) cause: Cause,
    /// The first operation that cannot be run.
    pub(super) sequence: u64,
    /// When the earlier ones have to be done. `None`: without a limit.
    pub(super) until: Option<Instant>,
    /// Whether the others were told.
    pub(super) is_told: bool,
}

/// A peer whose connection ended; an abort may still explain it better.
pub(super) struct Suspicion {
    pub(super) peer: Rank,
    pub(super) why: String,
    pub(super) until: Instant,
    /// Whether the process of the peer is known to have ended.
    pub(super) is_sure: bool,
}

/// A group that is broken.
pub(super) struct BrokenGroup {
    pub(super) abort: Abort,
    /// From when on its connections are closed, once all other ranks were told.
    pub(super) may_close: Instant,
    /// When they are closed, whether or not that is so.
    pub(super) until: Instant,
    /// When the ranks are told that could not be told before, or should have found it, if they
    /// still have to be.
    pub(super) tells_all: Option<Instant>,
    /// Whether every other rank should find the reason without being told.
    pub(super) is_plain_to_all: bool,
    /// The first collective that this rank has not run to its end; 0 if that helps nobody.
    pub(super) gives_up: u64,
    pub(super) closed: bool,
    delivery: RefCell<ErrorDelivery>,
}

/// Whether the caller has seen the error that broke the group.
#[derive(Default)]
struct ErrorDelivery {
    /// Operations of this rank that ended with it, until the outcome of one of them was asked for.
    ended: Vec<Arc<Completion>>,
    /// The first collective among them.
    collective: Option<FailedCollective>,
    /// Whether an outcome was asked for, or the error was handed out by [`BrokenGroup::untold`].
    is_delivered: bool,
}

/// A collective of this rank that ended with the error.
#[derive(Clone, Copy)]
struct FailedCollective {
    name: &'static str,
    sequence: u64,
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
    /// One that broke `now` and tells the others why; those to whom it has no connection a moment
    /// later, if it `tells_all`.
    pub(super) fn telling(abort: Abort, tells_all: bool, now: Instant) -> BrokenGroup {
        BrokenGroup {
            abort,
            may_close: now + CLOSING_DELAY,
            until: now + BROKEN_GROUP_LINGER,
            tells_all: tells_all.then(|| now + UNREACHED_DELAY),
            is_plain_to_all: false,
            gives_up: 0,
            closed: false,
            delivery: RefCell::default(),
        }
    }

    /// One that is closed already.
    pub(super) fn closed(abort: Abort, now: Instant) -> BrokenGroup {
        BrokenGroup { closed: true, ..BrokenGroup::telling(abort, false, now) }
    }

    /// What a collective of this rank ends with.
    pub(super) fn error(
        &self,
        group: &GroupIdentity,
        fingerprint: &Fingerprint,
        sequence: u64,
    ) -> Error {
        let name = collective_name(fingerprint);
        let first = FailedCollective { name, sequence };
        self.delivery.borrow_mut().collective.get_or_insert(first);
        self.error_named(group, name, sequence)
    }

    /// Notes an operation of this rank that ends with the error: a caller that asks for its outcome
    /// sees the error.
    pub(super) fn note(&self, completion: &Arc<Completion>) {
        let mut delivery = self.delivery.borrow_mut();
        delivery.update();
        if !delivery.is_delivered && delivery.ended.len() < MAX_NOTED_OPERATIONS {
            delivery.ended.push(completion.clone());
        }
    }

    /// What the operation of this rank with this name and number ends with.
    pub(super) fn error_named(&self, group: &GroupIdentity, name: &str, sequence: u64) -> Error {
        error_of(&self.abort, &group.name, name, sequence)
    }

    /// The error that broke the group, if no caller has seen it and one should: ranks disagree, or
    /// a collective failed whose outcome nobody has asked for. It is handed out once.
    pub(super) fn untold(&self, group: &GroupIdentity) -> Option<Error> {
        let mut delivery = self.delivery.borrow_mut();
        delivery.update();
        let is_failure = match self.abort {
            Abort::Mismatch { .. } | Abort::MessageSize { .. } | Abort::MessageDType { .. } => true,
            // A user who aborts, leaves or reconfigures a group has given up what is in flight.
            Abort::User { .. } | Abort::Reconfigured { .. } | Abort::Left { retired: true, .. } => {
                false
            }
            Abort::Failed { .. } | Abort::Left { .. } | Abort::TimedOut { .. } => {
                delivery.collective.is_some()
            }
        };
        let is_news = is_failure && !std::mem::replace(&mut delivery.is_delivered, true);
        // A disagreement says itself which operation it is about.
        let FailedCollective { name, sequence } =
            delivery.collective.unwrap_or(FailedCollective { name: "shutdown", sequence: 0 });
        is_news.then(|| self.error_named(group, name, sequence))
    }
}

impl ErrorDelivery {
    /// Checks whether the outcome of one of the operations was asked for.
    fn update(&mut self) {
        if self.ended.iter().any(|completion| completion.was_asked()) {
            self.is_delivered = true;
        }
        if self.is_delivered {
            self.ended = Vec::new();
        }
    }
}
