//! The transport over pipes: how each peer is reached, and its state. Knows nothing of
//! what carries the pipes.

use std::time::Duration;

use crate::clock::Instant;

use super::peer::{Peer, Stage};
use super::pending_connections::PendingConnections;
use super::pipe::{Acceptor, Pipe};
use crate::transport::notice::{self, Notice};
use crate::transport::stream::SpareBuffers;
use crate::transport::{Interest, LossReason, Payload, Rank, Sink, Timeouts, Transport};
use crate::wire::frame::Header;
use crate::wire::handshake::{Hello, Refusal, Token};

/// Messages of up to this many bytes leave before the other side has asked for them: a browser
/// takes longer to answer, behind what it sends itself, than to pass them on.
const WHOLE_BYTES: usize = 1 << 20;
/// Of longer ones, so much does, and no more: both sides may send one, and the answer to the other
/// would have to wait behind it.
const LEAD_BYTES: usize = 256 << 10;

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Those of each connection, which begins once there is something for its peer.
    pub timeouts: Timeouts,
    /// How long the other side of a WebSocket that was dialled is asked to wait when it breaks, ms;
    /// 0: as long as it likes.
    pub grace_ms: u32,
    /// How long an orderly close waits until its goodbyes have left and were heard, where it may
    /// wait at all; below a second.
    pub goodbye_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeouts: Timeouts { refused_timeout: Duration::from_secs(3), ..Timeouts::default() },
            grace_ms: 0,
            goodbye_timeout: Duration::from_millis(500),
        }
    }
}

/// How a rank reaches another.
pub enum Route {
    /// Not through this transport.
    Elsewhere,
    /// Through this pipe, over which only this rank may speak first, and does so immediately: the
    /// other side does not know yet who it is.
    Dialed(Box<dyn Pipe>),
    /// Through this pipe, over which the first rank with something to send begins.
    Relayed(Box<dyn Pipe>),
    /// Through a pipe that the other rank opens, see [`Acceptor`].
    Awaited,
    /// Not at all, because of this.
    Unreachable(String),
}

/// Frames over pipes, for one rank of a group.
pub struct WebSocketTransport {
    /// What this rank says of itself; its own rank stands for the target.
    hello: Hello,
    options: Options,
    /// The process that made it; a forked child must not speak in its name.
    #[cfg(feature = "tcp")]
    process_id: u32,
    peers: Vec<Peer>,
    acceptor: Option<Box<dyn Acceptor>>,
    pending: PendingConnections,
    notices: Vec<Notice>,
    /// Wakes a thread that waits when something is due.
    #[cfg(feature = "tcp")]
    timer: Option<crate::transport::readiness::Readiness>,
    spare: SpareBuffers,
    gathered: Vec<u8>,
    closed: bool,
}

impl WebSocketTransport {
    /// The transport of `rank`, which reaches rank n by `routes[n]`; itself elsewhere. All ranks of
    /// the group have the same `token`, and no other group has it.
    pub fn new(
        rank: Rank,
        routes: Vec<Route>,
        acceptor: Option<Box<dyn Acceptor>>,
        token: Token,
        generation: u32,
        options: Options,
    ) -> WebSocketTransport {
        // There are never more ranks than a rank can number.
        let size = routes.len() as u32;
        let peers = routes.into_iter().map(peer).collect();
        WebSocketTransport {
            hello: Hello::new(token, generation, rank, size, rank),
            options,
            #[cfg(feature = "tcp")]
            process_id: crate::clock::process_id(),
            peers,
            acceptor,
            pending: PendingConnections::default(),
            notices: Vec::new(),
            // Without a timer, a thread that waits looks again after a while.
            #[cfg(feature = "tcp")]
            timer: crate::transport::readiness::Readiness::with_timer().ok(),
            spare: SpareBuffers::default(),
            gathered: Vec::new(),
            closed: false,
        }
    }
}

fn peer(route: Route) -> Peer {
    match route {
        Route::Dialed(pipe) => Peer::new(Some(pipe), Stage::Greeting { said: false }),
        Route::Relayed(pipe) => Peer::new(Some(pipe), Stage::Idle),
        Route::Awaited => Peer::new(None, Stage::Idle),
        Route::Elsewhere => {
            let why = "it is not reached by WebSocket".to_owned();
            Peer::new(None, Stage::Lost { untold: Some(LossReason::Unreachable(why)) })
        }
        Route::Unreachable(why) => {
            Peer::new(None, Stage::Lost { untold: Some(LossReason::Unreachable(why)) })
        }
    }
}

impl Transport for WebSocketTransport {
    fn rank(&self) -> Rank {
        self.hello.rank
    }

    fn size(&self) -> u32 {
        self.hello.size
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank(), "a frame for rank {peer}");
        self.connect(peer);
        let Some(entry) = self.peers.get_mut(peer as usize) else {
            return;
        };
        if self.closed || matches!(entry.stage, Stage::Lost { .. }) {
            return;
        }
        entry.outbox.push(header, payload);
        entry.flush(&mut self.gathered);
        self.notices.extend(entry.left().map(|header| Notice::Sent(peer, header)));
    }

    fn unasked_bytes(&self, _: Rank, message_bytes: usize) -> usize {
        if message_bytes <= WHOLE_BYTES { message_bytes } else { LEAD_BYTES }
    }

    fn connect(&mut self, peer: Rank) {
        let Some(entry) = self.peers.get_mut(peer as usize) else {
            return;
        };
        if self.closed || peer == self.hello.rank {
            return;
        }
        match &mut entry.stage {
            Stage::Lost { untold } => {
                self.notices.extend(untold.take().map(|why| Notice::Lost(peer, why)));
            }
            Stage::Idle | Stage::Greeting { .. } => entry.want(Instant::now()),
            Stage::Open => {}
        }
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        if self.closed {
            return false;
        }
        let now = Instant::now();
        let mut moved = self.tell(sink);
        moved |= self.admit(now);
        for peer in 0..self.size() {
            moved |= self.advance_peer(peer, now, sink);
        }
        moved |= self.tell(sink);
        self.set_timer();
        moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        if self.closed {
            return;
        }
        let pipes = self.peers.iter().filter_map(|peer| peer.pipe.as_ref());
        pipes.for_each(|pipe| pipe.interests(interests));
        self.pending.interests(interests);
        if let Some(acceptor) = &self.acceptor {
            acceptor.interests(interests);
        }
        #[cfg(feature = "tcp")]
        if let Some(timer) = &self.timer {
            interests.push(Interest { fd: timer.fd(), writable: false });
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let peers = self.peers.iter().flat_map(|peer| {
            let own = peer.pipe.as_ref().and_then(|pipe| pipe.deadline());
            let waiting = matches!(peer.stage, Stage::Idle | Stage::Greeting { .. });
            let wanted = peer.wanted_since.filter(|_| waiting);
            [own, wanted.map(|since| since + self.options.timeouts.connect_timeout)]
        });
        let acceptor = self.acceptor.as_ref().and_then(|acceptor| acceptor.deadline());
        peers.flatten().chain(acceptor).chain(self.pending.deadline()).min()
    }

    fn abandon(&mut self) {
        self.peers.iter_mut().for_each(Peer::abandon);
    }

    fn close(&mut self, orderly: bool) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.notices.clear();
        self.pending.clear();
        self.acceptor = None;
        let pipes = self.peers.iter_mut().filter_map(|peer| peer.lose(None));
        let mut pipes: Vec<_> = pipes.collect();
        #[cfg(feature = "tcp")]
        if self.process_id != crate::clock::process_id() {
            // The parent process continues with these connections.
            return;
        }
        pipes.iter_mut().for_each(|pipe| pipe.close(orderly));
        self.see_off(pipes, orderly);
    }
}

impl WebSocketTransport {
    /// Notifies `sink` what happened outside of its reach; whether there was anything.
    fn tell(&mut self, sink: &mut dyn Sink) -> bool {
        notice::tell(&mut self.notices, sink)
    }

    /// Takes in the pipes of those who dialled.
    fn admit(&mut self, now: Instant) -> bool {
        let Some(acceptor) = &mut self.acceptor else {
            return false;
        };
        let mut moved = acceptor.advance(now);
        while self.pending.has_room()
            && let Some(pipe) = acceptor.accept()
        {
            self.pending.admit(pipe, now + self.options.timeouts.hello_timeout);
            moved = true;
        }
        let (ours, peers) = (&self.hello, &self.peers);
        let judge = |theirs: &Hello| {
            theirs.check(ours)?;
            match peers.get(theirs.rank as usize).map(|peer| (&peer.stage, &peer.pipe)) {
                Some((Stage::Idle, None)) => Ok(()),
                Some((Stage::Lost { .. }, _)) => Err(Refusal::Lost),
                Some(_) => Err(Refusal::Connected),
                None => Err(Refusal::Rank),
            }
        };
        let mut accepted = Vec::new();
        moved |= self.pending.advance(now, ours, judge, &mut accepted);
        for (hello, pipe) in accepted {
            match self.peers.get_mut(hello.rank as usize) {
                Some(peer) if matches!((&peer.stage, &peer.pipe), (Stage::Idle, None)) => {
                    peer.pipe = Some(pipe);
                    peer.stage = Stage::Open;
                }
                // Two at once in one turn: the second is too many.
                _ => self.pending.dismiss(pipe, now),
            }
        }
        moved
    }

    fn advance_peer(&mut self, peer: Rank, now: Instant, sink: &mut dyn Sink) -> bool {
        let hello = Hello { target: peer, ..self.hello };
        let entry = &mut self.peers[peer as usize];
        if entry.is_leaving() {
            // Before more is on its way out, which has to leave first.
            self.notices.extend(entry.left().map(|header| Notice::Sent(peer, header)));
        }
        let mut outcome = entry.advance(now, &hello, &mut self.gathered, &mut self.spare, sink);
        if entry.is_leaving() {
            self.notices.extend(entry.left().map(|header| Notice::Sent(peer, header)));
        }
        let late = |since: Instant| now >= since + self.options.timeouts.connect_timeout;
        if outcome.lost.is_none()
            && matches!(entry.stage, Stage::Idle | Stage::Greeting { .. })
            && entry.wanted_since.is_some_and(late)
        {
            let timeout = self.options.timeouts.connect_timeout;
            let why = match entry.pipe {
                Some(_) => format!("it did not answer within {timeout:?}"),
                None => format!("it did not open its WebSocket to this rank within {timeout:?}"),
            };
            outcome.lost = Some(LossReason::Unreachable(why));
        }
        if let Some(why) = outcome.lost {
            self.lose(peer, why, now);
            outcome.moved = true;
        }
        outcome.moved
    }

    /// Gives `peer` up.
    fn lose(&mut self, peer: Rank, why: LossReason, now: Instant) {
        let entry = &mut self.peers[peer as usize];
        let told = matches!(entry.stage, Stage::Open) || entry.wanted_since.is_some();
        let untold = (!told).then(|| why.clone());
        if let Some(pipe) = entry.lose(untold) {
            self.pending.dismiss(pipe, now);
        }
        if told {
            self.notices.push(Notice::Lost(peer, why));
        }
    }

    /// Keeps `pipes` until what they say has left. Without order, or where nobody can wait, once
    /// must do.
    fn see_off(&mut self, mut pipes: Vec<Box<dyn Pipe>>, orderly: bool) {
        let begin = Instant::now();
        loop {
            let now = Instant::now();
            pipes.retain_mut(|pipe| {
                pipe.advance(now);
                !pipe.is_flushed()
            });
            let left = self.options.goodbye_timeout.saturating_sub(now - begin);
            if pipes.is_empty() || !orderly || left.is_zero() {
                return;
            }
            if !wait_for(&pipes, left) {
                return;
            }
        }
    }

    /// Sets the timer, so that a thread that waits wakes when something is due.
    fn set_timer(&mut self) {
        #[cfg(feature = "tcp")]
        {
            let deadline = self.deadline();
            if let Some(timer) = &mut self.timer {
                timer.wake_at(deadline);
            }
        }
    }
}

/// Waits until one of `pipes` can move, or for `limit`; false where nobody can wait.
#[cfg(feature = "tcp")]
fn wait_for(pipes: &[Box<dyn Pipe>], limit: Duration) -> bool {
    let mut interests = Vec::new();
    pipes.iter().for_each(|pipe| pipe.interests(&mut interests));
    // A pipe may be about to dial again, which no descriptor tells.
    crate::transport::wait::wait(&interests, Some(limit.min(Duration::from_millis(20))));
    true
}

#[cfg(not(feature = "tcp"))]
fn wait_for(_pipes: &[Box<dyn Pipe>], _limit: Duration) -> bool {
    false
}

impl Drop for WebSocketTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}
