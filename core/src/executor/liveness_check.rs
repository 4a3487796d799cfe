//! What the ranks that a stalled operation waits for have answered. Knows no frames.

use std::time::Duration;

use crate::clock::Instant;
use crate::sorted::LargeMap;
use crate::transport::Rank;

/// How long a rank may take for its first answer.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_millis(150);

/// How long a rank that has answered may be silent afterwards.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// What is known of the oldest operation in flight, if it is stalled.
#[derive(Default)]
pub(super) struct LivenessCheck {
    pub(super) sequence: u64,
    first_asked: Option<Instant>,
    pub(super) last_asked: Option<Instant>,
    answers: LargeMap<Rank, Answer>,
}

/// A rank's last answer.
struct Answer {
    at: Instant,
    issued: u64,
    /// The ranks that it is missing.
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

    /// Notes the answer of `peer`.
    pub(super) fn note_answer(&mut self, peer: Rank, issued: u64, missing: Vec<Rank>, at: Instant) {
        self.answers.insert(peer, Answer { at, issued, missing });
    }

    /// Adds to `missing` the ranks that hold up operation `sequence`, as far as it waits for
    /// `peer`: that rank itself, or those that it is missing.
    pub(super) fn add_missing(
        &self,
        peer: Rank,
        sequence: u64,
        now: Instant,
        missing: &mut Vec<Rank>,
    ) {
        match self.answers.get(&peer) {
            None if self.first_asked.is_some_and(|asked| now - asked >= FIRST_ANSWER_LIMIT) => {
                missing.push(peer);
            }
            None => {}
            Some(answer) if answer.issued < sequence || now - answer.at >= SILENCE_LIMIT => {
                missing.push(peer);
            }
            Some(answer) => missing.extend(&answer.missing),
        }
    }
}
