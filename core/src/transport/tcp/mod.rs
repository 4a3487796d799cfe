//! Frames over TCP: one connection for each pair of ranks, opened by whoever first has something to
//! say. Knows nothing of schedules, groups or stores.
//!
//! Both sides may connect at once. A rank whose own hello has left refuses the hello of a higher
//! rank (`Crossing`) and accepts that of a lower one, giving up its own; so the lower rank's
//! connection stays. Frames wait for the welcome, hence none is lost with the connection that is
//! given up.
//!
//! One connection is enough on one host: of 32 MiB in both directions at once, one carried 2.7 GB/s
//! each way, two 2.2 and four 3.1 (medians of twelve, two cores, where the figures of one moved by
//! as much from run to run); what limits is the copying. `SO_BUSY_POLL` does nothing there, since
//! no device is asked for what came: with 50 µs of it for all sockets (`net.core.busy_read` and
//! `busy_poll`), allreduces of two ranks took as long as without.

mod closing;
mod dial;
mod inbox;
mod interfaces;
mod joining;
mod listener;
mod pending_connections;
mod sending;
#[cfg(test)]
pub(super) mod tests;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use self::dial::Dial;
use self::inbox::Reader;
pub use self::interfaces::addresses;
use self::joining::{DIAL, STRANGER};
#[cfg(feature = "websocket")]
pub(super) use self::listener::set_options;
pub use self::listener::{Listener, address_toward};
use self::pending_connections::PendingConnections;
use super::notice::{self, Notice};
use super::readiness::{Readiness, Ready, TIMER};
use super::stream::{Inbox, Outbox};
use super::{Interest, LossReason, Payload, Rank, Sink, Transport};
use crate::generated::error::{Error, Result};
use crate::wire::card::Card;
use crate::wire::frame::Header;
use crate::wire::handshake::{Hello, Token};

/// The key of the listener's events; a connection has its peer's rank.
const LISTENER: u64 = u64::MAX - 1;
/// While one connection is busy, the others are asked for in one turn of so many.
const BUSY_TURNS: u32 = 4;

/// Up to which length messages leave unasked. To ask takes two more system calls at each end and
/// the way there and back, which is more than the copy at a receiver that was not ready.
const EAGER_BYTES: usize = 64 << 10;
/// What leaves of longer messages, before the receiver has said where they go: what a socket takes
/// in while the answer is on its way.
const UNASKED_BYTES: usize = 256 << 10;

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a peer's system may take until it accepts a connection.
    pub connect_timeout: Duration,
    /// How long a peer's endpoints may refuse connections. Shorter, because ranks listen before
    /// they publish their cards: who refuses is dead.
    pub refused_timeout: Duration,
    /// How long whoever connected may take to say who it is.
    pub hello_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(30),
            refused_timeout: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(10),
        }
    }
}

/// The connections of one rank of one group.
pub struct TcpTransport {
    /// What this rank says of itself; `target` is filled in for each peer.
    hello: Hello,
    options: Options,
    /// The process that made it; a forked child must not speak in its name.
    process_id: u32,
    listener: Option<Listener>,
    /// Until when no connection is accepted, because the system ran out of something.
    accept_pause: Option<Instant>,
    /// Since when the system had nothing for a connection.
    short_since: Option<Instant>,
    readiness: Readiness,
    peers: Vec<Peer>,
    pending_connections: PendingConnections,
    /// Connections that begin as WebSockets do, with the bytes that were read, if somebody wants
    /// them.
    web: Option<Vec<(OwnedFd, Vec<u8>)>>,
    notices: Vec<Notice>,
    /// Peers to which nothing can be written any more, but who may have said why.
    unwritable: Vec<Rank>,
    /// The peer that is asked first: the only one, or one whose bytes have not all been read.
    busy: Option<Rank>,
    turn: u32,
    /// Whether somebody was about to wait, so that the next turn must ask for everybody.
    waited: Cell<bool>,
    /// Whether deadlines have changed since the timer was set.
    timer_is_stale: bool,
    reader: Reader,
    gathered: Vec<u8>,
    ready: Vec<Ready>,
}

struct Peer {
    endpoints: Vec<SocketAddr>,
    is_within_host: bool,
    outbox: Outbox,
    link: Link,
}

enum Link {
    Idle,
    Dialing(Box<Dial>),
    Open(Box<Connection>),
    Lost,
}

struct Connection {
    socket: OwnedFd,
    inbox: Inbox,
    /// Whether frames wait for room in the socket.
    blocked: bool,
    /// Why nothing can be written any more.
    write_error: Option<String>,
}

impl TcpTransport {
    /// Listens at `address`, port 0 for a free one. The address then goes into this rank's card.
    pub fn bind(address: SocketAddr) -> Result<Listener> {
        Listener::bind(address)
    }

    /// Listens at these addresses of this host, the best first, and at no others.
    ///
    /// # Errors
    /// [`Error::Network`] if the system does not let it.
    pub fn bind_all(addresses: &[IpAddr]) -> Result<Listener> {
        Listener::bind_all(addresses)
    }

    /// The transport of `rank` in a group whose ranks published `cards`, one for each rank. All
    /// ranks of the group have the same `token`, and no other group has it.
    pub fn new(
        listener: Listener,
        rank: Rank,
        cards: &[Card],
        token: Token,
        generation: u32,
    ) -> Result<TcpTransport> {
        Self::with_options(listener, rank, cards, token, generation, Options::default())
    }

    /// As [`TcpTransport::new`], with other limits of time.
    pub fn with_options(
        listener: Listener,
        rank: Rank,
        cards: &[Card],
        token: Token,
        generation: u32,
        options: Options,
    ) -> Result<TcpTransport> {
        let size = u32::try_from(cards.len()).unwrap_or(u32::MAX);
        if rank >= size {
            let message = format!("rank {rank} is outside of a group of {size} ranks");
            return Err(Error::InvalidArgument { message });
        }
        for (other, card) in cards.iter().enumerate() {
            card.check().map_err(|error| Error::Rendezvous {
                message: format!("rank {rank} cannot talk to rank {other}: {error}"),
            })?;
        }
        let watch = || {
            let readiness = Readiness::new()?;
            readiness.add(&listener, LISTENER, false)?;
            Ok(readiness)
        };
        let readiness = watch().map_err(|error: rustix::io::Errno| Error::Network {
            message: format!("cannot watch the sockets of the TCP transport: {error}"),
        })?;
        let host = cards.get(rank as usize).map(|card| card.host.as_str());
        let peer = |card: &Card| Peer {
            endpoints: card.tcp.clone(),
            is_within_host: host == Some(card.host.as_str()),
            outbox: Outbox::default(),
            link: Link::Idle,
        };
        Ok(TcpTransport {
            hello: Hello::new(token, generation, rank, size, rank),
            options,
            process_id: std::process::id(),
            listener: Some(listener),
            accept_pause: None,
            short_since: None,
            readiness,
            peers: cards.iter().map(peer).collect(),
            pending_connections: PendingConnections::default(),
            web: None,
            notices: Vec::new(),
            unwritable: Vec::new(),
            busy: None,
            turn: 0,
            waited: Cell::new(false),
            timer_is_stale: false,
            reader: Reader::new(),
            gathered: Vec::new(),
            ready: Vec::new(),
        })
    }
}

#[cfg(feature = "websocket")]
impl TcpTransport {
    /// From now on, connections that begin as WebSockets do are kept for
    /// [`TcpTransport::take_web`].
    pub(super) fn keep_web(&mut self) {
        self.web.get_or_insert_default();
    }

    /// Takes the connections that begin as WebSockets do, with the bytes that were read.
    pub(super) fn take_web(&mut self) -> impl Iterator<Item = (OwnedFd, Vec<u8>)> + '_ {
        self.web.iter_mut().flat_map(|web| web.drain(..))
    }
}

impl Transport for TcpTransport {
    fn rank(&self) -> Rank {
        self.hello.rank
    }

    fn size(&self) -> u32 {
        self.hello.size
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank(), "a frame for rank {peer}");
        let Some(entry) = self.peers.get_mut(peer as usize) else {
            return;
        };
        match &entry.link {
            Link::Lost => return,
            Link::Open(connection) if connection.write_error.is_some() => return,
            _ => entry.outbox.push(header, payload),
        }
        match &entry.link {
            Link::Idle => self.dial(peer),
            Link::Open(connection) if !connection.blocked => {
                self.flush(peer);
            }
            _ => {}
        }
    }

    fn eager_bytes(&self, _: Rank) -> usize {
        EAGER_BYTES
    }

    fn unasked_bytes(&self, _: Rank, message_bytes: usize) -> usize {
        message_bytes.min(UNASKED_BYTES)
    }

    fn connect(&mut self, peer: Rank) {
        let idle =
            self.peers.get(peer as usize).is_some_and(|peer| matches!(peer.link, Link::Idle));
        if idle && peer != self.rank() && self.listener.is_some() {
            self.dial(peer);
        }
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        if self.listener.is_none() {
            return false;
        }
        let mut moved = self.tell(sink);
        if let Some(peer) = self.busy {
            moved |= self.receive(peer, sink);
        }
        self.turn = self.turn.wrapping_add(1);
        let waited = self.waited.take();
        if waited || self.busy.is_none() || self.turn.is_multiple_of(BUSY_TURNS) {
            moved |= self.poll(sink);
        }
        moved |= self.read_last_words(sink);
        if self.readiness.is_due() {
            self.expire();
            moved = true;
        }
        moved |= self.tell(sink);
        if self.timer_is_stale {
            self.set_timer();
        }
        moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        if self.listener.is_some() {
            self.waited.set(true);
            interests.push(Interest { fd: self.readiness.fd(), writable: false });
        }
    }

    fn abandon(&mut self) {
        for peer in &mut self.peers {
            peer.outbox.abandon();
            if let Link::Open(connection) = &mut peer.link {
                connection.inbox.abandon();
            }
        }
    }

    fn close(&mut self, orderly: bool) {
        self.close_all(orderly);
    }
}

impl TcpTransport {
    /// Tells `sink` what happened outside of its reach; whether there was anything.
    fn tell(&mut self, sink: &mut dyn Sink) -> bool {
        notice::tell(&mut self.notices, sink)
    }

    /// Asks the system which sockets can be moved, and moves them.
    fn poll(&mut self, sink: &mut dyn Sink) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        self.readiness.poll(&mut ready);
        let mut moved = false;
        for event in &ready {
            // The lower half of the key is a rank or a slot.
            let number = event.key as u32;
            moved |= match event.key {
                TIMER => false,
                LISTENER => self.accept(),
                key if key >= STRANGER => self.greet(number as usize),
                key if key >= DIAL => self.advance_dial(number),
                _ => {
                    let received = event.readable && self.receive(number, sink);
                    (event.writable && self.flush(number)) || received
                }
            };
        }
        self.ready = ready;
        moved
    }

    /// Reads what `peer` sent.
    fn receive(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let Link::Open(connection) = &mut self.peers[peer as usize].link else {
            return false;
        };
        let Connection { socket, inbox, .. } = &mut **connection;
        let received = inbox.receive(socket, &mut self.reader, peer, sink);
        if received.moved {
            // Among several, whoever's bytes came last is not who will send next; the system knows.
            let is_only_peer = self.peers.len() == 2;
            self.busy = (is_only_peer || !received.drained).then_some(peer);
        }
        if let Some(why) = received.ended {
            self.lose(peer, why);
        }
        received.moved
    }

    /// Writes what waits for `peer`, as far as there is room.
    fn flush(&mut self, peer: Rank) -> bool {
        let Peer { outbox, link: Link::Open(connection), .. } = &mut self.peers[peer as usize]
        else {
            return false;
        };
        let notices = &mut self.notices;
        let sent = |header| notices.push(Notice::Sent(peer, header));
        let flushed = sending::flush(outbox, &connection.socket, &mut self.gathered, sent);
        let flushed = flushed.and_then(|flushed| {
            if flushed.blocked != connection.blocked {
                connection.blocked = flushed.blocked;
                self.readiness.modify(&connection.socket, peer.into(), flushed.blocked)?;
            }
            Ok(flushed)
        });
        match flushed {
            Ok(flushed) => flushed.moved,
            Err(error) => {
                outbox.clear();
                connection.write_error = Some(error.to_string());
                self.unwritable.push(peer);
                true
            }
        }
    }

    /// Reads from peers to which nothing can be written: what they said before they went explains
    /// more than the failed write.
    fn read_last_words(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        for peer in std::mem::take(&mut self.unwritable) {
            moved = true;
            if self.receive(peer, sink) {
                self.unwritable.push(peer);
            } else if let Link::Open(connection) = &mut self.peers[peer as usize].link {
                let why = connection.write_error.take().unwrap_or_default();
                self.lose(
                    peer,
                    LossReason::Died(format!("its connection cannot be written: {why}")),
                );
            }
        }
        moved
    }

    /// Gives `peer` up, once.
    fn lose(&mut self, peer: Rank, why: LossReason) {
        let entry = &mut self.peers[peer as usize];
        if matches!(entry.link, Link::Lost) {
            return;
        }
        match std::mem::replace(&mut entry.link, Link::Lost) {
            Link::Open(connection) => self.readiness.remove(&connection.socket),
            Link::Dialing(dial) => dial.unwatch(&self.readiness),
            Link::Idle | Link::Lost => {}
        }
        entry.outbox.clear();
        if self.busy == Some(peer) {
            self.busy = None;
        }
        self.timer_is_stale = true;
        self.notices.push(Notice::Lost(peer, why));
    }
}
