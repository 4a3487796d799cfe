//! How a group breaks: deaths, deadlines, disagreements and aborts.
//!
//! The end of a connection without a goodbye is the first thing that a rank sees of many failures,
//! and seldom their reason. A rank that finds a reason tells all others before it closes anything,
//! and who is told passes it on, so the reason of a rank that closed its connections is here or
//! under way, perhaps through a third rank. It gets [`ABORT_GRACE`] to arrive. Ranks that share a
//! board also write it there, where it can be read after their processes have ended.
//!
//! A process that has ended, on the other hand, and had broken nothing, has no reason to tell and
//! no rank could know one. So its rank is named as soon as all that has arrived here by then is
//! read ([`Sink::process_ended`](crate::transport::Sink::process_ended)): what it said before it
//! ended is among that. Only where that is sure: where the system can be asked for the process, as
//! on one host, and where the connection was not reset, which loses what was under way. After a
//! reset, or for a rank that could not be reached at all, the board says whether it had broken the
//! group; without one, those to whom it told a reason pass it on within a moment, so that the grace
//! is short ([`ENDED_GRACE`], [`ENDED_UNREACHED_GRACE`]).
//!
//! Between hosts nobody can be asked for the process. A connection that ends in order after all
//! that was sent over it is as good, almost: a rank that lives says why before it closes one. So
//! the grace is short then, too. It stays after a reset, unless a rank on the host of the dead one
//! tells what it knows.

use std::time::Duration;

use super::analysis::peer_of;
use super::broken_group::{BrokenGroup, Cause, StallReport, Suspicion, UNREACHED_DELAY};
use super::finished_operation::FinishedOperation;
use super::peers::{PayloadTarget, Peer};
use super::pending_messages::{AbandonedMessage, MessageEnd};
use super::running_operation::RunningOperation;
use super::state::State;
use crate::clock::Instant;
use crate::completion::{collective_name, tagged_name};
#[cfg(feature = "tcp")]
use crate::recorder::{OpenCollective, Waits};
use crate::schedule::Action;
use crate::transport::{LossReason, Payload, Rank, Transport};
use crate::wire::abort::Abort;
use crate::wire::frame::{Header, Kind};

/// After a connection ended, how long another rank's abort has to arrive and explain it, unless the
/// end of the process explains it.
const ABORT_GRACE: Duration = Duration::from_millis(50);

/// The same where the process has ended, but something that it had sent may be lost, and where all
/// of that has arrived, but the system cannot be asked for the process. If there was a reason,
/// those who got it told this rank as soon as they read it.
const ENDED_GRACE: Duration = Duration::from_millis(2);

/// The same where it has ended, and there was no connection to it: others who have none to this
/// rank either tell it after [`UNREACHED_DELAY`].
const ENDED_UNREACHED_GRACE: Duration = UNREACHED_DELAY.saturating_mul(2);

impl State {
    /// Breaks the group if there is a reason: releases all memory, ends everything in flight, and
    /// tells the others.
    pub(super) fn break_if_needed(&mut self, transport: &mut dyn Transport) {
        self.end_deferral();
        let Some(cause) = self.cause.take() else {
            self.tell_of_deferral(transport);
            return;
        };
        let gives_up = self.gives_up(&cause);
        let Cause { abort, found_here, is_plain_to_all, first_lost } = cause;
        // Others may count on what they were told that it runs to its end.
        let is_less = |told: u64| gives_up < told;
        let promised = self.promised.take();
        let is_news = found_here || first_lost.into_iter().chain(promised).any(is_less);
        transport.abandon();
        self.work.clear();
        self.replies.clear();
        self.unexpected.clear();
        self.peers.forget();
        if let Some(exchange) = &mut self.exchange {
            exchange.give_up(&abort, (self.rank, gives_up));
        }
        if promised.is_some() {
            // They were told of what was to come.
            self.peers.iter_mut().for_each(|(_, peer)| {
                (peer.abort_given, peer.abort_sent) = (false, false);
            });
        }
        if !is_plain_to_all {
            // Over the connections that exist, so that it arrives even if this rank dies.
            let reached = self.reached();
            let header = self.header(Kind::Abort, gives_up);
            self.tell_why(transport, (&abort, header), &reached);
        }
        let is_own_will = self.is_own_will(&abort);
        let told_first = self.told_first.take().filter(|_| !is_own_will);
        self.finished.extend(told_first.map(FinishedOperation::first));
        let mut broken = BrokenGroup::telling(abort, is_news, self.now);
        broken.is_plain_to_all = is_plain_to_all;
        broken.gives_up = gives_up;
        let before = self.finished.len();
        for running in self.in_flight.take_all() {
            let error = broken.error(&self.group, &running.fingerprint, running.sequence);
            let released = running.release(&mut self.scratch);
            drop(released.finish);
            self.finished.push(FinishedOperation::new(released.completion, Err(error)));
        }
        let messages = self.messages.take_all().into_iter().chain(self.windows.take_all());
        for AbandonedMessage { name, number, ending } in messages {
            let error = broken.error_named(&self.group, name, number);
            ending.fail(error, &mut self.finished);
        }
        self.finished[before..].iter().for_each(|ended| broken.note(ended.completion()));
        self.suspicion = None;
        self.heard = None;
        self.earliest = None;
        self.broken = Some(Box::new(broken));
    }

    /// The first collective that this rank does not run to its end when it breaks the group. 0 if
    /// what those before it need may be lost with a rank.
    fn gives_up(&self, cause: &Cause) -> u64 {
        let own = match cause.abort {
            Abort::Failed { .. } => 0,
            _ => self.first_incomplete(),
        };
        own.min(cause.first_lost.unwrap_or(own))
    }

    /// Sends the reason to those of `peers` that are not lost and were not told. `header` says
    /// which collective is the first that this rank does not run to its end.
    pub(super) fn tell_why(
        &mut self,
        transport: &mut dyn Transport,
        (abort, header): (&Abort, Header),
        peers: &[Rank],
    ) {
        let payload = abort.encode();
        let header = Header {
            message_bytes: payload.len() as u64,
            payload_bytes: payload.len() as u32,
            ..header
        };
        for &peer in peers {
            let state = self.peers.of(peer);
            if state.lost.is_none() && !std::mem::replace(&mut state.abort_given, true) {
                self.send_frame(transport, peer, header, Payload::Owned(payload.clone()));
            }
        }
    }

    /// Whether all ranks that this one has a connection to know why the group broke.
    fn is_told(&self) -> bool {
        let others = (0..self.size).filter_map(|rank| Some((rank, self.peers.get(rank)?)));
        others.into_iter().all(|(rank, peer)| peer.is_settled() || self.has_found(rank))
    }

    /// Whether `peer` is known to have found by itself why the group broke, as every rank should
    /// find it; it has withdrawn from the board then. A rank whose connection to the dead one was
    /// not open yet does not find it.
    fn has_found(&self, peer: Rank) -> bool {
        let exchange = self.exchange.as_ref();
        self.broken.as_ref().is_some_and(|broken| broken.is_plain_to_all)
            && exchange.is_some_and(|exchange| exchange.is_gone(peer))
    }

    /// Does what is due by now in a broken group.
    fn check_broken(&mut self, transport: &mut dyn Transport) {
        let is_told = self.is_told();
        let Some(broken) = self.broken.as_mut().filter(|broken| !broken.closed) else { return };
        if broken.tells_all.take_if(|when| self.now >= *when).is_some() {
            let (abort, gives_up) = (broken.abort.clone(), broken.gives_up);
            let others = (0..self.size).filter(|&it| it != self.rank && !self.has_found(it));
            let others: Vec<Rank> = others.collect();
            let header = self.header(Kind::Abort, gives_up);
            self.tell_why(transport, (&abort, header), &others);
            return;
        }
        let may_close = is_told && broken.tells_all.is_none() && self.now >= broken.may_close;
        if may_close || self.now >= broken.until {
            broken.closed = true;
            transport.close(false);
        }
    }

    /// Does what is due by now: deadlines, graces, closing the connections of a broken group.
    pub(super) fn check_time(&mut self, transport: &mut dyn Transport) {
        if self.broken.is_some() {
            self.check_broken(transport);
            return;
        }
        self.ask_who_is_missing();
        if self.earliest.is_some_and(|earliest| self.now >= earliest) {
            self.check_deadlines();
        }
        if self.suspicion.as_ref().is_some_and(|suspicion| self.now >= suspicion.until)
            && let Some(reason) = self.suspected()
        {
            self.fail_with(reason);
        }
    }

    /// The ranks that hold up an operation: those that are known not to have joined it. If none is
    /// known, all that it waits for, which may themselves wait for others.
    fn late_ranks(&self, running: &RunningOperation) -> Vec<Rank> {
        let missing = self.missing_ranks(running);
        if !missing.is_empty() {
            return missing;
        }
        match &self.elsewhere {
            Some((sequence, ranks)) if *sequence == running.sequence && !ranks.is_empty() => {
                ranks.clone()
            }
            _ => self.waits_for(running),
        }
    }

    /// Breaks the group if an operation is past its deadline; otherwise finds the next deadline.
    fn check_deadlines(&mut self) {
        self.end_late_signals();
        self.end_late_probes();
        let rank = self.rank;
        let mut earliest: Option<Instant> = None;
        let mut late = None;
        for running in self.in_flight.iter() {
            if running.deadline <= self.now && late.is_none() {
                late = Some(self.timed_out(running));
            }
            earliest = Some(earliest.map_or(running.deadline, |known| known.min(running.deadline)));
        }
        let messages = &self.messages;
        let sends = messages.sending.iter();
        let sends = sends.map(|m| (("send", m.tag), m.number, Some(m.peer), &m.ending));
        let own = messages.own.unfinished();
        let own = own.map(|(m, ending)| (("send", m.tag), m.number, Some(rank), ending));
        let receives = messages.posted.iter().chain(&messages.matched);
        let receives = receives.map(|m| ((m.name(), m.tag), m.own_number, m.peer, &m.ending));
        for ((name, tag), sequence, peer, ending) in sends.chain(own).chain(receives) {
            if ending.deadline <= self.now && late.is_none() {
                late = Some(self.past_deadline(tagged_name(name, tag), sequence, peer, ending));
            }
            earliest = Some(earliest.map_or(ending.deadline, |known| known.min(ending.deadline)));
        }
        for (name, sequence, peer, ending) in self.windows.endings() {
            if ending.deadline <= self.now && late.is_none() {
                late = Some(self.past_deadline(name.to_owned(), sequence, peer, ending));
            }
            earliest = Some(earliest.map_or(ending.deadline, |known| known.min(ending.deadline)));
        }
        self.earliest = earliest;
        if let Some(abort) = late {
            self.fail(abort);
        }
    }

    /// What is said of a message, or a call of a window, that is past its deadline.
    pub(super) fn past_deadline(
        &self,
        operation: String,
        sequence: u64,
        peer: Option<Rank>,
        ending: &MessageEnd,
    ) -> Abort {
        Abort::TimedOut {
            rank: self.rank,
            sequence,
            operation,
            waited_ms: millis(self.now - ending.started),
            waiting_for: peer.into_iter().collect(),
        }
    }

    /// The reason for breaking the group if the oldest collective in flight is not waited for any
    /// longer.
    pub(super) fn oldest_as_late(&self) -> Option<Abort> {
        self.in_flight.iter().next().map(|running| self.timed_out(running))
    }

    fn timed_out(&self, running: &RunningOperation) -> Abort {
        Abort::TimedOut {
            rank: self.rank,
            sequence: running.sequence,
            operation: collective_name(&running.fingerprint).to_owned(),
            waited_ms: millis(self.now - running.started),
            waiting_for: self.late_ranks(running),
        }
    }

    /// When [`State::check_time`] has something to do at the latest.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let telling = self.broken.as_ref().filter(|broken| !broken.closed).map(|broken| {
            let close = if self.is_told() { broken.may_close } else { broken.until };
            broken.tells_all.map_or(close, |tells_all| close.min(tells_all))
        });
        let suspicion = self.suspicion.as_ref().map(|suspicion| suspicion.until);
        let heard = self.heard.as_ref().map(|_| self.now);
        // `earliest` may belong to an operation that has ended since.
        let is_idle =
            self.in_flight.is_empty() && self.messages.is_idle() && self.windows.is_idle();
        let earliest = self.earliest.filter(|_| !is_idle);
        let deferral = self.deferred.as_ref().and_then(|deferred| deferred.until);
        let deadlines = [
            earliest,
            telling,
            suspicion,
            heard,
            deferral,
            self.inquiry_due(),
            self.room_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Takes the suspected death, as a reason for breaking the group. Where there is a board, every
    /// rank connects to every other at first, and so should see for itself that a process ended.
    pub(super) fn suspected(&mut self) -> Option<Cause> {
        let Suspicion { peer, why, is_sure, .. } = self.suspicion.take()?;
        let reason = self.exchange.as_ref().and_then(|exchange| exchange.reason(peer));
        if let Some((abort, first_lost)) = reason {
            return Some(Cause::told(abort, first_lost));
        }
        let is_plain_to_all = is_sure && self.exchange.is_some();
        Some(Cause { is_plain_to_all, ..Cause::found(Abort::Failed { rank: peer, why }) })
    }

    /// Whether time or frames may change something.
    pub(super) fn is_busy(&self) -> bool {
        match &self.broken {
            Some(broken) => !broken.closed && (broken.tells_all.is_some() || !self.is_told()),
            None => {
                !self.in_flight.is_empty()
                    || !self.messages.is_idle()
                    || !self.windows.is_idle()
                    || self.suspicion.is_some()
                    || self.heard.is_some()
                    || self.deferred.as_ref().is_some_and(|it| it.cause.first_lost.is_none())
            }
        }
    }

    /// For whom operations wait, and have waited: with the time since the oldest has last moved, if
    /// there is one rank for which it waits, and that of receives.
    #[cfg(feature = "tcp")]
    pub(super) fn waits(&mut self, now: Instant) -> Waits {
        let oldest = self.in_flight.iter().next();
        let open = oldest.map(|running| (self.waits_for(running), running.progressed));
        if let Some((peers, since)) = open
            && let [peer] = peers[..]
        {
            self.peers.note_wait(Some(peer), (since, now));
        }
        for receiving in &self.messages.posted {
            self.peers.note_wait(receiving.peer, (receiving.ending.started, now));
        }
        let open = |running: &RunningOperation| OpenCollective {
            sequence: running.sequence,
            waits_for: self.waits_for(running),
            limit: running.deadline.saturating_duration_since(running.started),
        };
        let collectives = self.in_flight.iter().map(open).collect();
        Waits { waited: self.peers.waits(), collectives }
    }

    /// The oldest operation in flight, and how long it has not moved.
    pub(super) fn stalled(&self, now: Instant) -> Option<StallReport> {
        let running = self.in_flight.iter().next()?;
        let waiting_for = self.waits_for(running);
        let unheard = |rank: &&Rank| self.peers.get(**rank).is_none_or(Peer::is_unheard_of);
        let unheard_of = waiting_for.iter().filter(unheard).copied().collect();
        Some(StallReport {
            sequence: running.sequence,
            fingerprint: running.fingerprint,
            stalled_for: now.saturating_duration_since(running.progressed),
            waiting_for,
            unheard_of,
        })
    }

    /// The connection to a peer is gone.
    pub(super) fn peer_lost(&mut self, peer: Rank, why: LossReason) {
        let state = self.peers.of(peer);
        state.incoming = PayloadTarget::Nothing;
        if state.lost.is_some() {
            return;
        }
        if let LossReason::Local(why) = why {
            // This rank failed, not the peer, which is told if that is still possible.
            self.fail(Abort::Failed { rank: self.rank, why });
            return;
        }
        // A rank that left over the board may have closed before it accepted this rank's
        // connection.
        let has_left = self.exchange.as_ref().is_some_and(|exchange| exchange.has_left(peer));
        // A rank that lives closes its connections, too, when the group broke.
        let is_explained = self.is_explained(peer);
        let why = match why {
            _ if has_left => LossReason::Goodbye,
            LossReason::Died(why) if is_explained => LossReason::Unreachable(why),
            why => why,
        };
        self.peers.of(peer).lost = Some(why.clone());
        // A rank that broke the group ends its connections; why, is known.
        if is_explained && !(why == LossReason::Goodbye && self.deferred.is_some()) {
            return;
        }
        if why != LossReason::Goodbye && self.hear_of(peer) {
            return;
        }
        let why = match why {
            LossReason::Goodbye => {
                self.departed += 1;
                self.leaves_windows(peer);
                self.settle_departed(peer);
                for sequence in self.in_flight.sequences() {
                    self.check_departed(sequence);
                }
                self.check_departed_messages();
                return;
            }
            LossReason::Died(why) | LossReason::Unreachable(why) | LossReason::Local(why) => why,
            LossReason::Protocol(why) => format!("it broke the protocol: {why}"),
        };
        if self.suspicion.is_none() {
            let until = self.now + ABORT_GRACE;
            self.suspicion = Some(Suspicion { peer, why, until, is_sure: false });
        }
    }

    /// The process of a peer that was lost has ended, whatever else is suspected. Nobody can
    /// explain that better if all that it had sent has arrived, or if it had not withdrawn from the
    /// board.
    pub(super) fn suspect_ended(&mut self, peer: Rank, all_arrived: bool) {
        let is_sure = self.suspicion.as_ref().is_some_and(|known| known.is_sure);
        if is_sure || self.is_explained(peer) {
            return;
        }
        let lost = self.peers.get(peer).and_then(|peer| peer.lost.clone());
        if self.hear_of(peer) {
            return;
        }
        let (why, is_reached) = match lost {
            Some(LossReason::Died(why)) => (why, true),
            Some(LossReason::Unreachable(why)) => (why, false),
            _ => return,
        };
        let is_on_board = self.exchange.as_ref().is_some_and(|it| !it.is_gone(peer));
        let is_sure = all_arrived || is_on_board;
        let grace = match is_sure {
            true => Duration::ZERO,
            false if is_reached => ENDED_GRACE,
            false => ENDED_UNREACHED_GRACE,
        };
        let until = self.now + grace;
        if self.suspicion.as_ref().is_none_or(|known| is_sure || until < known.until) {
            let why = format!("its process ended: {why}");
            self.suspicion = Some(Suspicion { peer, why, until, is_sure });
        }
    }

    /// The connection to a peer that was lost ended after all that it had sent. If it had broken
    /// the group, that would be among it.
    pub(super) fn suspect_silent(&mut self, peer: Rank) {
        if let Some(suspicion) = self.suspicion.as_mut().filter(|it| it.peer == peer) {
            suspicion.until = suspicion.until.min(self.now + ENDED_GRACE);
        }
    }

    /// Ends the sends to a peer that left: it leaves once its operations are done, so it has
    /// received what was handed to the transport.
    fn settle_departed(&mut self, peer: Rank) {
        for sequence in self.in_flight.sequences() {
            let Some(running) = self.in_flight.get_mut(sequence) else { continue };
            let steps: Vec<u32> = running.unfinished().collect();
            for step in steps {
                let state = *running.step(step);
                let to_peer =
                    matches!(running.action(step), Action::Send { peer: to, .. } if to == peer);
                if to_peer && state.begun && state.handed == state.bytes {
                    running.progress(step, state.bytes - state.finished, &mut self.work);
                }
            }
            self.finish_if_done(sequence);
        }
    }

    /// The reason for breaking the group for an operation that needs a rank which left.
    fn left(&self, rank: Rank, sequence: u64) -> Abort {
        Abort::Left { rank, sequence, retired: self.has_retired(rank) }
    }

    fn has_retired(&self, rank: Rank) -> bool {
        let over_board = self.exchange.as_ref().is_some_and(|exchange| exchange.has_retired(rank));
        over_board || self.peers.get(rank).is_some_and(|peer| peer.retired)
    }

    /// What operations that need everybody would end with, if a rank has left since the group gets
    /// other members.
    pub(super) fn retirement(&self) -> Option<Abort> {
        let mut others = (0..self.size).filter(|&rank| rank != self.rank);
        others.find(|&rank| self.has_retired(rank)).map(|rank| self.left(rank, 0))
    }

    /// Tells those that this rank has connections to that it leaves, with nothing in flight, since
    /// the group gets other members: what needs it fails with that.
    pub(super) fn tell_of_retirement(&mut self, transport: &mut dyn Transport) {
        let notice = Abort::Left { rank: self.rank, sequence: 0, retired: true };
        let reached = self.reached();
        let header = self.header(Kind::Abort, 0);
        self.tell_why(transport, (&notice, header), &reached);
        if let Some(exchange) = &mut self.exchange {
            exchange.leave(Some(&notice));
        }
    }

    /// Breaks the group if operation `sequence` needs a peer that left.
    pub(super) fn check_departed(&mut self, sequence: u64) {
        if let Some(rank) = self.gone_from_board(sequence) {
            self.fail(self.left(rank, sequence));
            return;
        }
        let Some(running) = self.in_flight.get(sequence) else { return };
        let needed = running.unfinished().find_map(|step| {
            let (peer, _) = peer_of(&running.action(step))?;
            let here = running.early.iter().any(|early| early.0 == step);
            (self.peers.has_left(peer) && !here).then_some(peer)
        });
        if let Some(rank) = needed {
            self.fail(self.left(rank, sequence));
        }
    }

    /// Breaks the group if a message needs a peer that left.
    pub(super) fn check_departed_messages(&mut self) {
        let needed = self
            .peers
            .departed()
            .find(|&peer| self.messages_need(peer) || self.windows.needs(peer));
        if let Some(rank) = needed {
            // The collectives that were issued before may end.
            self.fail(self.left(rank, self.issued + 1));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
