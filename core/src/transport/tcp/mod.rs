//! Frames over TCP: one connection for each pair of ranks, opened by whoever first has something to
//! say. Knows nothing of schedules, groups or stores.
//!
//! Both sides may connect at once. A rank whose own hello has left refuses the hello of a higher rank
//! (`Crossing`) and accepts that of a lower one, giving up its own; so the lower rank's connection
//! stays. Frames wait for the welcome, hence none is lost with the connection that is given up.

mod dial;
mod inbox;
mod listener;
mod outbox;
mod readiness;
mod strangers;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::time::Timespec;

use self::dial::{Dial, Outcome, Target};
use self::inbox::{Inbox, Reader};
pub use self::listener::{Listener, address_toward};
use self::outbox::Outbox;
use self::readiness::{Readiness, Ready, TIMER};
use self::strangers::{Greeting, Strangers, answer};
use super::{Interest, Lost, Payload, Rank, Sink, Transport};
use crate::wire::card::Card;
use crate::wire::frame::{Header, Kind};
use crate::wire::handshake::{Hello, Refusal, Token};
use crate::{Error, Result};

/// Keys of events: a connection has its peer's rank, the others a number above all ranks.
const DIAL: u64 = 1 << 32;
const STRANGER: u64 = 2 << 32;
const LISTENER: u64 = u64::MAX - 1;
/// Most connections that one turn accepts.
const ACCEPTS: usize = 16;
/// While one connection is busy, the others are asked for in one turn of so many.
const BUSY_TURNS: u32 = 4;
/// How long an orderly close waits for room for its goodbyes.
const GOODBYE_WAIT: Duration = Duration::from_millis(500);
/// How long no connection is accepted after the system ran out of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most buffers full of bytes that are read and dropped when a connection is closed.
const DRAINED_BUFFERS: usize = 64;

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a peer may take until a connection to it stands.
    pub connect_timeout: Duration,
    /// How long a peer's endpoints may refuse connections. Shorter, because ranks listen before they
    /// publish their cards: who refuses is dead.
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
    readiness: Readiness,
    peers: Vec<Peer>,
    strangers: Strangers,
    notices: Vec<Notice>,
    /// Peers to which nothing can be written any more, but who may have said why.
    unwritable: Vec<Rank>,
    /// The peer whose bytes came last: it is asked first.
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

/// What the sink has not been told yet.
enum Notice {
    Sent(Rank, Header),
    Lost(Rank, Lost),
}

impl TcpTransport {
    /// Listens at `address`, port 0 for a free one. The address then goes into this rank's card.
    pub fn bind(address: SocketAddr) -> Result<Listener> {
        Listener::bind(address)
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
        let peer = |card: &Card| Peer {
            endpoints: card.tcp.clone(),
            outbox: Outbox::default(),
            link: Link::Idle,
        };
        Ok(TcpTransport {
            hello: Hello::new(token, generation, rank, size, rank),
            options,
            process_id: std::process::id(),
            listener: Some(listener),
            accept_pause: None,
            readiness,
            peers: cards.iter().map(peer).collect(),
            strangers: Strangers::default(),
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

    fn close(&mut self, orderly: bool) {
        if self.listener.take().is_none() {
            return;
        }
        self.strangers.clear();
        self.notices.clear();
        let mut open = Vec::new();
        for peer in &mut self.peers {
            let mut outbox = std::mem::take(&mut peer.outbox);
            let Link::Open(connection) = std::mem::replace(&mut peer.link, Link::Lost) else {
                continue;
            };
            outbox.keep_started();
            open.push((connection.socket, outbox));
        }
        if self.process_id != std::process::id() {
            // The parent process goes on with these connections.
            return;
        }
        if orderly {
            self.say_goodbye(&mut open);
        }
        for (socket, _) in open {
            // Bytes that nobody read would turn the end into a reset, which can overtake the goodbye.
            for _ in 0..DRAINED_BUFFERS {
                match recv(&socket, self.reader.buffer(), RecvFlags::empty()) {
                    Ok((bytes, _)) if bytes > 0 => {}
                    _ => break,
                }
            }
            // A child process may hold the socket too; the end must come all the same.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        self.close(false);
    }
}

impl TcpTransport {
    /// Tells `sink` what happened outside of its reach; whether there was anything.
    fn tell(&mut self, sink: &mut dyn Sink) -> bool {
        let moved = !self.notices.is_empty();
        for notice in self.notices.drain(..) {
            match notice {
                Notice::Sent(peer, header) => sink.sent(peer, &header),
                Notice::Lost(peer, why) => sink.lost(peer, why),
            }
        }
        moved
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
            self.busy = Some(peer);
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
        let flushed = outbox.flush(&connection.socket, &mut self.gathered, sent);
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
                self.lose(peer, Lost::Died(format!("its connection cannot be written: {why}")));
            }
        }
        moved
    }

    /// Gives `peer` up, once.
    fn lose(&mut self, peer: Rank, why: Lost) {
        let entry = &mut self.peers[peer as usize];
        if matches!(entry.link, Link::Lost) {
            return;
        }
        entry.link = Link::Lost;
        entry.outbox.clear();
        if self.busy == Some(peer) {
            self.busy = None;
        }
        self.timer_is_stale = true;
        self.notices.push(Notice::Lost(peer, why));
    }

    /// Begins to connect to `peer`.
    fn dial(&mut self, peer: Rank) {
        let endpoints = &self.peers[peer as usize].endpoints;
        let target = target(&self.hello, &self.options, endpoints, peer);
        let (dial, outcome) = Dial::begin(&target, &self.readiness);
        self.peers[peer as usize].link = Link::Dialing(Box::new(dial));
        self.settle(peer, outcome);
        self.set_timer();
    }

    fn advance_dial(&mut self, peer: Rank) -> bool {
        self.with_dial(peer, |dial, target, readiness| dial.advance(target, readiness))
    }

    /// Lets `change` go on with the connecting to `peer`, if that is under way.
    fn with_dial(
        &mut self,
        peer: Rank,
        change: impl FnOnce(&mut Dial, &Target<'_>, &Readiness) -> Outcome,
    ) -> bool {
        let Peer { endpoints, link: Link::Dialing(dial), .. } = &mut self.peers[peer as usize]
        else {
            // An event of an attempt that was given up.
            return false;
        };
        let target = target(&self.hello, &self.options, endpoints, peer);
        let outcome = change(dial, &target, &self.readiness);
        self.settle(peer, outcome);
        true
    }

    fn settle(&mut self, peer: Rank, outcome: Outcome) {
        self.timer_is_stale = true;
        match outcome {
            Outcome::Pending => {}
            Outcome::Welcomed(socket) => self.open(peer, socket),
            Outcome::Hopeless(why) => self.lose(peer, Lost::Unreachable(why)),
        }
    }

    /// The connection to `peer` stands.
    fn open(&mut self, peer: Rank, socket: OwnedFd) {
        if let Err(error) = self.readiness.modify(&socket, peer.into(), false) {
            self.lose(peer, Lost::Died(format!("its connection cannot be watched: {error}")));
            return;
        }
        let inbox = Inbox::new();
        let connection = Connection { socket, inbox, blocked: false, write_error: None };
        self.peers[peer as usize].link = Link::Open(Box::new(connection));
        self.flush(peer);
    }

    /// Takes in connections of whoever comes.
    fn accept(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                break;
            };
            match listener.accept() {
                Ok(socket) => {
                    self.strangers.admit(socket, &self.readiness, |slot| STRANGER + slot as u64);
                    self.timer_is_stale = true;
                    moved = true;
                }
                Err(error) if is_passing(error) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept TCP connections for now");
                    self.readiness.remove(listener);
                    self.accept_pause = Some(Instant::now() + ACCEPT_PAUSE);
                    self.timer_is_stale = true;
                    break;
                }
            }
        }
        moved
    }

    /// Hears what the stranger in `slot` says.
    fn greet(&mut self, slot: usize) -> bool {
        self.timer_is_stale = true;
        match self.strangers.read(slot) {
            Greeting::None => return false,
            Greeting::Foreign(socket) => {
                answer(&socket, &self.hello, Some(Refusal::Version));
            }
            Greeting::Hello(socket, hello) => match self.judge(&hello) {
                Err(refusal) => {
                    tracing::debug!(rank = hello.rank, %refusal, "refused a connection");
                    answer(&socket, &self.hello, Some(refusal));
                }
                // A connection that breaks before it is accepted is as if it had never been.
                Ok(()) if answer(&socket, &self.hello, None) => self.open(hello.rank, socket),
                Ok(()) => {}
            },
        }
        true
    }

    /// Whether the sender of `hello` is a peer to whom there is no connection yet.
    fn judge(&self, hello: &Hello) -> std::result::Result<(), Refusal> {
        hello.check(&self.hello)?;
        match &self.peers[hello.rank as usize].link {
            Link::Idle => Ok(()),
            Link::Dialing(dial) if dial.hello_has_left() && self.rank() < hello.rank => {
                Err(Refusal::Crossing)
            }
            Link::Dialing(_) => Ok(()),
            Link::Open(_) => Err(Refusal::Connected),
            Link::Lost => Err(Refusal::Lost),
        }
    }

    /// Does what is due.
    fn expire(&mut self) {
        let now = Instant::now();
        self.timer_is_stale = true;
        self.strangers.expire(now, self.options.hello_timeout);
        if let (Some(pause), Some(listener)) = (self.accept_pause, &self.listener)
            && now >= pause
        {
            let watched = self.readiness.add(listener, LISTENER, false);
            self.accept_pause = watched.err().map(|_| now + ACCEPT_PAUSE);
        }
        for peer in 0..self.size() {
            self.with_dial(peer, |dial, target, readiness| dial.expire(target, readiness, now));
        }
    }

    fn set_timer(&mut self) {
        self.timer_is_stale = false;
        let dials = self.peers.iter().filter_map(|peer| match &peer.link {
            Link::Dialing(dial) => Some(dial.deadline(&self.options)),
            _ => None,
        });
        let strangers = self.strangers.deadline(self.options.hello_timeout);
        let first = dials.chain(strangers).chain(self.accept_pause).min();
        self.readiness.wake_at(first);
    }

    /// Sends a goodbye over each connection, behind the frame of which a part has left already.
    fn say_goodbye(&mut self, open: &mut [(OwnedFd, Outbox)]) {
        let deadline = Instant::now() + GOODBYE_WAIT;
        let goodbye = Header::new(Kind::Goodbye, self.hello.generation);
        open.iter_mut().for_each(|(_, outbox)| outbox.push(goodbye, Payload::Empty));
        loop {
            let mut blocked = Vec::new();
            for (socket, outbox) in open.iter_mut() {
                let flushed = outbox.flush(&*socket, &mut self.gathered, |_| {});
                if flushed.is_ok_and(|flushed| flushed.blocked) {
                    blocked.push(PollFd::new(&*socket, PollFlags::OUT));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if blocked.is_empty() || left.is_zero() {
                return;
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            // Whatever it says, the next round finds out.
            let _ = poll(&mut blocked, Some(&timeout));
        }
    }
}

fn target<'a>(
    ours: &Hello,
    options: &'a Options,
    endpoints: &'a [SocketAddr],
    peer: Rank,
) -> Target<'a> {
    let hello = Hello { target: peer, ..*ours };
    Target { endpoints, hello, key: DIAL + u64::from(peer), options }
}

/// Whether the failure of one accept says nothing of the next.
fn is_passing(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN)
}
