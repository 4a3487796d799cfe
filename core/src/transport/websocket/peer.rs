//! One peer over pipes: the pipe to it, and the frames that arrive and leave. Knows nothing of the
//! other peers.

use std::convert::Infallible;

use crate::clock::Instant;

use super::greeting::{GreetingResult, judge};
use super::pipe::{CHUNK_BYTES, MAX_CHUNK_BYTES, Pipe, PipeState};
use crate::transport::stream::{FlushResult, Inbox, Outbox, SpareBuffers};
use crate::transport::{LossReason, Rank, Sink};
use crate::wire::frame::Header;
use crate::wire::handshake::Hello;

/// After this many bytes, the other peers get their turn.
const TURN_BYTES: usize = 4 << 20;

/// One other rank.
pub(super) struct Peer {
    /// The pipe to it, while there is one.
    pub(super) pipe: Option<Box<dyn Pipe>>,
    pub(super) stage: Stage,
    pub(super) outbox: Outbox,
    inbox: Inbox,
    /// The last bytes of frames that left the outbox: too few for a chunk, so that those of the
    /// next frame may join them. Empty between turns unless the pipe has no room.
    tail: Vec<u8>,
    /// Frames whose bytes are in the pipe or the tail, not all of them out of this process.
    leaving: Vec<Header>,
    /// Since when this rank has wanted a connection.
    pub(super) wanted_since: Option<Instant>,
}

/// The state of the connection.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing was sent yet; there may be no pipe yet.
    Idle,
    /// This rank greets, or has greeted.
    Greeting { said: bool },
    /// Frames go through.
    Open,
    /// It is gone. If it was not used before, the sink is told at the first use.
    Lost { untold: Option<LossReason> },
}

/// The result of moving a peer.
#[derive(Debug, Default)]
pub(super) struct PeerProgress {
    pub(super) moved: bool,
    /// It is gone.
    pub(super) lost: Option<LossReason>,
}

impl Peer {
    pub(super) fn new(pipe: Option<Box<dyn Pipe>>, stage: Stage) -> Peer {
        let (outbox, inbox) = (Outbox::default(), Inbox::new());
        let (tail, leaving) = (Vec::new(), Vec::new());
        Peer { pipe, stage, outbox, inbox, tail, leaving, wanted_since: None }
    }

    /// Notes that a connection is needed, from `now` on.
    pub(super) fn want(&mut self, now: Instant) {
        self.wanted_since.get_or_insert(now);
        if matches!(self.stage, Stage::Idle) && self.pipe.is_some() {
            self.stage = Stage::Greeting { said: false };
        }
    }

    /// Moves what can be moved, and tells the sink. `hello` is this rank's hello to the peer.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        hello: &Hello,
        gathered: &mut Vec<u8>,
        spare: &mut SpareBuffers,
        sink: &mut dyn Sink,
    ) -> PeerProgress {
        let Some(pipe) = &mut self.pipe else {
            return PeerProgress::default();
        };
        let mut moved = pipe.advance(now);
        let mut lost = None;
        if matches!(self.stage, Stage::Idle | Stage::Greeting { .. }) {
            let greeted = self.greet(hello);
            moved |= greeted.moved;
            lost = greeted.lost;
        }
        if lost.is_none() && matches!(self.stage, Stage::Open) {
            let received = self.receive(hello.target, spare, sink);
            let flushed = received.lost.is_none() && self.flush(gathered);
            moved |= received.moved || flushed;
            lost = received.lost;
        }
        PeerProgress { moved: moved || lost.is_some(), lost }
    }

    /// Hands frames to the pipe as long as it has room. Returns whether any byte left.
    pub(super) fn flush(&mut self, gathered: &mut Vec<u8>) -> bool {
        let (Some(pipe), Stage::Open) = (&mut self.pipe, &self.stage) else {
            return false;
        };
        let (tail, leaving) = (&mut self.tail, &mut self.leaving);
        let write = |pieces: &[&[u8]]| Ok::<usize, Infallible>(write(&mut **pipe, tail, pieces));
        let flushed = self.outbox.flush(gathered, write, |header| leaving.push(header));
        let FlushResult { moved, blocked } = match flushed {
            Ok(flushed) => flushed,
            Err(never) => match never {},
        };
        // Nothing follows that could fill the last chunk.
        let ends = !blocked && !self.tail.is_empty() && pipe.room() >= self.tail.len();
        if ends {
            pipe.send(&[&self.tail]);
            self.tail.clear();
        }
        moved || ends
    }

    /// Headers of frames that left this process since the last call.
    pub(super) fn left(&mut self) -> impl Iterator<Item = Header> + '_ {
        let flushed = self.tail.is_empty() && self.pipe.as_ref().is_some_and(|it| it.is_flushed());
        let until = if flushed { self.leaving.len() } else { 0 };
        self.leaving.drain(..until)
    }

    /// Whether [`Peer::left`] has to be asked again.
    pub(super) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Releases memory of operations; the connection stays.
    pub(super) fn abandon(&mut self) {
        self.outbox.abandon();
        self.inbox.abandon();
    }

    /// The peer is gone: takes the pipe, drops the rest.
    pub(super) fn lose(&mut self, untold: Option<LossReason>) -> Option<Box<dyn Pipe>> {
        self.stage = Stage::Lost { untold };
        self.outbox.clear();
        self.inbox.abandon();
        self.tail.clear();
        self.leaving.clear();
        self.pipe.take()
    }

    /// The handshake, as far as it goes now.
    fn greet(&mut self, hello: &Hello) -> PeerProgress {
        let Some(pipe) = &mut self.pipe else {
            return PeerProgress::default();
        };
        let mut moved = false;
        let mut said = matches!(self.stage, Stage::Greeting { said: true });
        if matches!(self.stage, Stage::Greeting { said: false }) && pipe.room() >= Hello::BYTES {
            pipe.send(&[&hello.encode()]);
            self.stage = Stage::Greeting { said: true };
            (said, moved) = (true, true);
        }
        let hopeless = |why| PeerProgress { moved: true, lost: Some(LossReason::Unreachable(why)) };
        let Some(chunk) = pipe.receive() else {
            return match pipe.state() {
                PipeState::Lost(why) => hopeless(why_text(why)),
                PipeState::Connecting | PipeState::Open => PeerProgress { moved, lost: None },
            };
        };
        match judge(&chunk, hello, said) {
            GreetingResult::Accepted => {}
            // A pipe over which nothing was sent yet has room for it.
            GreetingResult::Answer(answer) => pipe.send(&[&answer]),
            GreetingResult::Refused(answer, refusal) => {
                pipe.send(&[&answer]);
                return hopeless(format!("this rank refused it: {refusal}"));
            }
            GreetingResult::Hopeless(why) => return hopeless(why),
        }
        self.stage = Stage::Open;
        PeerProgress { moved: true, lost: None }
    }

    /// Takes what arrived.
    fn receive(
        &mut self,
        peer: Rank,
        spare: &mut SpareBuffers,
        sink: &mut dyn Sink,
    ) -> PeerProgress {
        let Some(pipe) = &mut self.pipe else {
            return PeerProgress::default();
        };
        let mut total_bytes = 0;
        while total_bytes < TURN_BYTES {
            let Some(chunk) = pipe.receive() else { break };
            total_bytes += chunk.len();
            if let Err(why) = self.inbox.parse(&chunk, spare, peer, sink) {
                return PeerProgress { moved: true, lost: Some(why) };
            }
        }
        let lost = match pipe.state() {
            // Frames that arrived before the loss are delivered first.
            PipeState::Lost(_) if total_bytes > 0 => None,
            PipeState::Lost(LossReason::Died(why)) => Some(self.inbox.cut_off(&why)),
            PipeState::Lost(why) => Some(why),
            PipeState::Connecting | PipeState::Open => None,
        };
        PeerProgress { moved: total_bytes > 0, lost }
    }
}

/// Sends as much of `tail` and `pieces` as there is room for, in full chunks; the rest of `pieces`
/// becomes the tail if it fills none. How many bytes of `pieces` were taken.
fn write(pipe: &mut dyn Pipe, tail: &mut Vec<u8>, pieces: &[&[u8]]) -> usize {
    let total_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut taken_bytes = 0;
    while taken_bytes < total_bytes {
        let left_bytes = total_bytes - taken_bytes;
        let waiting_bytes = tail.len() + left_bytes;
        let full = waiting_bytes >= CHUNK_BYTES;
        // Windows are larger than a chunk, so that there will be room for a full one.
        if full && pipe.room() < MAX_CHUNK_BYTES {
            break;
        }
        let chunk_bytes =
            if waiting_bytes <= MAX_CHUNK_BYTES { waiting_bytes } else { CHUNK_BYTES };
        let bytes = if full { chunk_bytes - tail.len() } else { left_bytes };
        let [first, second] = cut(pieces, taken_bytes, bytes);
        if full {
            pipe.send(&[tail, first, second]);
            tail.clear();
        } else {
            tail.extend_from_slice(first);
            tail.extend_from_slice(second);
        }
        taken_bytes += bytes;
    }
    taken_bytes
}

/// `take` bytes of one or two pieces, after the first `skip` ones.
fn cut<'a>(pieces: &[&'a [u8]], mut skip: usize, mut take: usize) -> [&'a [u8]; 2] {
    let mut parts: [&[u8]; 2] = [&[]; 2];
    for (part, piece) in parts.iter_mut().zip(pieces) {
        let start = skip.min(piece.len());
        let end = (start + take).min(piece.len());
        *part = &piece[start..end];
        skip -= start;
        take -= end - start;
    }
    parts
}

fn why_text(why: LossReason) -> String {
    match why {
        LossReason::Goodbye => "it has left already".to_owned(),
        LossReason::Died(why)
        | LossReason::Unreachable(why)
        | LossReason::Protocol(why)
        | LossReason::Local(why) => why,
    }
}
