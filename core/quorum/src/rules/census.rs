//! How many replicas are there, and what rules 4 to 6 have against a quorum of them: by numbers
//! alone, since this is asked for each of thousands that come at once. Knows no names.

use std::time::Duration;

use super::QuorumOptions;

/// Who is there, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Census {
    /// Who was heard of within the heartbeat timeout.
    pub(super) alive: usize,
    /// Of these, who asks for a quorum.
    pub(super) present: usize,
    /// Of these, who is in the last quorum.
    pub(super) from_last: usize,
    /// How many are in the last quorum, if there was one.
    pub(super) last: Option<usize>,
    /// Whether one of those present lets nobody in who is not in the last quorum.
    pub(super) shrinks: bool,
    /// Since when the first of those present asks.
    pub(super) first: Option<Duration>,
}

/// Why there is no quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    NobodyAsks,
    NobodyFromTheLast,
    TooFew,
    NoMajority,
    /// Who asks waits for so much longer for those alive that do not.
    Stragglers {
        left: Duration,
    },
}

impl Census {
    /// What the rules have against a quorum; `None` if there is one.
    pub(super) fn obstacle(&self, now: Duration, options: &QuorumOptions) -> Option<Obstacle> {
        let Some(first) = self.first else { return Some(Obstacle::NobodyAsks) };
        if self.shrinks && self.from_last == 0 {
            return Some(Obstacle::NobodyFromTheLast);
        }
        if self.last == Some(self.from_last) {
            return None;
        }
        if self.present < options.min_replicas {
            return Some(Obstacle::TooFew);
        }
        if self.present <= self.alive / 2 {
            return Some(Obstacle::NoMajority);
        }
        let left = first.saturating_add(options.join_timeout).saturating_sub(now);
        let has_absent = self.present < self.alive;
        (has_absent && !left.is_zero()).then_some(Obstacle::Stragglers { left })
    }
}
