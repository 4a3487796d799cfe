//! Operations that were not done when their call returned. Knows nothing of what they do.

use std::collections::VecDeque;
use std::sync::Arc;

use super::note::OperationNote;
use super::statistics::{Counts, counts_of};
use super::{REMEMBERED, RecordedEnd, RecordedOperation};
use crate::call_site::CallFrame;
use crate::clock::Instant;
use crate::completion::Completion;

/// An operation that was issued.
pub(crate) struct IssuedNote {
    pub(crate) name: &'static str,
    pub(crate) comm_name: Option<Arc<str>>,
    pub(crate) sequence: u64,
    /// How many numbers it takes.
    pub(crate) parts: u64,
    pub(crate) note: OperationNote,
    pub(crate) issued: Instant,
    pub(crate) completion: Arc<Completion>,
    /// Where it was called, the innermost line first, if that is noted.
    pub(crate) frames: Arc<[CallFrame]>,
}

/// Those of a group, in the order of their calls.
#[derive(Default)]
pub(super) struct PendingOperations {
    all: VecDeque<(u64, State)>,
    /// The first of so many have ended, and are noted as such.
    settled: usize,
    /// What was counted of those that are noted as ended, or forgotten.
    counts: Counts,
    /// Those that had not ended when too many came after them.
    forgotten: Vec<IssuedNote>,
}

enum State {
    /// It may not be done.
    Open(Box<IssuedNote>),
    Ended(Box<RecordedOperation>),
}

impl PendingOperations {
    /// Of other members from now on. Hands out all, for the caller to drop outside the lock; what
    /// was counted stays.
    #[must_use]
    pub(super) fn replace(&mut self) -> PendingOperations {
        let mut counts = self.counts();
        counts.values_mut().for_each(|counts| counts.open = 0);
        std::mem::replace(self, PendingOperations { counts, ..PendingOperations::default() })
    }

    /// Whether it is the one that was noted last, which is called otherwise: it is noted under that
    /// name then.
    pub(super) fn renames(&mut self, operation: &IssuedNote) -> bool {
        match self.all.back_mut() {
            Some((_, State::Open(last)))
                if Arc::ptr_eq(&last.completion, &operation.completion) =>
            {
                last.name = operation.name;
                true
            }
            _ => false,
        }
    }

    pub(super) fn add(&mut self, number: u64, operation: IssuedNote) {
        self.settle();
        self.make_room();
        self.all.push_back((number, State::Open(Box::new(operation))));
    }

    pub(super) fn operations(&self) -> Vec<RecordedOperation> {
        self.all.iter().map(|(number, state)| state.recorded(*number)).collect()
    }

    pub(super) fn open_operations(&self) -> Vec<RecordedOperation> {
        let later = self.all.iter().skip(self.settled);
        let recorded = later.map(|(number, state)| state.recorded(*number));
        recorded.filter(|operation| operation.end.is_none()).collect()
    }

    /// The watch has looked at those that have not ended.
    pub(super) fn note_look(&self) {
        for (_, state) in self.all.iter().skip(self.settled) {
            if let State::Open(open) = state {
                open.completion.note_look();
            }
        }
    }

    /// Releases the completions of those that have ended, from the oldest on.
    fn settle(&mut self) {
        while let Some((number, state)) = self.all.get_mut(self.settled) {
            if let State::Open(_) = state {
                let recorded = state.recorded(*number);
                if recorded.end.is_none() {
                    break;
                }
                count(&recorded, &mut self.counts);
                *state = State::Ended(Box::new(recorded));
            }
            self.settled += 1;
        }
    }

    /// Hands out all that have ended, for the caller to drop outside the lock: errors may hold what
    /// belongs to the program.
    #[must_use]
    pub(super) fn settle_all(&mut self) -> Vec<IssuedNote> {
        let mut released = Vec::new();
        for (number, state) in self.all.iter_mut().skip(self.settled) {
            let State::Open(_) = state else { continue };
            let recorded = state.recorded(*number);
            if recorded.end.is_none() {
                continue;
            }
            count(&recorded, &mut self.counts);
            if let State::Open(open) = std::mem::replace(state, State::Ended(Box::new(recorded))) {
                released.push(*open);
            }
        }
        let is_over = |open: &mut IssuedNote| open.completion.is_done();
        let forgotten: Vec<_> = self.forgotten.extract_if(.., is_over).collect();
        forgotten.iter().for_each(|open| count(&open.recorded(0), &mut self.counts));
        released.extend(forgotten);
        released
    }

    /// Forgets the oldest that has ended, or the oldest of all if none has, when there are too
    /// many.
    fn make_room(&mut self) {
        if self.all.len() < REMEMBERED {
            return;
        }
        let is_over = |state: &State| match state {
            State::Open(open) => open.completion.is_done(),
            State::Ended(_) => true,
        };
        let place = self.all.iter().position(|(_, state)| is_over(state)).unwrap_or(0);
        if let Some((_, State::Open(open))) = self.all.remove(place) {
            self.forgotten.push(*open);
            self.count_forgotten();
        }
        self.settled -= usize::from(place < self.settled);
    }

    /// Counts those that were forgotten and have ended, when there are many.
    fn count_forgotten(&mut self) {
        let many = self.forgotten.len();
        if many.is_power_of_two() {
            let counts = &mut self.counts;
            self.forgotten.retain(|open| {
                let recorded = open.recorded(0);
                let is_over = recorded.end.is_some();
                if is_over {
                    count(&recorded, counts);
                }
                !is_over
            });
        }
    }

    /// What was counted of all, of those that have not ended, too.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        let open = self.all.iter().skip(self.settled).filter_map(|(number, state)| match state {
            State::Open(open) => Some(open.recorded(*number)),
            State::Ended(_) => None,
        });
        let forgotten = self.forgotten.iter().map(|open| open.recorded(0));
        open.chain(forgotten).for_each(|recorded| count(&recorded, &mut counts));
        counts
    }
}

/// Counts what is known of an operation.
fn count(operation: &RecordedOperation, counts: &mut Counts) {
    let counts = counts_of(counts, (operation.name, operation.comm_name.clone()));
    match (&operation.end, operation.issued) {
        (None, _) => counts.open += 1,
        (Some(RecordedEnd { error: Some(_), .. }), _) => counts.add_failed(),
        (Some(end), issued) => {
            let took = end.at.saturating_duration_since(issued.unwrap_or(end.at));
            let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            counts.add(operation.note.bytes(), nanoseconds);
        }
    }
}

impl State {
    fn recorded(&self, number: u64) -> RecordedOperation {
        match self {
            State::Ended(recorded) => RecordedOperation::clone(recorded),
            State::Open(open) => open.recorded(number),
        }
    }
}

impl IssuedNote {
    fn recorded(&self, number: u64) -> RecordedOperation {
        let end = self.completion.peek_end();
        RecordedOperation {
            number,
            name: self.name,
            comm_name: self.comm_name.clone(),
            sequence: self.sequence,
            parts: self.parts,
            note: self.note.clone(),
            issued: Some(self.issued),
            end: end.map(|(result, at)| {
                let error = result.err().map(|error| error.to_string().into());
                RecordedEnd { at, error }
            }),
            is_awaited: self.completion.is_awaited(),
            frames: self.frames.clone(),
        }
    }
}
