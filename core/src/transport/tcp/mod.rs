//! Frames over TCP: one connection for each pair of ranks, opened by the first of the two that has
//! something to send. Knows nothing of schedules, groups or stores.
//!
//! Both sides may connect at the same time. A rank whose own hello has left refuses the hello of a
//! higher rank (`Crossing`). It accepts that of a lower rank and gives up its own connection, so
//! that the lower rank's stays. Frames wait for the welcome, so none is lost with the other
//! connection.
//!
//! One connection is enough on one host: of 32 MiB in both directions at once, one carried 2.7 GB/s
//! each way, two 2.2 and four 3.1 (medians of twelve, two cores, where the figures of one moved by
//! as much from run to run); what limits is the copying. `SO_BUSY_POLL` does nothing there, since
//! no device is asked for what came: with 50 µs of it for all sockets (`net.core.busy_read` and
//! `busy_poll`), allreduces of two ranks took as long as without.

mod closing;
mod dial;
#[cfg(test)]
mod dial_tests;
mod greeting;
mod inbox;
mod interfaces;
mod joining;
mod listener;
mod sending;
#[cfg(test)]
pub(super) mod tests;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown, sockopt};

use self::dial::Dial;
use self::inbox::Reader;
pub use self::interfaces::addresses;
#[cfg(feature = "websocket")]
pub(super) use self::listener::set_options;
pub use self::listener::{Listener, address_toward};
use super::notice::Notice;
use super::peers::{Link, Medium, Peer, PeerTable, PeerTransport, WatchedSockets};
use super::readiness::Readiness;
use super::stream::{Inbox, Outbox};
use super::{Interest, LossReason, Membership, Payload, Rank, Sink, Timeouts, Transport};
use crate::generated::error::{Error, Result};
use crate::wire::card::Card;
use crate::wire::frame::Header;
use crate::wire::handshake::Token;

/// While one connection is busy, the others are checked in one turn of this many.
const BUSY_TURNS: u32 = 4;

/// Up to which length messages are sent without asking the receiver. Asking takes two more system
/// calls at each end and a round trip, which is more than the copy at a receiver that is not ready.
const EAGER_BYTES: usize = 64 << 10;
/// Bytes of longer messages that are sent before the receiver has said where they go: as many as a
/// socket takes while the answer is on its way.
const UNASKED_BYTES: usize = 256 << 10;

/// The connections of one rank of one group.
pub struct TcpTransport {
    table: PeerTable<TcpTransport>,
    /// Connections that begin as WebSockets do, with the bytes that were read, if a WebSocket
    /// transport takes them.
    web: Option<Vec<(OwnedFd, Vec<u8>)>>,
    /// Peers to which nothing can be written any more, but which may have sent the reason.
    unwritable: Vec<Rank>,
    /// The peer that is read first: the only one, or one whose bytes have not all been read.
    busy: Option<Rank>,
    reader: Reader,
    gathered: Vec<u8>,
}

impl Medium for TcpTransport {
    type Route = Route;
    type Queue = Outbox;
    type Dial = Dial;
    type Connection = Connection;
    type Listener = Listener;
    type Attachment = ();

    const CONNECTION: &'static str = "TCP connection";
    const CONNECTIONS: &'static str = "TCP connections";
    const MAX_PENDING: usize = 128;

    fn is_reached(_: &Route) -> bool {
        true
    }
}

/// How a peer is reached.
pub(in crate::transport) struct Route {
    endpoints: Vec<SocketAddr>,
    /// Whether it is on this host.
    is_within_host: bool,
}

/// An open connection.
pub(in crate::transport) struct Connection {
    socket: OwnedFd,
    inbox: Inbox,
    /// Whether frames wait for room in the socket.
    blocked: bool,
    /// Why nothing can be written any more.
    write_error: Option<String>,
    /// Whether all that the peer had sent has arrived, and its side was closed then.
    is_read: bool,
    /// Whether this rank has broken the group and has yet to say so here. Meanwhile the end of its
    /// process would reset the connection: see [`Connection::owe_reason`].
    owes_reason: bool,
}

impl WatchedSockets for Connection {
    fn unwatch(&self, readiness: &Readiness) {
        readiness.remove(&self.socket);
    }
}

impl Connection {
    fn new(socket: OwnedFd) -> Connection {
        Connection {
            socket,
            inbox: Inbox::new(),
            blocked: false,
            write_error: None,
            is_read: false,
            owes_reason: false,
        }
    }

    /// Whether this rank owes the peer the reason why it broke the group. Should its process end
    /// before that has left, the system resets the connection instead of closing it, so that the
    /// peer does not take the end of the process for the reason.
    fn owe_reason(&mut self, owes_reason: bool) {
        let linger = owes_reason.then_some(Duration::ZERO);
        if let Err(error) = sockopt::set_socket_linger(&self.socket, linger) {
            tracing::debug!(%error, "cannot choose how the end of a connection looks");
        }
        self.owes_reason = owes_reason;
    }
}

impl TcpTransport {
    /// Listens at `address`, port 0 for a free one. The address then goes into this rank's card.
    pub fn bind(address: SocketAddr) -> Result<Listener> {
        Listener::bind(address)
    }

    /// Listens at these addresses of this host, the best first, and at no others.
    ///
    /// # Errors
    /// [`Error::Network`] if the system refuses that.
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
        let membership = Membership { rank, cards, token, generation };
        Self::with_timeouts(listener, membership, Timeouts::default())
    }

    /// As [`TcpTransport::new`], with other timeouts.
    pub fn with_timeouts(
        listener: Listener,
        membership: Membership<'_>,
        timeouts: Timeouts,
    ) -> Result<TcpTransport> {
        let hello = membership.hello(membership.compatible_size()?);
        let Membership { rank, cards, .. } = membership;
        let ours = &cards[rank as usize];
        let peer = |card: &Card| {
            let is_within_host = ours.host == card.host;
            let route = Route { endpoints: card.tcp.clone(), is_within_host };
            Peer::new(route, Outbox::default()).of_process(card, ours)
        };
        let peers = cards.iter().map(peer).collect();
        let table = PeerTable::new(listener, hello, timeouts, peers);
        let table = table.map_err(|error| Error::Network {
            message: format!("cannot watch the sockets of the TCP transport: {error}"),
        })?;
        Ok(TcpTransport {
            table,
            web: None,
            unwritable: Vec::new(),
            busy: None,
            reader: Reader::new(),
            gathered: Vec::new(),
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
        self.table.hello.rank
    }

    fn size(&self) -> u32 {
        self.table.hello.size
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank(), "a frame for rank {peer}");
        let Some(entry) = self.table.peers.get_mut(peer as usize) else {
            return;
        };
        match &entry.link {
            Link::Lost => return,
            Link::Open(connection) if connection.write_error.is_some() => return,
            _ => entry.queue.push(header, payload),
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
        if self.table.may_dial(peer) {
            self.dial(peer);
        }
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let Ok(mut moved) = self.table.begin_turn(sink) else { return false };
        if let Some(peer) = self.busy {
            moved |= self.receive(peer, sink);
        }
        if self.table.next_turn(BUSY_TURNS) || self.busy.is_none() {
            moved |= self.poll(sink);
        }
        moved |= self.read_last_words(sink);
        moved |= self.expire();
        self.end_turn(sink) || moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        if !self.table.is_closed() {
            self.table.note_waiting();
            interests.push(Interest { fd: self.table.readiness.fd(), writable: false });
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.table.readiness.deadline()
    }

    fn disconnect(&mut self, peer: Rank) -> bool {
        match self.table.peers.get(peer as usize).map(|peer| &peer.link) {
            Some(Link::Open(open)) => shutdown(&open.socket, Shutdown::Both).is_ok(),
            _ => false,
        }
    }

    fn abandon(&mut self) {
        for peer in &mut self.table.peers {
            peer.queue.abandon();
            if let Link::Open(connection) = &mut peer.link {
                connection.inbox.abandon();
                connection.owe_reason(true);
            }
        }
    }

    fn close(&mut self, orderly: bool) {
        self.close_all(orderly);
    }
}

impl TcpTransport {
    /// Reads what `peer` sent.
    fn receive(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let Link::Open(connection) = &mut self.table.peers[peer as usize].link else {
            return false;
        };
        let Connection { socket, inbox, .. } = &mut **connection;
        let received = inbox.receive(socket, &mut self.reader, peer, sink);
        connection.is_read = received.closed;
        if received.moved {
            // Among several peers, the last that sent is seldom the next that will; poll() knows.
            let is_only_peer = self.table.peers.len() == 2;
            self.busy = (is_only_peer || !received.drained).then_some(peer);
        }
        if let Some(why) = received.ended {
            self.lose(peer, why);
        }
        received.moved
    }

    /// Writes what waits for `peer`, as far as there is room.
    fn flush(&mut self, peer: Rank) -> bool {
        let PeerTable { peers, notices, readiness, .. } = &mut self.table;
        let Peer { queue, link: Link::Open(connection), .. } = &mut peers[peer as usize] else {
            return false;
        };
        let sent = |header| notices.push(Notice::Sent(peer, header));
        let flushed = sending::flush(queue, &connection.socket, &mut self.gathered, sent);
        let flushed = flushed.and_then(|flushed| {
            if flushed.blocked != connection.blocked {
                connection.blocked = flushed.blocked;
                readiness.modify(&connection.socket, peer.into(), flushed.blocked)?;
            }
            Ok(flushed)
        });
        match flushed {
            Ok(flushed) => {
                if connection.owes_reason && flushed.moved && !flushed.blocked {
                    connection.owe_reason(false);
                }
                flushed.moved
            }
            Err(error) => {
                queue.clear();
                connection.write_error = Some(error.to_string());
                self.unwritable.push(peer);
                true
            }
        }
    }

    /// Reads from peers to which nothing can be written: their last frames explain more than the
    /// failed write.
    fn read_last_words(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        for peer in std::mem::take(&mut self.unwritable) {
            moved = true;
            if self.receive(peer, sink) {
                self.unwritable.push(peer);
            } else if let Link::Open(connection) = &mut self.table.peers[peer as usize].link {
                let why = connection.write_error.take().unwrap_or_default();
                self.lose(
                    peer,
                    LossReason::Died(format!("its connection cannot be written: {why}")),
                );
            }
        }
        moved
    }
}
