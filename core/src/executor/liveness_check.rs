//! What is known of the ranks that an operation which stands still waits for, from what they said.
//! Knows no frames.

use std::time::Duration;

use crate::clock::Instant;
use crate::sorted::LargeMap;
use crate::transport::Rank;

/// How long a rank that was never heard of may take to answer.
const FIRST_ANSWER: Duration = Duration::from_millis(150);

/// How long a rank that has answered may be silent.
const SILENCE: Duration = Duration::from_secs(1);

/// What is known of the oldest operation in flight, if it stands still.
#[derive(Default)]
pub(super) struct LivenessCheck {
    pub(super) sequence: u64,
    first_asked: Option<Instant>,
    pub(super) last_asked: Option<Instant>,
    answers: LargeMap<Rank, Answer>,
}

/// What a rank last said.
struct Answer {
    at: Instant,
    issued: u64,
    /// Whom it misses.
    missing: Vec<Rank>,
}

impl LivenessCheck {
    /// Notes that the ranks that operation `sequence` waits for were asked.
    pub(super) fn note_asked(&mut self, sequence: u64, now: Instant) {
        if self.sequence != sequence {
            *self = LivenessCheck { sequence, ..LivenessCheck::default() };
        }
        self.first_asked.get_or_insert(now);
        self.last_asked = Some(now);
    }

    /// Notes what `peer` said of the operation.
    pub(super) fn note_answer(&mut self, peer: Rank, issued: u64, missing: Vec<Rank>, at: Instant) {
        self.answers.insert(peer, Answer { at, issued, missing });
    }

    /// Adds the ranks that operation `sequence` misses because it waits for `peer`.
    pub(super) fn add_missing(
        &self,
        peer: Rank,
        sequence: u64,
        now: Instant,
        missing: &mut Vec<Rank>,
    ) {
        match self.answers.get(&peer) {
            None if self.first_asked.is_some_and(|asked| now - asked >= FIRST_ANSWER) => {
                missing.push(peer);
            }
            None => {}
            Some(answer) if answer.issued < sequence || now - answer.at >= SILENCE => {
                missing.push(peer);
            }
            Some(answer) => missing.extend(&answer.missing),
        }
    }
}
