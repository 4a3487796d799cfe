//! A session: a reliable, ordered stream of messages between a client and a server that outlives
//! the WebSocket which carries it. Pure; knows nothing of sockets, clocks or what messages mean.
//!
//! Each side numbers its messages and keeps them until the other has taken them. When a socket is
//! lost, the client opens another and says `Hello` with the session's token; both tell how many
//! messages they received, and send the others again: nothing is lost, nothing comes twice.
//!
//! ```text
//! client                                server
//!   attach()         Hello  ->            Hello::decode; Session::accept or Session::resume
//!   receive(packet)  <- Welcome
//!   send(message)    Data   ->            receive(packet); take()
//!   receive, take    <- Data, Ack         send(message)
//!   detach()         (socket lost)        detach()
//!   attach()         Hello  ->            resume(&hello)
//! ```
//!
//! The window bounds memory at both ends: a side sends no more than the other's window beyond what
//! the other has taken, so that is all that is kept for sending again, and all that waits to be
//! taken. What [`Session::send`] queues beyond it is the caller's to bound: ask [`Session::room`].
//!
//! The owner of the socket does this: `attach` when it opens, each binary message to `receive`,
//! `next_packet` until there is none whenever something was sent, received or taken (as long as
//! the socket takes more), `detach` when it is gone. After a [`Violation`] it closes the socket
//! with [`Violation::close_code`] and the violation's text, and drops the session.

mod packet;
mod reconnect;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use packet::{DecodedPacket, ack, decode};

pub use packet::{
    HEADER_BYTES, Hello, MAX_BODY_BYTES, MAX_PACKET_BYTES, MAX_WINDOW_BYTES, MESSAGE_COST_BYTES,
    MIN_WINDOW_BYTES, Message, Packet, ResumeToken, SESSION_VERSION, Welcome,
};
pub use reconnect::{Next, Reconnect};

/// How many bytes may come without a message that is complete: more than the longest takes, and far
/// fewer than empty fragments without end would be.
pub const MAX_UNFINISHED_BYTES: usize = 4 * MAX_PACKET_BYTES;

/// How many pings and pongs may come from one sign of life of a side to the next: they cost the
/// other side next to nothing.
pub const MAX_SIGNS: u32 = 64;

/// Bytes of messages that a side holds before it takes them, unless told otherwise.
pub const DEFAULT_WINDOW_BYTES: u32 = 1 << 20;
/// How long a server waits for a client whose socket was lost, ms, unless told otherwise: so that
/// the death of a browser is known within two seconds.
pub const DEFAULT_GRACE_MS: u32 = 1500;

/// How many acknowledgements that acknowledge nothing a client may send from one of the server's
/// own to the next: they cost it nothing, and a client's timer is as slow as the server's.
const MAX_IDLE_ACKS: u32 = 64;

/// One side of a session.
#[derive(Debug)]
pub struct Session {
    side: Side,
    socket: Socket,
    own_window: usize,
    peer_window: usize,
    /// Hello or Welcome, to be sent before anything else.
    opening: Option<Packet>,
    /// Sent on this socket or an earlier one, and not taken by the peer as far as is known; the
    /// last of them has number `sent`.
    kept: VecDeque<Packet>,
    kept_bytes: usize,
    /// How many of `kept`, from the end, are still to be sent again.
    again: usize,
    queued: VecDeque<Message>,
    queued_bytes: usize,
    sent: u64,
    received: u64,
    inbox: VecDeque<Message>,
    inbox_bytes: usize,
    taken: u64,
    /// Bytes taken since the peer was told last.
    untold_bytes: usize,
    /// An acknowledgement is due even if little was taken.
    tell: bool,
    /// Acknowledgements that came and acknowledged nothing, since this side's timer last spoke.
    idle_acks: u32,
}

#[derive(Debug)]
enum Side {
    Client { token: ResumeToken, grace_ms: u32, number: u64 },
    Server { token: ResumeToken, grace_ms: u32, number: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    None,
    /// The client has said Hello; only a Welcome may come.
    Opening,
    Open,
}

/// What a packet brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEffect {
    /// The session continues, or begins; a client may tell its user.
    Welcome,
    /// A message, for [`Session::take`].
    Message,
    /// The peer took messages: there may be room.
    Ack,
    /// A sign of life: the peer took nothing.
    Alive,
}

/// What the other side must not do. The session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The bytes are not a packet, or one that must not come now.
    #[error("a packet is malformed or out of place")]
    Malformed,
    /// A message has another number than the next.
    #[error("message {number} came where {expected} was due")]
    Number {
        /// Its number.
        number: u64,
        /// The number that was due.
        expected: u64,
    },
    /// More was acknowledged than was sent, or messages are wanted again that were taken.
    #[error("an acknowledgement of {taken} messages makes no sense")]
    Acknowledged {
        /// The number that it states.
        taken: u64,
    },
    /// More was sent than the window allows.
    #[error("more than {window_bytes} bytes were sent before they were taken")]
    Overrun {
        /// The window.
        window_bytes: u32,
    },
    /// Acknowledgements came that acknowledge nothing, one after the other.
    #[error("too many acknowledgements acknowledge nothing")]
    Idle,
    /// The window is smaller than a message or larger than is accepted.
    #[error("a window of {window_bytes} bytes is not accepted")]
    Window {
        /// The window.
        window_bytes: u32,
    },
    /// The other side speaks another version.
    #[error("session version {version} is not supported; expected {SESSION_VERSION}")]
    Version {
        /// Its version.
        version: u32,
    },
    /// The session is not known here: it was given up, or the server was started anew.
    #[error("unknown session")]
    UnknownSession,
}

impl Violation {
    /// The code with which to close the WebSocket (RFC 6455, section 7.4.1); the text fits into
    /// its reason.
    pub fn close_code(&self) -> u16 {
        match self {
            Violation::Malformed
            | Violation::Number { .. }
            | Violation::Acknowledged { .. }
            | Violation::Window { .. } => 1002,
            Violation::Overrun { .. }
            | Violation::Idle
            | Violation::Version { .. }
            | Violation::UnknownSession => 1008,
        }
    }
}

impl Session {
    /// A client's side, without a socket. `grace_ms` is how long the server is to wait after a
    /// lost socket, 0 for the server's choice.
    pub fn client(window_bytes: u32, grace_ms: u32) -> Session {
        let side = Side::Client { token: ResumeToken::NONE, grace_ms, number: 0 };
        Session::new(side, window_bytes, DEFAULT_WINDOW_BYTES)
    }

    /// A server's side for a client that said `hello` on the socket that carries it. `token` is
    /// random and not [`ResumeToken::NONE`], `number` the session's public number.
    ///
    /// # Errors
    /// The hello wants a session that this is not, another version, or an absurd window.
    pub fn accept(
        hello: &Hello,
        token: ResumeToken,
        number: u64,
        window_bytes: u32,
        grace_ms: u32,
    ) -> Result<Session, Violation> {
        check_window(hello.window_bytes)?;
        let side = Side::Server { token, grace_ms, number };
        let mut session = Session::new(side, window_bytes, hello.window_bytes);
        session.greet(hello, ResumeToken::NONE)?;
        Ok(session)
    }

    /// Continues with a server's side on a new socket, whose client said `hello`. The socket before
    /// it, if it is still there, must be closed by the caller and not be listened to any more.
    ///
    /// # Errors
    /// The hello does not fit the session.
    pub fn resume(&mut self, hello: &Hello) -> Result<(), Violation> {
        let token = self.token();
        check_window(hello.window_bytes)?;
        self.detach();
        self.greet(hello, token)?;
        self.peer_window = hello.window_bytes as usize;
        Ok(())
    }

    /// A client's new socket is open: its first packet is a hello.
    pub fn attach(&mut self) {
        self.detach();
        let Side::Client { token, grace_ms, .. } = self.side else { return };
        let window_bytes = self.own_window as u32;
        let (version, received) = (SESSION_VERSION, self.received);
        let hello = Hello { version, token, received, window_bytes, grace_ms };
        self.opening = Some(hello.encode());
        self.socket = Socket::Opening;
    }

    /// The socket is gone. Messages wait for the next one.
    pub fn detach(&mut self) {
        self.socket = Socket::None;
        self.opening = None;
        self.again = 0;
        self.tell = false;
    }

    /// Reads a packet that the socket brought.
    ///
    /// # Errors
    /// The session is over: the other side, or something between, does not follow the protocol.
    pub fn receive(&mut self, packet: Vec<u8>) -> Result<PacketEffect, Violation> {
        match (decode(packet).ok_or(Violation::Malformed)?, self.socket) {
            (DecodedPacket::Welcome(welcome), Socket::Opening) => self.welcomed(&welcome),
            (DecodedPacket::Data { number, taken, message }, Socket::Open) => {
                self.acknowledged(taken)?;
                let expected = self.received + 1;
                if number != expected {
                    return Err(Violation::Number { number, expected });
                }
                self.inbox_bytes += message.cost_bytes();
                if self.inbox_bytes + self.untold_bytes > self.own_window {
                    return Err(Violation::Overrun { window_bytes: self.own_window as u32 });
                }
                self.received = number;
                self.inbox.push_back(message);
                Ok(PacketEffect::Message)
            }
            (DecodedPacket::Ack { taken }, Socket::Open) => {
                if self.acknowledged(taken)? {
                    return Ok(PacketEffect::Ack);
                }
                self.idle_acks += 1;
                // A server is not asked to come, and a client may have slept for long.
                if matches!(self.side, Side::Server { .. }) && self.idle_acks > MAX_IDLE_ACKS {
                    return Err(Violation::Idle);
                }
                Ok(PacketEffect::Alive)
            }
            _ => Err(Violation::Malformed),
        }
    }

    /// Whether a message was received and not taken.
    pub fn has_message(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The next message that was received. Taking it makes room for the other side.
    pub fn take(&mut self) -> Option<Message> {
        let message = self.inbox.pop_front()?;
        self.inbox_bytes -= message.cost_bytes();
        self.untold_bytes += message.cost_bytes();
        self.taken += 1;
        Some(message)
    }

    /// Queues a message. Its body has at most [`MAX_BODY_BYTES`]; a longer one is cut by no one
    /// and refused by the peer.
    pub fn send(&mut self, message: Message) {
        debug_assert!(message.body().len() <= MAX_BODY_BYTES);
        self.queued_bytes += message.cost_bytes();
        self.queued.push_back(message);
    }

    /// The next packet for the socket.
    pub fn next_packet(&mut self) -> Option<Packet> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        if self.socket != Socket::Open {
            return None;
        }
        if self.again > 0 {
            let packet = self.kept.get(self.kept.len() - self.again).cloned();
            self.again -= 1;
            return packet;
        }
        if let Some(message) = self.queued.front()
            && self.kept_bytes + message.cost_bytes() <= self.peer_window
            && let Some(message) = self.queued.pop_front()
        {
            self.queued_bytes -= message.cost_bytes();
            self.kept_bytes += message.cost_bytes();
            self.sent += 1;
            let packet = message.seal(self.sent, self.told_now());
            self.kept.push_back(packet.clone());
            return Some(packet);
        }
        if self.tell || self.untold_bytes >= self.own_window / 4 {
            return Some(ack(self.told_now()));
        }
        None
    }

    /// Makes the next packet an acknowledgement if nothing else says as much: a sign of life, and
    /// the end of what the peer keeps. For a timer, which bounds how often the peer may do so.
    pub fn acknowledge(&mut self) {
        self.tell = true;
        self.idle_acks = 0;
    }

    /// Bytes of messages, header included, that can be sent without waiting for the other side.
    pub fn room(&self) -> usize {
        self.peer_window.saturating_sub(self.kept_bytes + self.queued_bytes)
    }

    /// Bytes of messages that are queued or kept for sending again.
    pub fn unsettled_bytes(&self) -> usize {
        self.kept_bytes + self.queued_bytes
    }

    /// How many messages are queued, or were sent and not taken as far as is known.
    pub fn unsettled_messages(&self) -> usize {
        self.kept.len() + self.queued.len()
    }

    /// Whether everything that was queued has been given to a socket that is open.
    pub fn is_flushed(&self) -> bool {
        self.socket == Socket::Open && self.queued.is_empty() && self.again == 0
    }

    /// Whether messages can travel now: there is a socket, and both sides have greeted.
    pub fn is_open(&self) -> bool {
        self.socket == Socket::Open
    }

    /// The session's token; [`ResumeToken::NONE`] until a client is welcomed.
    pub fn token(&self) -> ResumeToken {
        let (Side::Client { token, .. } | Side::Server { token, .. }) = self.side;
        token
    }

    /// The session's public number; 0 until a client is welcomed.
    pub fn number(&self) -> u64 {
        let (Side::Client { number, .. } | Side::Server { number, .. }) = self.side;
        number
    }

    /// How long the server waits after a lost socket, ms; before a client is welcomed, what it
    /// asks for.
    pub fn grace_ms(&self) -> u32 {
        let (Side::Client { grace_ms, .. } | Side::Server { grace_ms, .. }) = self.side;
        grace_ms
    }

    fn new(side: Side, own_window: u32, peer_window: u32) -> Session {
        let own_window = own_window.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES);
        Session {
            side,
            socket: Socket::None,
            own_window: own_window as usize,
            peer_window: peer_window as usize,
            opening: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            again: 0,
            queued: VecDeque::new(),
            queued_bytes: 0,
            sent: 0,
            received: 0,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            taken: 0,
            untold_bytes: 0,
            tell: false,
            idle_acks: 0,
        }
    }

    /// A server answers `hello`, which must want `token`.
    fn greet(&mut self, hello: &Hello, token: ResumeToken) -> Result<(), Violation> {
        if hello.version != SESSION_VERSION {
            return Err(Violation::Version { version: hello.version });
        }
        if hello.token != token {
            return Err(Violation::UnknownSession);
        }
        self.peer_received(hello.received)?;
        let welcome = Welcome {
            version: SESSION_VERSION,
            token: self.token(),
            received: self.received,
            window_bytes: self.own_window as u32,
            grace_ms: self.grace_ms(),
            number: self.number(),
        };
        self.opening = Some(welcome.encode());
        self.opened();
        Ok(())
    }

    fn welcomed(&mut self, welcome: &Welcome) -> Result<PacketEffect, Violation> {
        if welcome.version != SESSION_VERSION {
            return Err(Violation::Version { version: welcome.version });
        }
        check_window(welcome.window_bytes)?;
        let known = self.token();
        if welcome.token == ResumeToken::NONE
            || known != ResumeToken::NONE && known != welcome.token
        {
            return Err(Violation::UnknownSession);
        }
        self.peer_received(welcome.received)?;
        let Welcome { token, grace_ms, number, .. } = *welcome;
        self.side = Side::Client { token, grace_ms, number };
        self.peer_window = welcome.window_bytes as usize;
        self.opened();
        Ok(PacketEffect::Welcome)
    }

    fn opened(&mut self) {
        self.socket = Socket::Open;
        // What was told on the socket before may have been lost with it.
        self.tell = true;
        self.idle_acks = 0;
    }

    /// The peer has received `received` messages: the others that were sent go again. Those that
    /// it received but did not take yet stay kept, for they still take of its window.
    fn peer_received(&mut self, received: u64) -> Result<(), Violation> {
        let taken = self.sent - self.kept.len() as u64;
        if !(taken..=self.sent).contains(&received) {
            return Err(Violation::Acknowledged { taken: received });
        }
        self.again = (self.sent - received) as usize;
        Ok(())
    }

    /// The peer has taken `taken` messages; whether that is news.
    fn acknowledged(&mut self, taken: u64) -> Result<bool, Violation> {
        let before = self.sent - self.kept.len() as u64;
        // Packets that are sent again state what was true when they were sent first.
        if taken < before {
            return Ok(false);
        }
        if taken > self.sent - self.again as u64 {
            return Err(Violation::Acknowledged { taken });
        }
        for packet in self.kept.drain(..(taken - before) as usize) {
            self.kept_bytes -= packet.cost_bytes();
        }
        Ok(taken > before)
    }

    /// `taken`, which the peer is about to be told.
    fn told_now(&mut self) -> u64 {
        self.untold_bytes = 0;
        self.tell = false;
        self.taken
    }
}

fn check_window(window_bytes: u32) -> Result<(), Violation> {
    if (MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&window_bytes) {
        Ok(())
    } else {
        Err(Violation::Window { window_bytes })
    }
}
