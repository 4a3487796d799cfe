//! The sessions of a store's server: who they are, what they asked, what is relayed between them.
//! Pure; knows nothing of sockets or time.

use std::collections::{BTreeSet, HashMap};
use std::task::Waker;

use super::relay::{self, Pipes, Verdict};
use super::requests::{self, Clients, Requests};
use crate::store::tcp::server::service::Service;
use crate::store::tcp::server::waiters::ClientId;
use crate::wire::channel::{MAX_REQUESTS, RELAY_CHANNEL, RelayHeader, RelayKind, STORE_CHANNEL};
use crate::wire::session::{
    DEFAULT_WINDOW_BYTES, Hello, MAX_PACKET_BYTES, Message, Packet, ResumeToken, Session, Violation,
};

/// Most sessions at a time.
const MAX_SESSIONS: usize = 4096;
/// What a client may leave unread of its replies before it is read from no more.
const HIGH_WATER_BYTES: usize = 1 << 20;
/// Longest grace that a client may ask for, ms.
const MAX_GRACE_MS: u32 = 30 * 60 * 1000;

/// All sessions of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    peers: HashMap<u64, Peer>,
    tokens: HashMap<ResumeToken, u64>,
    clients: Roster,
    pipes: Pipes,
    last_number: u64,
    grace_ms: u32,
    /// Sessions that may have something to send.
    touched: BTreeSet<u64>,
    /// Sockets whose sessions were ended for what these did not bring, and why; until they know.
    ended: HashMap<SocketId, Fault>,
    held_bytes: usize,
}

/// A socket of a session; numbers are never used twice.
pub(super) type SocketId = u64;

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
    /// A channel that there is not.
    #[error("there is no channel {0}")]
    Channel(u8),
    /// The server has all the sessions that it takes.
    #[error("the store's server has {MAX_SESSIONS} sessions and takes no more")]
    Full,
    /// Everything together needs more memory than the server gives.
    #[error("the store's server is out of memory for requests")]
    Overloaded,
}

/// One session.
#[derive(Debug)]
struct Peer {
    session: Session,
    requests: Requests,
    socket: Option<SocketId>,
    /// The socket that was lost last.
    lost: Option<SocketId>,
    /// Who moves the socket's packets.
    waker: Option<Waker>,
    /// What of [`Sessions::held_bytes`] is this session's.
    held_bytes: usize,
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
            Fault::Full | Fault::Overloaded => 1013,
            Fault::TooManyRequests
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
        }
    }
}

impl Sessions {
    /// No sessions. Clients that ask for nothing else get `grace_ms` after a lost socket.
    pub(super) fn new(grace_ms: u32) -> Sessions {
        Sessions {
            peers: HashMap::new(),
            tokens: HashMap::new(),
            // Clients of sessions count from the middle, those with connections from 0.
            clients: Roster { requests: HashMap::new(), last: 1 << 63 },
            pipes: Pipes::default(),
            last_number: 0,
            grace_ms,
            touched: BTreeSet::new(),
            ended: HashMap::new(),
            held_bytes: 0,
        }
    }

    /// The session that a client wants which sent `packet` first on a new socket: an old one, or
    /// a new one that gets `token`.
    pub(super) fn greet(
        &mut self,
        packet: &[u8],
        token: ResumeToken,
        socket: SocketId,
    ) -> Result<u64, Fault> {
        let hello = Hello::decode(packet).ok_or(Violation::Malformed)?;
        if hello.token != ResumeToken::NONE {
            let number = *self.tokens.get(&hello.token).ok_or(Violation::UnknownSession)?;
            let peer = self.peers.get_mut(&number).ok_or(Violation::UnknownSession)?;
            peer.session.resume(&hello)?;
            peer.socket = Some(socket);
            // The socket before it hears that it is no longer the session's.
            peer.waker.take().into_iter().for_each(Waker::wake);
            self.touched.insert(number);
            return Ok(number);
        }
        if self.peers.len() == MAX_SESSIONS {
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
        let requests = Requests::default();
        let socket = Some(socket);
        let peer = Peer { session, requests, socket, lost: None, waker: None, held_bytes: 0 };
        self.peers.insert(number, peer);
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
        self.work(number, service)
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
            peer.session.send(message);
        }
        // What was not taken, as too many replies were unread, may be now.
        self.work(number, service)?;
        let packet = self.peers.get_mut(&number).and_then(|peer| peer.session.next_packet());
        self.account(number);
        Ok(packet)
    }

    /// The wait of `client` has ended, if it is a session's.
    pub(super) fn woken(&mut self, client: ClientId, service: &mut Service) -> bool {
        let Some(&(number, id)) = self.clients.requests.get(&client) else { return false };
        if let Some(peer) = self.peers.get_mut(&number) {
            if let Err(fault) = peer.requests.woken(id, service) {
                // What is wrong with the rest of the request is its own sender's to hear of.
                self.end_for(fault.into(), number, service);
            }
            self.touched.insert(number);
            self.account(number);
        }
        true
    }

    /// Has the next packet acknowledge what was received.
    pub(super) fn acknowledge(&mut self, number: u64) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.session.acknowledge();
        }
    }

    /// The socket was lost, and not in order: how long to wait for the next one, ms. `None` if
    /// there is another already.
    pub(super) fn lost(&mut self, number: u64, socket: SocketId) -> Option<u32> {
        let peer = self.peers.get_mut(&number).filter(|it| it.socket == Some(socket))?;
        peer.session.detach();
        (peer.socket, peer.waker, peer.lost) = (None, None, Some(socket));
        Some(peer.session.grace_ms())
    }

    /// The grace after the loss of `socket` has passed: ends the session if none came after it.
    pub(super) fn expire(&mut self, number: u64, socket: SocketId, service: &mut Service) -> bool {
        let is_last = |peer: &Peer| peer.socket.is_none() && peer.lost == Some(socket);
        let ends = self.peers.get(&number).is_some_and(is_last);
        if ends {
            self.end(number, RelayKind::Dead, service);
        }
        ends
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

    /// Ends a session for a fault that its socket has yet to hear of.
    fn end_for(&mut self, fault: Fault, number: u64, service: &mut Service) {
        if let Some(socket) = self.peers.get(&number).and_then(|peer| peer.socket) {
            self.ended.insert(socket, fault);
        }
        self.end(number, RelayKind::Dead, service);
    }

    /// Ends a session; `how` tells its peers whether it left or died.
    pub(super) fn end(&mut self, number: u64, how: RelayKind, service: &mut Service) {
        let Some(mut peer) = self.peers.remove(&number) else { return };
        self.held_bytes -= peer.held_bytes;
        self.tokens.remove(&peer.session.token());
        let mut clients = Members { roster: &mut self.clients, number };
        peer.requests.leave(service, &mut clients);
        peer.waker.take().into_iter().for_each(Waker::wake);
        for other in self.pipes.leave(number) {
            self.tell_gone(other, number, how);
        }
    }

    /// Wakes whoever moves the packets of sessions that may have something to send.
    pub(super) fn wake_touched(&mut self) {
        while let Some(number) = self.touched.pop_first() {
            if let Some(waker) = self.peers.get(&number).and_then(|peer| peer.waker.as_ref()) {
                waker.wake_by_ref();
            }
        }
    }

    /// Bytes of memory that all sessions keep.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Carries out what the session received, unless it leaves too many replies unread.
    fn work(&mut self, number: u64, service: &mut Service) -> Result<(), Fault> {
        while let Some(peer) = self.peers.get_mut(&number)
            && peer.requests.unsent_bytes() <= HIGH_WATER_BYTES
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
            Verdict::TellDead => self.tell_gone(from, header.peer, RelayKind::Dead),
            Verdict::Forward => {
                RelayHeader::readdress(&mut message, from);
                if let Some(peer) = self.peers.get_mut(&header.peer) {
                    peer.session.send(message);
                    self.touched.insert(header.peer);
                    self.account(header.peer);
                }
            }
        }
        Ok(())
    }

    fn tell_gone(&mut self, to: u64, number: u64, how: RelayKind) {
        let header = RelayHeader { kind: how, mine: false, pipe: 0, peer: number };
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.session.send(header.message(&[]));
            self.touched.insert(to);
            self.account(to);
        }
    }

    /// Keeps account of the memory that the session uses.
    fn account(&mut self, number: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
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

    fn leave(&mut self, client: ClientId) {
        self.roster.requests.remove(&client);
    }
}
