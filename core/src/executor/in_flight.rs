//! The collectives in flight and the fingerprints of those that ended last, by sequence number.

use std::collections::VecDeque;

use super::running_operation::RunningOperation;
use crate::wire::frame::Fingerprint;

/// Most fingerprints of finished operations that are remembered.
const MAX_REMEMBERED_FINGERPRINTS: usize = 64;

/// The operations from the oldest unfinished one on. Their numbers are consecutive, so an
/// operation's place follows from its number.
#[derive(Default)]
pub(super) struct InFlight {
    /// Sequence number of the first entry.
    first: u64,
    operations: VecDeque<Option<RunningOperation>>,
    /// How many entries are not empty.
    count: usize,
    finished: VecDeque<(u64, Fingerprint)>,
}

impl InFlight {
    /// Adds the next operation. Its number is higher than all before.
    pub(super) fn push(&mut self, running: RunningOperation) {
        if self.operations.is_empty() {
            self.first = running.sequence;
        }
        // Numbers that failed immediately leave a gap; `State::submit` keeps gaps small.
        while self.first + (self.operations.len() as u64) < running.sequence {
            self.operations.push_back(None);
        }
        self.operations.push_back(Some(running));
        self.count += 1;
    }

    fn place(&self, sequence: u64) -> Option<usize> {
        usize::try_from(sequence.checked_sub(self.first)?).ok()
    }

    /// The operation, if it is in flight.
    pub(super) fn get(&self, sequence: u64) -> Option<&RunningOperation> {
        self.operations.get(self.place(sequence)?)?.as_ref()
    }

    /// The operation, if it is in flight.
    pub(super) fn get_mut(&mut self, sequence: u64) -> Option<&mut RunningOperation> {
        let place = self.place(sequence)?;
        self.operations.get_mut(place)?.as_mut()
    }

    /// Takes the operation out.
    pub(super) fn take(&mut self, sequence: u64) -> Option<RunningOperation> {
        let place = self.place(sequence)?;
        let running = self.operations.get_mut(place)?.take()?;
        self.count -= 1;
        while let Some(None) = self.operations.front() {
            self.operations.pop_front();
            self.first += 1;
        }
        self.note_finished(sequence, running.fingerprint);
        Some(running)
    }

    /// Remembers an operation that ended.
    pub(super) fn note_finished(&mut self, sequence: u64, fingerprint: Fingerprint) {
        if self.finished.len() == MAX_REMEMBERED_FINGERPRINTS {
            self.finished.pop_front();
        }
        self.finished.push_back((sequence, fingerprint));
    }

    /// Takes all out, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<RunningOperation> {
        self.count = 0;
        self.operations.drain(..).flatten().collect()
    }

    /// The operations, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RunningOperation> {
        self.operations.iter().flatten()
    }

    /// The numbers of the operations, oldest first.
    pub(super) fn sequences(&self) -> Vec<u64> {
        self.iter().map(|running| running.sequence).collect()
    }

    /// Whether an operation before `sequence` is in flight.
    pub(super) fn has_before(&self, sequence: u64) -> bool {
        self.iter().next().is_some_and(|running| running.sequence < sequence)
    }

    /// The last operation that was issued, if it has ended and none is in flight.
    pub(super) fn last(&self) -> Option<Fingerprint> {
        let last = self.finished.back().filter(|_| self.is_empty());
        last.map(|(_, fingerprint)| *fingerprint)
    }

    /// How many are in flight.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether none is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The operations that ended, as far as they are remembered, and those in flight.
    pub(super) fn history(&self) -> Vec<(u64, Fingerprint)> {
        let in_flight = self.iter().map(|running| (running.sequence, running.fingerprint));
        self.finished.iter().copied().chain(in_flight).collect()
    }

    /// The fingerprint of an operation that ended, if it is remembered.
    pub(super) fn finished(&self, sequence: u64) -> Option<Fingerprint> {
        self.finished.iter().rev().find(|known| known.0 == sequence).map(|known| known.1)
    }
}
