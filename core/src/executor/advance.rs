//! One rank's operations over one transport. Never blocks, reads no clock, starts no thread.

mod known_prices;

use std::sync::{Arc, Weak};

use super::broken_group::{BrokenGroup, Cause, GroupIdentity, StallReport};
use super::closed::ClosedTransport;
use super::finished_operation::FinishedOperation;
use super::operation::SmallOperation;
use super::operation::{Envelope, Message, Operation};
use super::probes::Probe;
use super::slot_exchange::SlotExchange;
use super::small_collective::SmallAttempt;
use super::state::State;
use crate::clock::Instant;
use crate::completion::{Completion, error_of};
use crate::generated::error::Error;
use crate::kernels;
#[cfg(feature = "tcp")]
use crate::recorder::Waits;
use crate::spin::{SpinBudget, cores};
use crate::tensor::LentMemory;
use crate::transport::board::AnyBoard;
use crate::transport::{Interest, Rank, Transport};
use crate::wire::abort::Abort;
use crate::wire::frame::Fingerprint;

/// Rounds of one [`Executor::advance`], so that the progress lock is not held for long.
const MAX_ROUNDS: usize = 16;

/// What [`Executor::advance`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether anything moved.
    pub moved: bool,
    /// Whether it stopped while things still moved: another call may do more, without waiting.
    pub unfinished: bool,
}

/// Runs one rank's operations of one group.
///
/// Operations that are over are collected; the thread that holds the executor takes them with
/// [`Executor::take_finished`] and settles them when it no longer holds any lock.
pub struct Executor {
    transport: Box<dyn Transport>,
    state: State,
    /// Completed when nothing is in flight, or at the time beside each.
    awaiting_idle: Vec<(Arc<Completion>, Instant)>,
    /// Failed when the group breaks, if somebody still holds them.
    awaiting_failure: Vec<Weak<Completion>>,
    /// Memory for the interests that [`Executor::let_others_wake`] discards.
    known_interests: Vec<Interest>,
}

impl Executor {
    /// An executor of the transport's rank. Starts to connect to the ring neighbours, so that
    /// another rank notices a death even if no data flows.
    pub fn new(mut transport: Box<dyn Transport>, group: GroupIdentity, now: Instant) -> Executor {
        let (rank, size) = (transport.rank(), transport.size());
        let mut state = State::new(group, rank, size, now);
        let others = (0..size).filter(|&peer| peer != rank);
        state.peers.set_eager_bytes(others.map(|peer| (peer, transport.eager_bytes(peer))));
        if size > 1 {
            let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
            for peer in [next, previous] {
                if !std::mem::replace(&mut state.peers.of(peer).was_reached, true) {
                    transport.connect(peer);
                }
            }
        }
        Executor {
            transport,
            state,
            awaiting_idle: Vec::new(),
            awaiting_failure: Vec::new(),
            known_interests: Vec::new(),
        }
    }

    /// Notes that `ranks` ranks of the group, this one included, share this host and its caches.
    #[must_use]
    pub fn with_ranks_on_host(mut self, ranks: usize) -> Executor {
        self.state.ranks_in_a_cache = kernels::ranks_in_a_cache(ranks, cores());
        self
    }

    /// Makes small operations go over `board`. Either all ranks of the group do this before their
    /// first operation, or none. Starts to connect to all ranks, because the board itself neither
    /// wakes a rank that sleeps nor shows that one died.
    #[must_use]
    #[cfg_attr(
        not(all(feature = "tcp", target_os = "linux")),
        allow(unreachable_code, reason = "without shared memory there is no board")
    )]
    pub fn with_board(mut self, board: AnyBoard) -> Executor {
        for peer in (0..self.state.size).filter(|&peer| peer != self.state.rank) {
            if !std::mem::replace(&mut self.state.peers.of(peer).was_reached, true) {
                self.transport.connect(peer);
            }
        }
        self.state.exchange = Some(Box::new(SlotExchange::new(board, self.state.rank)));
        self
    }

    /// As [`Transport::disconnect`].
    #[cfg(feature = "tcp")]
    pub fn disconnect(&mut self, peer: Rank) -> bool {
        self.transport.disconnect(peer)
    }

    /// For whom operations wait, and have waited up to `now`.
    #[cfg(feature = "tcp")]
    pub fn waits(&mut self, now: Instant) -> Waits {
        self.state.waits(now)
    }

    /// Whether the group has other ranks.
    pub fn has_others(&self) -> bool {
        self.state.size > 1
    }

    /// Whether small operations go over a board.
    pub fn has_board(&self) -> bool {
        self.state.exchange.is_some()
    }

    /// Whether every rank can read the memory of every other where it lies.
    pub fn reads_memory(&self) -> bool {
        self.state.exchange.as_ref().is_some_and(|it| it.reads_memory())
    }

    /// The memory of collective `sequence` has moved. Nobody has changed what lies where it was.
    pub fn note_moved(&mut self, sequence: u64) {
        self.state.show_moved(sequence);
    }

    /// Tries to run a small collective from beginning to end without waiting for long. Calls
    /// `meanwhile` with its number once this rank has shown its part.
    pub fn try_small(
        &mut self,
        operation: &SmallOperation,
        memory: &mut LentMemory<'_>,
        spin: SpinBudget,
        meanwhile: &mut dyn FnMut(u64),
    ) -> SmallAttempt {
        let transport = &mut *self.transport;
        let attempt = self.state.try_small(transport, operation, memory, spin, meanwhile);
        if self.state.cause.is_some() {
            self.run();
        }
        attempt
    }

    /// Sends a short message from beginning to end, or does nothing. Returns whether it was sent.
    pub fn send_short(&mut self, to: Envelope, payload: &[u8], now: Instant) -> bool {
        self.state.now = now;
        let sent = self.state.send_short(&mut *self.transport, to, payload);
        if self.state.cause.is_some() {
            self.run();
        }
        sent
    }

    /// Receives a short message of exactly this length from beginning to end, if it comes while the
    /// spin budget lasts. Returns its sender; after a None, no receive is left pending.
    pub fn receive_short(
        &mut self,
        from: Envelope,
        memory: &mut [u8],
        spin: SpinBudget,
        now: Instant,
    ) -> Option<Rank> {
        self.state.now = now;
        let (rank, size) = (self.state.rank, self.state.size);
        let may_be_own = size == 1 || !self.state.messages.own.is_empty();
        if from.peer == Some(rank) || from.peer.is_none() && may_be_own {
            return None;
        }
        let mut senders =
            (0..size).filter(|&peer| peer != rank && from.peer.is_none_or(|it| it == peer));
        if !senders.all(|peer| self.transport.is_near(peer)) {
            return None;
        }
        for _ in 0..spin.spins {
            if let Some(sender) = self.state.receive_short(from, memory) {
                self.run();
                return Some(sender);
            }
            if self.is_closed() || !self.state.finished.is_empty() {
                return None;
            }
            if self.transport.advance(&mut self.state) {
                self.run();
            } else {
                spin.pause.take();
            }
        }
        None
    }

    /// Whether [`Executor::try_small`] has woken other ranks, or has something to send to them, so
    /// that [`Executor::advance`] must be called. True once.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.state.has_woken) || !self.state.replies.is_empty()
    }

    /// Starts a collective. The sequence numbers of one group rise by one.
    pub fn submit(&mut self, operation: Operation, now: Instant) {
        self.state.now = now;
        self.state.submit(operation);
        self.run();
    }

    /// Starts to send a message.
    pub fn send(&mut self, message: Message, now: Instant) {
        self.state.now = now;
        self.state.send_message(message, |peer, bytes| self.transport.unasked_bytes(peer, bytes));
        self.run();
    }

    /// Starts to receive a message.
    pub fn recv(&mut self, message: Message, now: Instant) {
        self.state.now = now;
        self.state.receive_message(message);
        self.run();
    }

    /// Looks for a message, after all that has arrived was taken.
    pub fn probe(&mut self, probe: Probe, now: Instant) {
        self.advance(now);
        self.state.probe(probe);
        self.run();
    }

    /// Makes a change of what this rank has to do with windows, and sends what there is to send.
    pub(super) fn change_windows(&mut self, now: Instant, change: impl FnOnce(&mut State)) {
        self.state.now = now;
        change(&mut self.state);
        self.run();
    }

    /// Moves what can be moved now, for a bounded time. Returns at the end of an operation, since a
    /// thread may wait for it.
    pub fn advance(&mut self, now: Instant) -> Progress {
        self.state.now = now;
        let mut progress = Progress { moved: false, unfinished: false };
        if self.is_closed() {
            return progress;
        }
        #[cfg(all(feature = "tcp", target_os = "linux"))]
        if self.state.ends_on_board(&mut *self.transport) {
            return Progress { moved: true, unfinished: true };
        }
        for round in 1..=MAX_ROUNDS {
            let arrived = self.transport.advance(&mut self.state);
            let ran = self.run();
            if !arrived && !ran {
                break;
            }
            let over = !self.state.finished.is_empty();
            progress = Progress { moved: true, unfinished: over || round == MAX_ROUNDS };
            if over {
                break;
            }
        }
        self.state.heed_abort(progress.unfinished);
        self.state.check_time(&mut *self.transport);
        if !self.state.replies.is_empty() {
            self.run();
        }
        self.state.break_if_needed(&mut *self.transport);
        progress
    }

    /// Appends the operations that are over. The caller settles them without holding a lock.
    pub fn take_finished(&mut self, finished: &mut Vec<FinishedOperation>) {
        finished.append(&mut self.state.finished);
        if !self.awaiting_idle.is_empty() {
            let (idle, now) = (!self.is_busy(), self.state.now);
            let due = self.awaiting_idle.extract_if(.., |(_, until)| idle || *until <= now);
            finished.extend(due.map(|(completion, _)| FinishedOperation::new(completion, Ok(()))));
        }
        if let Some(abort) = self.state.failure().filter(|_| !self.awaiting_failure.is_empty()) {
            let name = &self.state.group.name;
            let error = error_of(abort, name, "the group", self.state.issued);
            let waiting = self.awaiting_failure.drain(..).filter_map(|it| it.upgrade());
            let note = |it: &Arc<_>| self.state.broken.iter().for_each(|broken| broken.note(it));
            let waiting = waiting.inspect(note);
            finished.extend(waiting.map(|it| FinishedOperation::new(it, Err(error.clone()))));
        }
    }

    /// Fails `completion` when the group breaks, if it is still held then. Starts to connect to
    /// `peers`, so that their deaths are noticed.
    pub fn tell_of_failure(&mut self, completion: &Arc<Completion>, peers: &[Rank]) {
        self.awaiting_failure.retain(|it| it.strong_count() > 0);
        self.awaiting_failure.push(Arc::downgrade(completion));
        if self.state.broken.is_some() {
            return;
        }
        for &peer in peers.iter().filter(|&&peer| peer != self.state.rank) {
            if !std::mem::replace(&mut self.state.peers.of(peer).was_reached, true) {
                self.transport.connect(peer);
            }
        }
    }

    /// Gives memory back that is needed only while something is in flight.
    pub fn release_idle_memory(&mut self) {
        if !self.is_closed() {
            self.transport.release_idle_memory();
        }
    }

    /// Whether its transport opens connections.
    pub fn is_joining(&self) -> bool {
        !self.is_closed() && self.transport.is_joining()
    }

    /// Whether a caller waits for the group to break, or others may access a window at any time.
    pub fn is_watched(&self) -> bool {
        self.state.windows.is_open() || self.awaiting_failure.iter().any(|it| it.strong_count() > 0)
    }

    /// Ends `completion` when nothing is in flight, or at `until`.
    pub fn tell_when_idle(&mut self, completion: Arc<Completion>, until: Instant) {
        self.awaiting_idle.push((completion, until));
    }

    /// Whether anything is in flight, or due at some time.
    pub fn is_busy(&self) -> bool {
        self.state.is_busy()
    }

    /// When [`Executor::advance`] must be called at the latest, even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let idle = self.awaiting_idle.iter().map(|(_, until)| *until);
        let transport = if self.is_closed() { None } else { self.transport.deadline() };
        self.state.next_deadline().into_iter().chain(idle).chain(transport).min()
    }

    /// Appends what to wait for when [`Executor::advance`] has nothing to do. Returns false if it
    /// has something to do, because a rank has shown something on the board meanwhile.
    pub fn prepare_to_sleep(&mut self, interests: &mut Vec<Interest>) -> bool {
        if self.is_closed() {
            return true;
        }
        let sleepy = self.state.fall_asleep();
        self.transport.interests(interests);
        sleepy
    }

    /// As [`Executor::prepare_to_sleep`], for threads of this process that sleep already: what they
    /// wait for stays the same, but this thread may have consumed the event that would wake them.
    pub fn let_others_wake(&mut self) -> bool {
        let mut known = std::mem::take(&mut self.known_interests);
        let sleepy = self.prepare_to_sleep(&mut known);
        known.clear();
        self.known_interests = known;
        sleepy
    }

    /// Undoes [`Executor::prepare_to_sleep`]: the caller polls, so other ranks need not wake it.
    pub fn stay_awake(&mut self) {
        self.state.wake_up();
    }

    /// The oldest operation in flight and how long nothing of it has moved.
    pub fn stalled(&self, now: Instant) -> Option<StallReport> {
        self.state.stalled(now)
    }

    /// Numbers and fingerprints of the operations in flight, and of those that ended last.
    pub fn history(&self) -> Vec<(u64, Fingerprint)> {
        self.state.in_flight.history()
    }

    /// The number of the last collective that this rank issued.
    pub fn issued(&self) -> u64 {
        self.state.issued
    }

    /// Whether other ranks may still find that they disagree with this rank on the last operation,
    /// because it ended here without all of them.
    pub fn is_unconfirmed(&self) -> bool {
        let last = self.state.in_flight.last();
        last.is_some_and(|last| last.ends_without_all(self.state.rank, self.state.size))
    }

    /// How many ranks have left the group.
    pub fn departed(&self) -> usize {
        self.state.departed
    }

    /// Whether it is known that `peer` has left the group cleanly.
    pub fn has_left(&self, peer: Rank) -> bool {
        let over_board = self.state.exchange.as_ref().is_some_and(|it| it.has_left(peer));
        over_board || self.state.peers.has_left(peer)
    }

    /// The process of `peer`, as the system names it: see [`Transport::process_of`].
    pub fn process_of(&self, peer: Rank) -> Option<u32> {
        match self.is_closed() {
            true => None,
            false => self.transport.process_of(peer),
        }
    }

    /// Whether it is known that `peer` has ended without leaving.
    pub fn has_died(&self, peer: Rank) -> bool {
        self.state.peers.has_died(peer)
    }

    /// The error that broke the group, if no caller has seen it and one should.
    pub fn untold(&self) -> Option<Error> {
        self.state.broken.as_ref().and_then(|broken| broken.untold(&self.state.group))
    }

    /// As [`Executor::break_with`], for a reason that another rank has published to all.
    pub fn break_as_told(&mut self, abort: Abort, now: Instant) {
        self.state.now = now;
        self.state.fail_with(Cause::told(abort, None));
        self.run();
    }

    /// Notes which ranks are known not to have reached an operation, for the error at its deadline.
    pub fn note_elsewhere(&mut self, sequence: u64, ranks: Vec<Rank>) {
        self.state.elsewhere = Some((sequence, ranks));
    }

    /// Bytes of memory that it keeps between operations: the state of its peers, schedules with
    /// their analyses, scratch memory. Excludes the transport, and what frames and operations take
    /// while they are in flight.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Executor>() + self.state.memory_bytes()
    }

    /// Ends `completion` when the group fails for a reason other than this rank's own will, before
    /// what was in flight. The first one stays.
    pub fn tell_first_of_failure(&mut self, completion: Arc<Completion>) {
        self.state.told_first.get_or_insert(completion);
    }

    /// Why the group is broken, or will be once what may still end well has ended.
    pub fn failure(&self) -> Option<&Abort> {
        self.state.failure()
    }

    /// The reason why the group is broken, if it is.
    pub fn broken(&self) -> Option<&Abort> {
        self.state.broken.as_ref().map(|broken| &broken.abort)
    }

    /// What operations that need everybody would end with, if a rank has left since the group gets
    /// other members.
    pub fn retirement(&self) -> Option<Abort> {
        self.state.retirement()
    }

    /// Breaks the group: everything in flight and everything later fails, and all ranks are told.
    pub fn break_with(&mut self, abort: Abort, now: Instant) {
        self.state.now = now;
        self.state.fail(abort);
        self.run();
    }

    /// As [`Executor::break_with`], as this rank cannot run operation `sequence`, or the next one
    /// if none is named: those before it may end well.
    pub fn break_from(&mut self, sequence: Option<u64>, abort: Abort, now: Instant) {
        self.state.now = now;
        self.state.fail_from(sequence.unwrap_or(self.state.issued + 1), abort);
        self.run();
    }

    /// Breaks the group if a collective is in flight, as if its deadline had passed.
    pub fn end_late(&mut self, now: Instant) {
        self.state.now = now;
        let late = |state: &State| state.oldest_as_late().map(Cause::found);
        let reason = self.state.suspected().or_else(|| late(&self.state));
        if let Some(reason) = reason.filter(|_| self.state.broken.is_none()) {
            self.state.fail_with(reason);
            self.run();
        }
    }

    /// Begins to leave the group. With nothing in flight, it says goodbye and has left. Otherwise
    /// it breaks the group, and has left when [`Executor::is_busy`] becomes false: after the others
    /// were told, or after a second. Does not wait; nothing can be started afterwards.
    pub fn leave(&mut self, now: Instant) {
        let why = "the process group was destroyed".to_owned();
        let suspected = self.state.suspected();
        self.leave_because(Abort::User { rank: self.state.rank, why }, suspected, now);
    }

    /// As [`Executor::leave`], as the group gets other members.
    pub fn retire(&mut self, now: Instant) {
        self.leave_because(Abort::Reconfigured { rank: self.state.rank }, None, now);
    }

    /// Leaves because of `left`; what is in flight fails with what is `suspected`, if anything is.
    fn leave_because(&mut self, left: Abort, suspected: Option<Cause>, now: Instant) {
        self.state.now = now;
        if self.state.broken.is_some() {
            return;
        }
        self.state.end_late_probes();
        if self.state.is_busy() {
            self.state.fail_with(suspected.unwrap_or_else(|| Cause::found(left)));
            self.run();
        } else {
            if matches!(left, Abort::Reconfigured { .. }) {
                self.state.tell_of_retirement(&mut *self.transport);
            } else if let Some(exchange) = &mut self.state.exchange {
                exchange.leave(None);
            }
            self.transport.close(true);
            self.state.broken = Some(Box::new(BrokenGroup::closed(left, now)));
        }
    }

    /// Closes everything immediately, after [`Executor::leave`].
    pub fn close(&mut self, now: Instant) {
        self.leave(now);
        self.transport.close(false);
        if let Some(broken) = &mut self.state.broken {
            broken.closed = true;
        }
    }

    /// Takes the connections, the slots and the memory of a group that was closed, for the caller
    /// to drop without the lock, since that may take a moment. References to the group then keep
    /// nothing open.
    pub fn take_connections(&mut self) -> Option<impl Send + use<>> {
        if !self.is_closed() {
            return None;
        }
        let closed = ClosedTransport::of(&*self.transport);
        let state = &mut self.state;
        // A group that goes on with other members keeps what is left of these.
        let memory = (
            std::mem::take(&mut state.scratch),
            std::mem::take(&mut state.spare_steps),
            std::mem::take(&mut state.analyses),
        );
        Some((std::mem::replace(&mut self.transport, closed), state.exchange.take(), memory))
    }

    /// Ends the connections as a process that is killed would.
    #[cfg(test)]
    pub(super) fn vanish(&mut self) {
        self.transport.close(false);
        let abort = Abort::User { rank: self.state.rank, why: "it vanished".to_owned() };
        self.state.broken = Some(Box::new(BrokenGroup::closed(abort, self.state.now)));
    }

    /// Leaves cleanly, and closes the connections before others have taken them in.
    #[cfg(test)]
    pub(super) fn leave_unheard(&mut self) {
        if let Some(exchange) = &mut self.state.exchange {
            exchange.leave(None);
        }
        self.vanish();
    }

    /// Sends what is to be sent and breaks the group if need be; true if there was anything to do.
    fn run(&mut self) -> bool {
        let ran = self.state.run(&mut *self.transport);
        self.state.break_if_needed(&mut *self.transport);
        ran
    }

    fn is_closed(&self) -> bool {
        self.state.broken.as_ref().is_some_and(|broken| broken.closed)
    }
}
