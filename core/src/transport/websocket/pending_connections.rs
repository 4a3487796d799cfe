//! Incoming pipes that have not sent a hello yet, and pipes that are being closed. Their number and
//! their time are bounded, so that a stranger cannot get in the way of ranks. Knows no frames.

use std::time::Duration;

use crate::clock::Instant;

use super::greeting::answer;
use super::pipe::{Pipe, PipeState};
use crate::transport::Interest;
use crate::wire::handshake::{Hello, Refusal};

/// Most pipes that have not sent a hello yet; others wait until there is room, so that a new one
/// never replaces another.
const MAX_PENDING: usize = 128;
/// Most pipes that are being closed; one more takes the place of the oldest, whose last words
/// may be lost.
const MAX_CLOSING: usize = 128;

/// The pipes without a hello.
#[derive(Default)]
pub(super) struct PendingConnections {
    pipes: Vec<PendingConnection>,
}

struct PendingConnection {
    pipe: Box<dyn Pipe>,
    /// When it is dropped.
    until: Instant,
    /// It is being closed; nothing more is read.
    closing: bool,
}

impl PendingConnections {
    /// Whether there is room for one more.
    pub(super) fn has_room(&self) -> bool {
        self.pipes.iter().filter(|pending| !pending.closing).count() < MAX_PENDING
    }

    /// Adds a pipe whose hello must arrive before `until`, if there is room.
    pub(super) fn admit(&mut self, pipe: Box<dyn Pipe>, until: Instant) {
        debug_assert!(self.has_room());
        self.pipes.push(PendingConnection { pipe, until, closing: false });
    }

    /// Closes `pipe` and keeps it until its last packets have left.
    pub(super) fn dismiss(&mut self, mut pipe: Box<dyn Pipe>, now: Instant) {
        pipe.close(false);
        let closing = self.pipes.iter().enumerate().filter(|(_, pending)| pending.closing);
        if closing.clone().count() >= MAX_CLOSING
            && let Some((oldest, _)) = closing.min_by_key(|(_, pending)| pending.until)
        {
            self.pipes.swap_remove(oldest);
        }
        self.pipes.push(PendingConnection {
            pipe,
            until: now + Duration::from_secs(1),
            closing: true,
        });
    }

    /// Moves all of them. `judge` is asked about each hello; pipes of peers that it accepts are
    /// put into `accepted`, the others get its refusal.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        ours: &Hello,
        judge: impl Fn(&Hello) -> Result<(), Refusal>,
        accepted: &mut Vec<(Hello, Box<dyn Pipe>)>,
    ) -> bool {
        let mut moved = false;
        let mut at = 0;
        while at < self.pipes.len() {
            let pending = &mut self.pipes[at];
            moved |= pending.pipe.advance(now);
            let finished = match pending.closing {
                true => pending.pipe.is_flushed(),
                false => matches!(pending.pipe.state(), PipeState::Lost(_)),
            };
            let chunk = if pending.closing { None } else { pending.pipe.receive() };
            let Some(chunk) = chunk else {
                if finished || now >= pending.until {
                    let PendingConnection { pipe, closing, .. } = self.pipes.swap_remove(at);
                    if !closing && !pipe.is_flushed() {
                        // The refusal tells it why.
                        self.dismiss(pipe, now);
                    }
                    moved = true;
                } else {
                    at += 1;
                }
                continue;
            };
            moved = true;
            let mut pipe = self.pipes.swap_remove(at).pipe;
            let hello = Hello::decode(&chunk);
            match hello.map_err(|error| error.to_string()).map(|it| (it, judge(&it))) {
                Ok((hello, Ok(()))) => {
                    pipe.send(&[&answer(ours, None)]);
                    accepted.push((hello, pipe));
                }
                Ok((hello, Err(refusal))) => {
                    tracing::debug!(rank = hello.rank, %refusal, "refused a WebSocket");
                    pipe.send(&[&answer(ours, Some(refusal))]);
                    self.dismiss(pipe, now);
                }
                Err(error) => {
                    tracing::debug!(error, "closed the WebSocket of a stranger");
                    self.dismiss(pipe, now);
                }
            }
        }
        moved
    }

    pub(super) fn interests(&self, interests: &mut Vec<Interest>) {
        self.pipes.iter().for_each(|pending| pending.pipe.interests(interests));
    }

    /// When [`PendingConnections::advance`] must be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pipes = self.pipes.iter();
        let own = pipes.filter_map(|pending| pending.pipe.deadline());
        own.chain(self.pipes.iter().map(|pending| pending.until)).min()
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.pipes.clear();
    }
}
