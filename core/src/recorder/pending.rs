//! Operations that were not done when their call returned. Knows nothing of what they do.

use std::collections::VecDeque;
use std::sync::Arc;

use super::note::OperationNote;
use super::{REMEMBERED, RecordedEnd, RecordedOperation};
use crate::clock::Instant;
use crate::completion::Completion;

/// An operation that was issued.
pub(crate) struct IssuedNote {
    pub(crate) name: &'static str,
    pub(crate) comm_name: Option<Arc<str>>,
    pub(crate) sequence: u64,
    pub(crate) note: OperationNote,
    pub(crate) issued: Instant,
    pub(crate) completion: Arc<Completion>,
}

/// Those of a group, in the order of their calls.
#[derive(Default)]
pub(super) struct PendingOperations {
    all: VecDeque<(u64, State)>,
    /// The first of so many have ended, and are noted as such.
    settled: usize,
}

enum State {
    /// It may not be done.
    Open(Box<IssuedNote>),
    Ended(Box<RecordedOperation>),
}

impl PendingOperations {
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

    /// Releases the completions of those that have ended, from the oldest on.
    fn settle(&mut self) {
        while let Some((number, state)) = self.all.get_mut(self.settled) {
            if let State::Open(_) = state {
                let recorded = state.recorded(*number);
                if recorded.end.is_none() {
                    break;
                }
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
            let recorded = state.recorded(*number);
            if recorded.end.is_some()
                && let State::Open(open) =
                    std::mem::replace(state, State::Ended(Box::new(recorded)))
            {
                released.push(*open);
            }
        }
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
        self.all.remove(place);
        self.settled -= usize::from(place < self.settled);
    }
}

impl State {
    fn recorded(&self, number: u64) -> RecordedOperation {
        let open = match self {
            State::Ended(recorded) => return RecordedOperation::clone(recorded),
            State::Open(open) => open,
        };
        let end = open.completion.peek_end();
        RecordedOperation {
            number,
            name: open.name,
            comm_name: open.comm_name.clone(),
            sequence: open.sequence,
            note: open.note.clone(),
            issued: Some(open.issued),
            end: end.map(|(result, at)| {
                let error = result.err().map(|error| error.to_string().into());
                RecordedEnd { at, error }
            }),
            is_awaited: open.completion.is_awaited(),
        }
    }
}
