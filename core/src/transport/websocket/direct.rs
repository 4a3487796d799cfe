//! A pipe directly to a peer: a session over one WebSocket after another. Knows nothing of what the
//! chunks say, nor of what provides the sockets.
//!
//! The side that dialled dials again when its socket breaks, immediately and then with pauses; the
//! other waits, for as long as the session's grace. A socket that is closed cleanly ends the pipe
//! immediately: that is what browsers do when a tab is closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::heartbeat::{Beat, Heartbeat};
use super::pipe::{Pipe, PipeState};
use super::redial::Redial;
use super::socket::{Dialer, Socket, SocketClose, SocketEvent, close_code};
use crate::clock::Instant;
use crate::transport::{Interest, LossReason};
use crate::wire::session::{
    HEADER_BYTES, Hello, MESSAGE_COST_BYTES, Message, PacketEffect, Session,
};

/// Most bytes of chunks that wait to be taken. Enough that a large tensor need not pause until its
/// first chunks are acknowledged, after what the other side sends meanwhile. Each side of a pipe
/// holds no more than this of what arrived, and keeps no more of what it sent.
pub(super) const WINDOW_BYTES: u32 = 4 << 20;
/// The channel of chunks; there is no other.
const CHUNK_CHANNEL: u8 = 0;
/// A socket gets no more packets while this many bytes have not left it.
const BUFFERED_BYTES: usize = 256 << 10;
/// Events of a socket that are handled before others get their turn.
const TURN_EVENTS: usize = 32;

/// A session over WebSockets.
pub(super) struct DirectPipe {
    session: Session,
    end: SocketSource,
    socket: Option<Box<dyn Socket>>,
    state: PipeState,
    /// Since when there is no working socket, and why.
    broken: Option<(Instant, String)>,
    closing: Option<CloseProgress>,
    heartbeat: Heartbeat,
    /// The other end was dialled, or has sent something that was accepted; until then it may send
    /// one message only.
    known: bool,
}

/// Where the next socket comes from.
enum SocketSource {
    /// This side dials.
    Client(Redial),
    /// The other side dials, and its socket arrives here.
    Server(ArrivalSlot),
}

/// The state of an orderly close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseProgress {
    /// The socket will be closed after what was sent, with this code.
    Wanted(u16),
    /// This side waits for the other's answer.
    Said,
    Done,
}

/// Where a client that reconnects finds its session.
pub(super) type ArrivalSlot = Arc<Mutex<Option<Arrival>>>;

/// A client that reconnected: its first packet, and its socket.
pub(super) struct Arrival {
    pub(super) hello: Hello,
    pub(super) socket: Box<dyn Socket>,
}

impl DirectPipe {
    /// A pipe to the listener at `urls`, which are tried in turn. After a broken socket the other
    /// side is asked to wait for `grace_ms`; 0 leaves that to the other side.
    pub(super) fn client(
        dialer: Arc<dyn Dialer>,
        urls: Vec<String>,
        refused_timeout: Duration,
        grace_ms: u32,
        now: Instant,
    ) -> DirectPipe {
        let session = Session::client(WINDOW_BYTES, grace_ms);
        let end = SocketSource::Client(Redial::new(dialer, urls, refused_timeout, now));
        DirectPipe::new(session, end, None, PipeState::Connecting, now)
    }

    /// The pipe of `session`, whose client came over `socket`.
    pub(super) fn server(
        session: Session,
        socket: Box<dyn Socket>,
        door: ArrivalSlot,
        now: Instant,
    ) -> DirectPipe {
        DirectPipe::new(session, SocketSource::Server(door), Some(socket), PipeState::Open, now)
    }

    fn new(
        session: Session,
        end: SocketSource,
        socket: Option<Box<dyn Socket>>,
        state: PipeState,
        now: Instant,
    ) -> DirectPipe {
        let known = matches!(end, SocketSource::Client(_));
        DirectPipe {
            session,
            end,
            socket,
            state,
            broken: None,
            closing: None,
            heartbeat: Heartbeat::new(now),
            known,
        }
    }

    /// Takes a new socket, if one is there or due.
    fn find_socket(&mut self, now: Instant) -> bool {
        if self.is_over() {
            return false;
        }
        match &mut self.end {
            SocketSource::Server(door) => {
                let arrival = door.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(Arrival { hello, mut socket }) = arrival else { return false };
                match self.session.resume(&hello) {
                    Ok(()) => {
                        self.socket = Some(socket);
                        self.connected(now);
                    }
                    Err(error) => {
                        socket.close(error.close_code(), &error.to_string());
                        self.break_off(format!("it came back wrongly: {error}"), now);
                    }
                }
                true
            }
            SocketSource::Client(redial) if self.socket.is_none() => match redial.dial(now) {
                None => false,
                Some(Ok(socket)) => {
                    self.socket = Some(socket);
                    true
                }
                Some(Err(why)) => {
                    self.break_off(why, now);
                    true
                }
            },
            SocketSource::Client(redial) => {
                let late = !self.session.is_open() && redial.is_late(now);
                if late {
                    self.break_off("it did not answer in time".to_owned(), now);
                }
                late
            }
        }
    }

    /// Handles the events of the socket, as many as one turn allows.
    fn listen(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for _ in 0..TURN_EVENTS {
            if !self.known && self.session.has_message() {
                break;
            }
            let event = self.socket.as_mut().and_then(|socket| socket.receive());
            let Some(event) = event else { break };
            moved = true;
            if self.is_over() {
                // A peer that was told of the end is read until its socket closes, and no more.
                if let SocketEvent::Closed(_) = event {
                    self.end_socket();
                }
                continue;
            }
            self.heartbeat.heard(now);
            match event {
                SocketEvent::Opened => self.session.attach(),
                SocketEvent::Alive => self.sign_came(),
                SocketEvent::Packet(packet) => match self.session.receive(packet.into()) {
                    Ok(PacketEffect::Welcome) => self.connected(now),
                    Ok(PacketEffect::Message | PacketEffect::Ack | PacketEffect::Alive) => {}
                    Err(violation) => {
                        self.accuse(violation.close_code(), &violation.to_string());
                    }
                },
                SocketEvent::Closed(closed) => self.socket_closed(closed, now),
            }
            self.pump();
        }
        moved
    }

    /// Hands packets to the socket, and closes it after them.
    fn pump(&mut self) -> bool {
        // Behind the end nothing is sent, not even that something came.
        let has_ended = matches!(self.closing, Some(CloseProgress::Said | CloseProgress::Done));
        let over = self.is_over() || has_ended;
        let Some(socket) = self.socket.as_mut().filter(|_| !over) else {
            return false;
        };
        let mut moved = false;
        while socket.buffered() < BUFFERED_BYTES
            && let Some(packet) = self.session.next_packet()
        {
            socket.send(Bytes::from_owner(packet));
            moved = true;
        }
        if let Some(CloseProgress::Wanted(code)) = self.closing
            && (code != close_code::NORMAL || self.session.is_flushed())
        {
            socket.close(code, "");
            self.closing = Some(CloseProgress::Said);
            moved = true;
        }
        moved
    }

    /// The session continues over the socket.
    fn connected(&mut self, now: Instant) {
        self.broken = None;
        self.state = PipeState::Open;
        self.heartbeat = Heartbeat::new(now);
        if let SocketSource::Client(redial) = &mut self.end {
            redial.succeeded();
        }
    }

    fn sign_came(&mut self) {
        if !self.heartbeat.allows_sign() {
            self.accuse(close_code::POLICY, "too many pings");
        }
    }

    /// Ends the pipe because of an error of the other side, which is told: the socket stays open
    /// until the other side has read that.
    fn accuse(&mut self, code: u16, why: &str) {
        if let Some(socket) = &mut self.socket {
            socket.close(code, why);
        }
        self.state = PipeState::Lost(LossReason::Protocol(why.to_owned()));
        self.broken = None;
        self.closing = Some(CloseProgress::Said);
    }

    fn socket_closed(&mut self, closed: SocketClose, now: Instant) {
        let SocketClose { clean, code, reason } = closed;
        let code = close_code::meaning(code);
        if self.closing.is_some() {
            self.end(LossReason::Goodbye);
            return;
        }
        let says = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let text = match code {
            close_code::GOING_AWAY => {
                format!("its page was closed, or its program ended (1001){says}")
            }
            close_code::ABNORMAL if reason.is_empty() => "the connection ended".to_owned(),
            close_code::ABNORMAL => reason,
            code => format!("its WebSocket was closed with code {code}{says}"),
        };
        // A page that gives up a socket closes it with the code of a broken one, and reconnects; a
        // code that a proxy sends (see `SocketClose::is_final`) is not the other side's.
        let passing = matches!(self.end, SocketSource::Client(_)) && (1011..=1014).contains(&code);
        let broke = !clean || code == close_code::ABNORMAL || passing;
        match code {
            // Before the first welcome, the client may have to try again.
            _ if broke || self.state == PipeState::Connecting => self.break_off(text, now),
            close_code::NORMAL => self.end(LossReason::Goodbye),
            close_code::PROTOCOL | close_code::UNSUPPORTED | close_code::TOO_BIG => {
                self.end(LossReason::Protocol(text));
            }
            _ => self.end(LossReason::Died(text)),
        }
    }

    /// Notes that there is no socket for now.
    fn break_off(&mut self, why: String, now: Instant) {
        self.socket = None;
        self.session.detach();
        if self.state == PipeState::Open {
            self.broken.get_or_insert((now, why.clone()));
        }
        if let SocketSource::Client(redial) = &mut self.end
            && let Some(why) = redial.failed(self.state == PipeState::Open, why, now)
        {
            self.end(LossReason::Unreachable(why));
        }
    }

    /// Does what is due at `now`.
    fn expire(&mut self, now: Instant) -> bool {
        if self.is_over() {
            return false;
        }
        let grace = Duration::from_millis(self.session.grace_ms().into());
        if let Some((since, why)) = &self.broken
            && now >= *since + grace
        {
            let why = format!("its WebSocket broke and was not resumed within {grace:?} ({why})");
            self.end(LossReason::Died(why));
            return true;
        }
        let beat = self.heartbeat.beat(now);
        if beat == Beat::NotDue {
            return false;
        }
        if let Some(socket) = &mut self.socket
            && self.session.is_open()
        {
            if beat == Beat::Silent {
                self.break_off(Heartbeat::silence(), now);
            } else {
                socket.ping();
                self.session.acknowledge();
            }
        }
        true
    }

    fn end(&mut self, why: LossReason) {
        self.state = PipeState::Lost(why);
        self.broken = None;
        self.end_socket();
    }

    fn end_socket(&mut self) {
        self.socket = None;
        if self.closing.is_some() {
            self.closing = Some(CloseProgress::Done);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, PipeState::Lost(_))
    }
}

impl Pipe for DirectPipe {
    fn advance(&mut self, now: Instant) -> bool {
        let found = self.find_socket(now);
        let heard = self.listen(now);
        let pumped = self.pump();
        // This comes last: events that waited during a long sleep count as signs of life.
        let expired = self.expire(now);
        found || heard || pumped || expired
    }

    fn state(&self) -> PipeState {
        self.state.clone()
    }

    fn room(&self) -> usize {
        match (&self.state, self.closing) {
            (PipeState::Open, None) => {
                self.session.room().saturating_sub(HEADER_BYTES + MESSAGE_COST_BYTES)
            }
            _ => 0,
        }
    }

    fn send(&mut self, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut message = Message::with_capacity(CHUNK_CHANNEL, bytes);
        parts.iter().for_each(|part| message.extend(part));
        self.session.send(message);
        self.pump();
    }

    fn receive(&mut self) -> Option<Bytes> {
        let message = self.session.take()?;
        self.known = true;
        // The other side may have to be told that there is room.
        self.pump();
        Some(Bytes::from_owner(Body(message)))
    }

    fn close(&mut self, orderly: bool) {
        if self.closing.is_some() {
            return;
        }
        let code = if orderly { close_code::NORMAL } else { close_code::GOING_AWAY };
        self.closing = Some(CloseProgress::Wanted(code));
        // Without a welcome there is no session to end cleanly.
        if self.state == PipeState::Connecting || self.is_over() {
            self.end(LossReason::Goodbye);
        }
        self.pump();
    }

    fn is_flushed(&self) -> bool {
        match self.closing {
            Some(closing) => closing == CloseProgress::Done,
            None => {
                let left = self.socket.as_ref().is_some_and(|socket| socket.buffered() == 0);
                left && self.session.is_flushed()
            }
        }
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        interests.extend(self.socket.as_ref().and_then(|socket| socket.interest()));
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let grace = Duration::from_millis(self.session.grace_ms().into());
        let broken = self.broken.as_ref().map(|(since, _)| *since + grace);
        let redial = match &self.end {
            SocketSource::Client(redial) => redial.deadline(self.session.is_open()),
            SocketSource::Server(_) => None,
        };
        broken.into_iter().chain(redial).chain([self.heartbeat.next()]).min()
    }
}

/// The body of a message, which is not copied.
struct Body(Message);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.0.body()
    }
}
