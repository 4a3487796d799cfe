//! Which ranks really hold up a stalled operation. Each rank asks the ranks that it waits for.
//! Those that are in the operation, too, answer with the ranks that they are missing themselves, so
//! that after a few rounds all name the same ranks. Needs no store, whose host may be a missing
//! rank.

use std::time::Duration;

use super::peers::PayloadTarget;
use super::running_operation::RunningOperation;
use super::state::State;
use crate::clock::Instant;
use crate::sorted::sort;
use crate::transport::{Destination, Payload, Rank};
use crate::wire::frame::{Header, Kind};

/// How long an operation is stalled before its rank asks.
const ASK_AFTER: Duration = Duration::from_millis(200);

/// The time from one question to the next.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Most ranks that are asked at a time, and that a report lists.
const MAX_RANKS: usize = 64;

impl State {
    /// Asks the ranks for which the oldest operation waits, if it is stalled.
    pub(super) fn ask_who_is_missing(&mut self) {
        if self.inquiry_due().is_none_or(|due| self.now < due) {
            return;
        }
        let Some(running) = self.in_flight.iter().next() else { return };
        let (sequence, peers) = (running.sequence, running.waits_for());
        let header = self.header(Kind::Inquiry, sequence);
        for peer in peers.into_iter().take(MAX_RANKS) {
            self.replies.push_back((peer, header));
        }
        self.liveness.note_asked(sequence, self.now);
    }

    /// When the next question is due. None for an operation over the board, which shows who joined.
    pub(super) fn inquiry_due(&self) -> Option<Instant> {
        let running = self.in_flight.iter().next().filter(|it| it.slot_progress.is_none())?;
        let again = self.liveness.last_asked.map(|asked| asked + ASK_INTERVAL);
        let again = again.filter(|_| self.liveness.sequence == running.sequence);
        Some((running.progressed + ASK_AFTER).max(again.unwrap_or(running.progressed)))
    }

    /// The ranks that are known to hold up an operation, in order. None before they were asked.
    pub(super) fn missing_ranks(&self, running: &RunningOperation) -> Vec<Rank> {
        let mut missing = Vec::new();
        if running.slot_progress.is_none() && self.liveness.sequence == running.sequence {
            for peer in running.waits_for() {
                self.liveness.add_missing(peer, running.sequence, self.now, &mut missing);
            }
        }
        sort(&mut missing);
        missing.dedup();
        missing.retain(|&rank| rank != self.rank);
        missing
    }

    /// The payload of a report on the operation that `header` names. Fills in the lengths of
    /// `header`.
    pub(super) fn report(&self, header: &mut Header) -> Payload {
        let running = self.in_flight.get(header.sequence);
        let missing = running.map(|running| self.missing_ranks(running)).unwrap_or_default();
        let ranks = missing.into_iter().take(MAX_RANKS);
        let payload: Vec<u8> = ranks.flat_map(Rank::to_le_bytes).collect();
        header.payload_bytes = payload.len() as u32;
        header.message_bytes = payload.len() as u64;
        if payload.is_empty() { Payload::Empty } else { Payload::Owned(payload) }
    }

    /// Where the payload of a report goes.
    pub(super) fn report_announced(
        &mut self,
        peer: Rank,
        header: &Header,
    ) -> (PayloadTarget, Destination) {
        if header.payload_bytes as usize > MAX_RANKS * size_of::<Rank>() {
            self.protocol_error(peer, "its report lists too many ranks");
            return (PayloadTarget::Nothing, Destination::Discard);
        }
        (PayloadTarget::Report, Destination::Borrowed)
    }

    /// Takes a rank's answer: how far it is, and which ranks it is missing.
    pub(super) fn report_arrived(&mut self, peer: Rank, header: &Header, payload: &[u8]) {
        if self.liveness.sequence != header.sequence {
            return;
        }
        let ranks = payload.as_chunks::<4>().0.iter().map(|bytes| Rank::from_le_bytes(*bytes));
        let missing = ranks.filter(|rank| *rank < self.size).collect();
        self.liveness.note_answer(peer, header.issued, missing, self.now);
    }
}
