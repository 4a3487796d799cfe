//! Failures that leave some operations alone, and what other ranks tell of them. Knows the
//! transport only to pass them on.
//!
//! A rank that ends the group says which collective is the first that it does not run to its end.
//! Whatever it had to give for those before it is under way, so they may still end well, on each
//! rank and whenever it comes to them: a correct operation does not fail because of a later one.
//! Until they have ended, the failure is *deferred*. Meanwhile what is asked for anew fails, those
//! that wait for the group's failure are told, and so are the other ranks. A rank that has to give
//! up one of the earlier operations after all says so to all, and then nobody waits for it.
//!
//! Messages and windows have no place in the order of collectives, so nobody knows whether the
//! others still serve them: a rank that waits for one of these alone gives up immediately. The
//! death of a rank is not deferred either, since nobody can say what it had finished.

use std::time::Duration;

use super::broken_group::{Cause, DeferredFailure, HeardAbort};
use super::finished_operation::FinishedOperation;
use super::operation::Operation;
use super::state::State;
use crate::completion::{collective_name, error_of};
use crate::transport::{Rank, Transport};
use crate::wire::abort::Abort;
use crate::wire::frame::{Header, Kind};

/// The number of the message in an abort of a rank that has not broken the group yet.
pub(super) const DEFERRED: u32 = 1;

/// How long a failure waits at most for the operations before it to end: a disagreement in any
/// case, one that another rank found from when this one waits in an earlier operation, and any from
/// when messages wait with them. Shorter than the second for which the rank that found it
/// keeps its connections, if not all were told.
const EARLIER_OPERATIONS_LIMIT: Duration = Duration::from_millis(800);

impl State {
    /// Breaks the group for a reason found here.
    pub(super) fn fail(&mut self, abort: Abort) {
        self.fail_with(Cause::found(abort));
    }

    /// Breaks the group for a reason found here: that of operation `sequence`, or of something that
    /// stood before it alone.
    pub(super) fn fail_from(&mut self, sequence: u64, abort: Abort) {
        let first_lost = (!matches!(abort, Abort::Failed { .. })).then_some(sequence);
        self.fail_with(Cause { first_lost, ..Cause::found(abort) });
    }

    /// Notes why the group must break; only the first reason counts, and one that was heard came
    /// before any that is found later.
    pub(super) fn fail_with(&mut self, cause: Cause) {
        if self.is_failing() {
            return;
        }
        if let Some(heard) = self.heard.take() {
            self.fail_with(Cause::told(heard.abort, heard.first_lost));
            // What was heard may leave operations alone that this ends.
            if self.is_failing() {
                return;
            }
        }
        if let Some(sequence) = cause.first_lost
            && self.has_earlier(sequence)
        {
            // Their own deadlines limit the earlier operations, and what `end_deferral` says.
            let is_limited = cause.abort.is_disagreement();
            self.defer(cause, sequence, is_limited);
            return;
        }
        // All that it needs may be on the board already; the others have ended it then.
        if let Some(tried) = self.tried
            && cause.first_lost.is_none_or(|sequence| tried < sequence)
            && !self.is_own_will(&cause.abort)
        {
            self.defer(cause, tried + 1, true);
            return;
        }
        let disagreement = self.deferred.take().filter(|it| it.cause.abort.is_disagreement());
        self.cause = Some(disagreement.map_or(cause, |deferred| deferred.cause));
    }

    /// Whether an operation before `sequence` may still end well here: it is in flight, or this
    /// rank will come to it, and waits for nothing else.
    fn has_earlier(&self, sequence: u64) -> bool {
        self.in_flight.has_before(sequence)
            || (self.issued + 1 < sequence && !self.has_other_calls())
    }

    /// Whether something else than collectives is in flight, or may be needed at any time.
    fn has_other_calls(&self) -> bool {
        !self.messages.is_idle() || !self.windows.is_idle() || self.windows.is_open()
    }

    /// Notes a reason that ends operation `sequence` and later ones; for a limited time, unless the
    /// earlier ones have their own.
    fn defer(&mut self, cause: Cause, sequence: u64, is_limited: bool) {
        let until = is_limited.then(|| self.now + EARLIER_OPERATIONS_LIMIT);
        if let Some(known) = &mut self.deferred
            && known.sequence <= sequence
        {
            known.until = known.until.into_iter().chain(until).min();
            return;
        }
        let known = self.deferred.take().and_then(|known| known.until);
        let until = known.into_iter().chain(until).min();
        let told_first = self.told_first.take_if(|_| cause.first_lost.is_some());
        let told_first = told_first.filter(|_| !self.is_own_will(&cause.abort));
        self.finished.extend(told_first.map(FinishedOperation::first));
        let deferred = DeferredFailure { cause, sequence, until, is_told: false };
        self.deferred = Some(Box::new(deferred));
    }

    /// Whether this rank ends the group itself, which has not failed then.
    pub(super) fn is_own_will(&self, abort: &Abort) -> bool {
        match abort {
            Abort::User { rank, .. } => *rank == self.rank,
            Abort::Reconfigured { .. } | Abort::Left { retired: true, .. } => true,
            _ => false,
        }
    }

    /// Whether operation `sequence` can no longer be run: ranks disagree on it or on an earlier
    /// one, a rank does not run it, or one that it needs has left.
    pub(super) fn is_disputed(&self, sequence: u64) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.sequence <= sequence)
    }

    /// Ends an operation that is issued although it cannot be run any more, if it is; otherwise
    /// hands it back. What ranks disagree on, all are told when the group breaks.
    pub(super) fn end_lost(&mut self, operation: Operation) -> Option<Operation> {
        let Operation { sequence, .. } = operation;
        let deferred = self.deferred.as_ref().filter(|it| it.sequence <= sequence);
        let numbered = deferred.filter(|it| it.cause.first_lost.is_some());
        let Some(lost) = numbered.filter(|it| !it.cause.abort.is_disagreement()) else {
            return Some(operation);
        };
        let name = collective_name(&operation.fingerprint);
        let error = error_of(&lost.cause.abort, &self.group.name, name, sequence);
        self.issued = self.issued.max(sequence);
        self.tried.take_if(|tried| *tried == sequence);
        self.finished.push(FinishedOperation::new(operation.completion, Err(error)));
        None
    }

    /// Breaks the group for a deferred reason, once the operations before it have ended. A reason
    /// that ends them, too, was deferred for one that was tried, which is submitted at once: then
    /// it has ended if it is complete on the board.
    pub(super) fn end_deferral(&mut self) {
        if self.cause.is_some() {
            return;
        }
        let Some(deferred) = &self.deferred else { return };
        let is_numbered = deferred.cause.first_lost.is_some();
        let has_ended =
            self.tried.is_none() && !(is_numbered && self.has_earlier(deferred.sequence));
        if has_ended || deferred.until.is_some_and(|until| self.now >= until) {
            self.cause = self.deferred.take().map(|deferred| deferred.cause);
            return;
        }
        // Where another rank found it, that one or a third may keep an earlier operation from
        // ending, by its own abort or because its process has ended, and nobody says so.
        let waits = !deferred.cause.found_here && self.in_flight.has_before(deferred.sequence);
        if (waits || self.has_other_calls())
            && let Some(deferred) = &mut self.deferred
        {
            deferred.until.get_or_insert(self.now + EARLIER_OPERATIONS_LIMIT);
        }
    }

    /// Tells the others why the group will break, once, as soon as that is deferred.
    pub(super) fn tell_of_deferral(&mut self, transport: &mut dyn Transport) {
        let Some(deferred) = &mut self.deferred else { return };
        let is_plain = deferred.cause.first_lost.is_none();
        if std::mem::replace(&mut deferred.is_told, true)
            || is_plain
            || deferred.cause.abort.is_disagreement()
        {
            return;
        }
        let (abort, sequence) = (deferred.cause.abort.clone(), deferred.sequence);
        self.promised.get_or_insert(sequence);
        let reached = self.reached();
        let header = Header { message: DEFERRED, ..self.header(Kind::Abort, sequence) };
        self.tell_why(transport, (&abort, header), &reached);
    }

    /// The first collective that this rank has not run to its end.
    pub(super) fn first_incomplete(&self) -> u64 {
        let oldest = self.in_flight.iter().next().map(|running| running.sequence);
        oldest.into_iter().chain(self.tried).min().unwrap_or(self.issued + 1)
    }

    /// The ranks to which there is a connection, or one is being opened.
    pub(super) fn reached(&mut self) -> Vec<Rank> {
        let reached = self.peers.iter_mut().filter(|(_, peer)| peer.was_reached);
        reached.map(|(rank, _)| rank).collect()
    }

    /// Notes what another rank told of the end of the group, and which collective is the first that
    /// it has not run to its end, if it said so. Of several reasons the first counts, and what the
    /// rank has done that did least.
    pub(super) fn hear(&mut self, abort: Abort, first_lost: Option<u64>) {
        let first_lost = abort.first_lost().into_iter().chain(first_lost).min();
        if let Some(heard) = &mut self.heard {
            heard.first_lost = heard.first_lost.min(first_lost);
        } else if !self.is_failing() {
            let messages = self.messages.count() + self.windows.count();
            let operations = self.in_flight.iter().count() + messages;
            self.heard = Some(Box::new(HeardAbort { abort, operations, first_lost }));
        }
    }

    /// Looks on the board why a lost `peer` had broken the group; whether it says that there. It
    /// may have had no connection over which to tell, or no time.
    pub(super) fn hear_of(&mut self, peer: Rank) -> bool {
        let reason = self.exchange.as_ref().and_then(|exchange| exchange.reason(peer));
        let is_told = reason.is_some();
        reason.into_iter().for_each(|(abort, first_lost)| self.hear(abort, first_lost));
        is_told
    }

    /// Breaks the group for what another rank told, once what had arrived by then is done with:
    /// when nothing more `moves` here, or all has been completed that was in flight.
    pub(super) fn heed_abort(&mut self, moves: bool) {
        let has_completed = !self.finished.is_empty();
        let due = self.heard.take_if(|heard| {
            let waits = has_completed && heard.operations > 0;
            heard.operations = heard.operations.saturating_sub(1);
            !(moves && waits)
        });
        if let Some(heard) = due {
            self.fail_with(Cause::told(heard.abort, heard.first_lost));
        }
    }

    /// Why the group is broken, or will be once what may still end well has ended.
    pub(super) fn failure(&self) -> Option<&Abort> {
        let deferred = self.deferred.as_ref().filter(|it| it.cause.first_lost.is_some());
        let deferred = deferred.map(|deferred| &deferred.cause.abort);
        self.broken.as_ref().map(|broken| &broken.abort).or(deferred)
    }

    /// Whether it is known why the connection to `peer` ended: it, or another rank if nothing may
    /// end well any more, has told why the group ends.
    pub(super) fn is_explained(&self, peer: Rank) -> bool {
        let is_over = self.heard.as_ref().is_some_and(|heard| heard.first_lost.is_none());
        let is_ending = self.heard.is_some() || self.deferred.is_some();
        let has_told = || self.peers.get(peer).is_some_and(|peer| peer.has_broken_group);
        self.is_failing() || is_over || (is_ending && has_told())
    }
}
