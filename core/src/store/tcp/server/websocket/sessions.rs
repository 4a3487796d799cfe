//! The sessions of a store's server: who they are, what they asked, what is relayed between them.
//! Pure; knows nothing of sockets or time.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::task::Waker;

use super::disconnected::DisconnectedSessions;
use super::relay::{self, Pipes, Verdict};
use super::requests::{self, Clients, Requests};
use super::unread::{Cause, UnreadMessages};
use crate::store::tcp::server::client_count::{ClientCount, ClientGuard};
use crate::store::tcp::server::service::Service;
use crate::store::tcp::server::waiters::ClientId;
use crate::transport::websocket::close_code;
use crate::wire::channel::{
    MAX_REQUESTS, PIPE_WINDOW_BYTES, RELAY_CHANNEL, RelayHeader, RelayKind, STORE_CHANNEL,
};
use crate::wire::session::{
    DEFAULT_WINDOW_BYTES, Hello, MAX_PACKET_BYTES, Message, Packet, ResumeToken, Session, Violation,
};

/// Most sessions at a time.
const MAX_SESSIONS: usize = 4096;
/// Most sessions that are waited for at a time, after their sockets were lost. One more ends the
/// wait for another.
pub(super) const MAX_AWAY: usize = 1024;
/// What a client may leave unread of its replies before it is read from no more.
const HIGH_WATER_BYTES: usize = 1 << 20;
/// What a client may leave unread of what one other rank sends it, before that rank is sent away.
/// Its pipes to the client take a window together; the rest is for those that it closed.
pub(super) const MAX_UNREAD_BYTES: usize = 4 * PIPE_WINDOW_BYTES;
/// What a client may leave unread of the news that others are gone, before it is sent away itself:
/// the deaths of more ranks than there can be at a time.
pub(super) const MAX_UNREAD_NEWS_BYTES: usize = 1 << 20;
/// Longest grace that a client may ask for, ms.
const MAX_GRACE_MS: u32 = 30 * 60 * 1000;

/// All sessions of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    peers: HashMap<u64, Peer>,
    tokens: HashMap<ResumeToken, u64>,
    clients: Roster,
    pipes: Pipes,
    away: DisconnectedSessions,
    last_number: u64,
    grace_ms: u32,
    client_count: ClientCount,
    /// Sessions that may have something to send.
    unsent: BTreeSet<u64>,
    /// Sockets whose sessions were ended for what these did not bring, and why; until they know.
    ended: HashMap<SocketId, Fault>,
    /// Sessions that leave too much unread, and are about to be ended for it.
    deaf: BTreeSet<u64>,
    held_bytes: usize,
    /// The server ends.
    ending: bool,
}

/// A socket of a session; numbers are never used twice.
pub(super) type SocketId = u64;

/// A new socket: its number, and the address of its other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) socket: SocketId,
    pub(super) source: Option<IpAddr>,
}

/// Why a session ends by the server's will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The session's own rules were broken.
    #[error(transparent)]
    Session(#[from] Violation),
    /// A request cannot be read.
    #[error("a request to the store is malformed")]
    Request,
    /// Too many requests at a time.
    #[error("more than {MAX_REQUESTS} requests at a time")]
    TooManyRequests,
    /// Requests that are not run, as they are incomplete or wait, take too much memory.
    #[error("too many bytes of requests that wait")]
    TooLongRequests,
    /// A message for other ranks cannot be read, or is not for this pipe.
    #[error("a message to another rank is malformed")]
    Relay,
    /// Nobody ever had the number.
    #[error("there is no rank with relay number {0}")]
    UnknownPeer(u64),
    /// Too many pipes.
    #[error("more than {} pipes at a time", crate::wire::channel::MAX_PIPES)]
    TooManyPipes,
    /// A pipe's window was overrun.
    #[error("more was sent to another rank than it may take")]
    Overrun,
    /// It does not read what it has to know.
    #[error("more than {MAX_UNREAD_NEWS_BYTES} bytes of news of other ranks are unread")]
    Deaf,
    /// A channel that there is not.
    #[error("there is no channel {0}")]
    Channel(u8),
    /// The server ends.
    #[error("the store has ended")]
    Ended,
    /// The server has all the sessions that it takes.
    #[error("the store's server has {MAX_SESSIONS} sessions and takes no more")]
    Full,
    /// Everything together needs more memory than the server allows.
    #[error("the store's server is out of memory for requests")]
    Overloaded,
}

/// One session.
#[derive(Debug)]
struct Peer {
    session: Session,
    requests: Requests,
    socket: Option<SocketId>,
    /// Where its client connected from last.
    source: Option<IpAddr>,
    /// What its client has not taken.
    unread: UnreadMessages,
    /// Who moves the socket's packets.
    waker: Option<Waker>,
    /// What of [`Sessions::held_bytes`] is this session's.
    held_bytes: usize,
    _present: ClientGuard,
}

/// Which client of the service is which request of which session.
#[derive(Debug, Default)]
struct Roster {
    requests: HashMap<ClientId, (u64, u32)>,
    last: ClientId,
}

/// The clients of one session.
struct Members<'a> {
    roster: &'a mut Roster,
    number: u64,
}

impl Fault {
    /// The code with which to close the WebSocket.
    pub(super) fn close_code(&self) -> u16 {
        match self {
            Fault::Session(violation) => violation.close_code(),
            Fault::Request | Fault::Relay | Fault::Channel(_) => 1002,
            Fault::Ended => close_code::NORMAL,
            // The next attempt may find room; what was ended does not come back.
            Fault::Full => 1013,
            Fault::Overloaded
            | Fault::Deaf
            | Fault::TooLongRequests
            | Fault::TooManyRequests
            | Fault::UnknownPeer(_)
            | Fault::TooManyPipes
            | Fault::Overrun => 1008,
        }
    }
}

impl From<requests::Fault> for Fault {
    fn from(fault: requests::Fault) -> Fault {
        match fault {
            requests::Fault::Malformed => Fault::Request,
            requests::Fault::TooMany => Fault::TooManyRequests,
            requests::Fault::TooLong => Fault::TooLongRequests,
        }
    }
}

impl Sessions {
    /// No sessions. Clients that ask for nothing else get `grace_ms` after a lost socket.
    pub(super) fn new(grace_ms: u32, client_count: ClientCount) -> Sessions {
        Sessions {
            peers: HashMap::new(),
            tokens: HashMap::new(),
            // Clients of sessions count from the middle, those with connections from 0.
            clients: Roster { requests: HashMap::new(), last: 1 << 63 },
            pipes: Pipes::default(),
            away: DisconnectedSessions::default(),
            last_number: 0,
            grace_ms,
            client_count,
            unsent: BTreeSet::new(),
            ended: HashMap::new(),
            deaf: BTreeSet::new(),
            held_bytes: 0,
            ending: false,
        }
    }

    /// Ends every socket once it has sent what there is for its client.
    pub(super) fn begin_to_end(&mut self) {
        self.ending = true;
        let wakers = self.peers.values().filter_map(|peer| peer.waker.as_ref());
        wakers.for_each(Waker::wake_by_ref);
    }

    /// The session that a client wants which sent `packet` first on a new socket: an old one, or
    /// a new one that gets `token`. Where all places are taken, the wait for one who is away ends.
    pub(super) fn greet(
        &mut self,
        packet: &[u8],
        token: ResumeToken,
        Newcomer { socket, source }: Newcomer,
        service: &mut Service,
    ) -> Result<u64, Fault> {
        let hello = Hello::decode(packet).ok_or(Violation::Malformed)?;
        if hello.token != ResumeToken::NONE {
            let number = *self.tokens.get(&hello.token).ok_or(Violation::UnknownSession)?;
            let peer = self.peers.get_mut(&number).ok_or(Violation::UnknownSession)?;
            peer.session.resume(&hello)?;
            (peer.socket, peer.source) = (Some(socket), source);
            self.away.remove(number);
            service.set_away(number, false);
            // The socket before it learns that it is no longer the session's.
            peer.waker.take().into_iter().for_each(Waker::wake);
            self.unsent.insert(number);
            return Ok(number);
        }
        if self.peers.len() >= MAX_SESSIONS && !self.give_one_up(service) {
            return Err(Fault::Full);
        }
        let number = self.last_number + 1;
        let grace_ms = match hello.grace_ms {
            0 => self.grace_ms,
            wanted => wanted.min(MAX_GRACE_MS),
        };
        let session = Session::accept(&hello, token, number, DEFAULT_WINDOW_BYTES, grace_ms)?;
        self.last_number = number;
        self.tokens.insert(token, number);
        let peer = Peer {
            session,
            requests: Requests::default(),
            socket: Some(socket),
            source,
            unread: UnreadMessages::default(),
            waker: None,
            held_bytes: 0,
            _present: self.client_count.enter(),
        };
        self.peers.insert(number, peer);
        service.enter(number);
        Ok(number)
    }

    /// Says that `waker` moves the session's `socket`. An error if it is not the session's any
    /// more, with the reason if the session was ended.
    pub(super) fn claim(
        &mut self,
        number: u64,
        socket: SocketId,
        waker: &Waker,
    ) -> Result<(), Option<Fault>> {
        let Some(peer) = self.peers.get_mut(&number).filter(|it| it.socket == Some(socket)) else {
            return Err(self.ended.remove(&socket));
        };
        match &mut peer.waker {
            Some(present) => present.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Ok(())
    }

    /// A packet from the session's socket.
    pub(super) fn receive(
        &mut self,
        number: u64,
        packet: Vec<u8>,
        service: &mut Service,
    ) -> Result<(), Fault> {
        let Some(peer) = self.peers.get_mut(&number) else { return Ok(()) };
        peer.session.receive(packet)?;
        // What was taken of the answers may be why more can be asked.
        self.account(number);
        let worked = self.work(number, service);
        self.end_deaf(service);
        worked
    }

    /// The next packet for the session's socket.
    pub(super) fn next_packet(
        &mut self,
        number: u64,
        service: &mut Service,
    ) -> Result<Option<Packet>, Fault> {
        let Some(peer) = self.peers.get_mut(&number) else { return Ok(None) };
        let mut clients = Members { roster: &mut self.clients, number };
        while peer.session.room() >= MAX_PACKET_BYTES + 64
            && let Some(message) = peer.requests.next_message(service, &mut clients)
        {
            peer.unread.enter(Cause::Request, message.cost_bytes());
            peer.session.send(message);
        }
        // What was not taken, as too many replies were unread, may be now.
        self.work(number, service)?;
        let Some(peer) = self.peers.get_mut(&number) else { return Ok(None) };
        let packet = peer.session.next_packet();
        if packet.is_none() && self.ending && peer.session.is_flushed() {
            return Err(Fault::Ended);
        }
        self.account(number);
        Ok(packet)
    }

    /// The wait of `client` has ended, if it is a session's.
    pub(super) fn woken(&mut self, client: ClientId, service: &mut Service) -> bool {
        let Some(&(number, id)) = self.clients.requests.get(&client) else { return false };
        if let Some(peer) = self.peers.get_mut(&number) {
            if let Err(fault) = peer.requests.woken(id, service) {
                // What is wrong with the rest of the request is its own sender's to learn of.
                self.end_for(fault.into(), number, service);
            }
            self.unsent.insert(number);
            self.account(number);
        }
        true
    }

    /// Makes the next packet acknowledge what was received.
    pub(super) fn acknowledge(&mut self, number: u64) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.session.acknowledge();
        }
    }

    /// The socket was lost at `now_ms`, and not cleanly: the session waits for the next one,
    /// unless there is one already.
    pub(super) fn lost(
        &mut self,
        number: u64,
        socket: SocketId,
        now_ms: u64,
        service: &mut Service,
    ) {
        let peer = self.peers.get_mut(&number).filter(|it| it.socket == Some(socket));
        let Some(peer) = peer else { return };
        peer.session.detach();
        (peer.socket, peer.waker) = (None, None);
        let due_ms = now_ms.saturating_add(u64::from(peer.session.grace_ms()));
        self.away.add(number, due_ms, peer.source);
        service.set_away(number, true);
        if self.away.sessions() > MAX_AWAY {
            self.give_one_up(service);
        }
    }

    /// Ends the sessions that were waited for until `now_ms`; when to call this again.
    pub(super) fn expire(&mut self, now_ms: u64, service: &mut Service) -> Option<u64> {
        while let Some(number) = self.away.overdue(now_ms) {
            self.end(number, RelayKind::Dead, service);
        }
        self.away.next_due_ms()
    }

    /// Ends the wait for one of those who are away; whether there was one.
    fn give_one_up(&mut self, service: &mut Service) -> bool {
        let number = self.away.most_expendable();
        number.into_iter().for_each(|number| self.end(number, RelayKind::Dead, service));
        number.is_some()
    }

    /// Everything together needs too much memory: ends the session that keeps most of it, if that
    /// is more than `bytes`; whether there was one.
    pub(super) fn relieve(&mut self, bytes: usize, service: &mut Service) -> bool {
        let heaviest = self.peers.iter().max_by_key(|(_, peer)| peer.held_bytes);
        let Some((&number, _)) = heaviest.filter(|(_, peer)| peer.held_bytes > bytes) else {
            return false;
        };
        self.end_for(Fault::Overloaded, number, service);
        true
    }

    /// Ends a session for a fault that its socket has yet to learn of.
    fn end_for(&mut self, fault: Fault, number: u64, service: &mut Service) {
        if let Some(socket) = self.peers.get(&number).and_then(|peer| peer.socket) {
            self.ended.insert(socket, fault);
        }
        self.end(number, RelayKind::Dead, service);
    }

    /// Ends a session; `how` tells its peers whether it left or died.
    pub(super) fn end(&mut self, number: u64, how: RelayKind, service: &mut Service) {
        self.end_alone(number, how, service);
        self.end_deaf(service);
    }

    /// Ends the sessions that leave too much unread.
    fn end_deaf(&mut self, service: &mut Service) {
        while let Some(number) = self.deaf.pop_first() {
            if let Some(socket) = self.peers.get(&number).and_then(|peer| peer.socket) {
                self.ended.insert(socket, Fault::Deaf);
            }
            self.end_alone(number, RelayKind::Dead, service);
        }
    }

    fn end_alone(&mut self, number: u64, how: RelayKind, service: &mut Service) {
        let Some(mut peer) = self.peers.remove(&number) else { return };
        self.away.remove(number);
        service.exit(number);
        self.held_bytes -= peer.held_bytes;
        self.tokens.remove(&peer.session.token());
        let mut clients = Members { roster: &mut self.clients, number };
        peer.requests.leave(service, &mut clients);
        peer.waker.take().into_iter().for_each(Waker::wake);
        for other in self.pipes.leave(number) {
            self.tell_gone(other, number, how, Cause::Departure);
        }
    }

    /// Wakes what moves the packets of sessions that may have something to send.
    pub(super) fn wake_unsent(&mut self) {
        while let Some(number) = self.unsent.pop_first() {
            if let Some(waker) = self.peers.get(&number).and_then(|peer| peer.waker.as_ref()) {
                waker.wake_by_ref();
            }
        }
    }

    /// Bytes of memory that all sessions keep.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many sessions are waited for.
    #[cfg(test)]
    pub(super) fn away(&self) -> usize {
        self.away.sessions()
    }

    /// Runs what the session received, unless it leaves too many answers unread.
    fn work(&mut self, number: u64, service: &mut Service) -> Result<(), Fault> {
        while let Some(peer) = self.peers.get_mut(&number)
            && peer.requests.unsent_bytes() <= HIGH_WATER_BYTES
            && peer.unread.bytes_of(Cause::Question) <= MAX_UNREAD_NEWS_BYTES
            && let Some(message) = peer.session.take()
        {
            match message.channel {
                STORE_CHANNEL => {
                    let mut clients = Members { roster: &mut self.clients, number };
                    peer.requests.arrived(message.body(), service, &mut clients)?;
                }
                RELAY_CHANNEL => self.relay(number, message)?,
                other => return Err(Fault::Channel(other)),
            }
        }
        self.account(number);
        Ok(())
    }

    /// Passes a message on to the session that it is for.
    fn relay(&mut self, from: u64, mut message: Message) -> Result<(), Fault> {
        let (header, bytes) = RelayHeader::decode(message.body()).ok_or(Fault::Relay)?;
        let there = self.peers.contains_key(&header.peer);
        let was_there = (1..=self.last_number).contains(&header.peer);
        let verdict = self.pipes.judge(from, &header, bytes, (there, was_there));
        match verdict.map_err(|fault| match fault {
            relay::Fault::Malformed => Fault::Relay,
            relay::Fault::UnknownPeer(number) => Fault::UnknownPeer(number),
            relay::Fault::TooMany => Fault::TooManyPipes,
            relay::Fault::Overrun => Fault::Overrun,
        })? {
            Verdict::Drop => {}
            Verdict::TellDead => {
                self.tell_gone(from, header.peer, RelayKind::Dead, Cause::Question);
            }
            Verdict::Forward => {
                RelayHeader::readdress(&mut message, from);
                if let Some(peer) = self.peers.get_mut(&header.peer) {
                    let (cause, bytes) = (Cause::Rank(from), message.cost_bytes());
                    if peer.unread.bytes_of(cause) + bytes > MAX_UNREAD_BYTES {
                        return Err(Fault::Overrun);
                    }
                    peer.unread.enter(cause, bytes);
                    peer.session.send(message);
                    self.unsent.insert(header.peer);
                    self.account(header.peer);
                }
            }
        }
        Ok(())
    }

    fn tell_gone(&mut self, to: u64, number: u64, how: RelayKind, cause: Cause) {
        let message =
            RelayHeader { kind: how, opened_by_sender: false, pipe: 0, peer: number }.message(&[]);
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.unread.enter(cause, message.cost_bytes());
            if peer.unread.bytes_of(Cause::Departure) > MAX_UNREAD_NEWS_BYTES {
                self.deaf.insert(to);
            }
            peer.session.send(message);
            self.unsent.insert(to);
            self.account(to);
        }
    }

    /// Keeps account of the memory that the session uses.
    fn account(&mut self, number: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.unread.settle(peer.session.unsettled_messages());
        let held = peer.session.unsettled_bytes() + peer.requests.held_bytes();
        self.held_bytes = self.held_bytes - peer.held_bytes + held;
        peer.held_bytes = held;
    }
}

impl Clients for Members<'_> {
    fn enter(&mut self, id: u32) -> ClientId {
        self.roster.last += 1;
        self.roster.requests.insert(self.roster.last, (self.number, id));
        self.roster.last
    }

    fn session(&self) -> u64 {
        self.number
    }

    fn leave(&mut self, client: ClientId) {
        self.roster.requests.remove(&client);
    }
}
