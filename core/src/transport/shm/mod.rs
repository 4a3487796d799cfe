//! Frames between the ranks of one host, through memory that they share. Knows nothing of
//! schedules, groups or stores.
//!
//! Each rank has one segment of memory without a name (`layout`), in which it writes and its peers
//! read: a lane for each peer, with a ring of entries for headers and small payloads (`ring`) and
//! an area for long ones (`area`). The peer reduces or copies straight out of the lane, so a
//! payload is copied once on each side, or once altogether where it is reduced. No lock is ever
//! held, and no entry is seen before it is complete: a rank may be killed at any instruction.
//!
//! Two ranks find each other by a Unix socket, through which they give each other their segments
//! (`joining`). The connection stays: a byte over it wakes a rank that sleeps (`sleep`), and its
//! end is the news of a death, which no lane could tell. Segments and sockets have no names in any
//! folder, so that nothing is left of ranks that were killed.
//!
//! In the path of a message between two ranks that look for it there is no call of the system.

mod area;
pub mod board;
mod closing;
mod entry;
mod incoming;
mod joining;
mod layout;
mod memory;
mod outgoing;
mod ring;
mod side_channel;
mod sleep;
mod socket;
#[cfg(test)]
pub(super) mod tests;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::Instant;

use self::incoming::IncomingLane;
use self::joining::{Dial, STRANGER};
use self::layout::{ASLEEP, Lane, Layout};
use self::memory::{File, Mapping};
use self::outgoing::{OutgoingLane, PutOutcome};
use self::ring::CorruptRing;
use self::side_channel::{AnnouncedPools, Pools, SideChannel};
pub use self::socket::Listener;
use super::notice::{self, Notice};
use super::readiness::{Readiness, Ready, TIMER};
use super::tcp::Options;
use super::{Bell, Interest, LossReason, Payload, Rank, Sink, Transport};
use crate::generated::error::{Error, Result};
use crate::tensor::shared::Place;
use crate::wire::card::{Card, SharedMemory};
use crate::wire::frame::Header;
use crate::wire::handshake::{Hello, Token};

/// The key of the listener's events; a connection has its peer's rank.
const LISTENER: u64 = u64::MAX - 1;
/// The key of the bell that keeps a rank awake which has found something to do.
const BELL: u64 = u64::MAX - 2;
/// The system is asked for events in one turn of so many, unless somebody is about to wait or a
/// connection is being opened.
const EVENT_TURNS: u32 = 64;

/// The connections of one rank to the others on its host.
pub struct ShmTransport {
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
    bell: Bell,
    layout: Layout,
    /// This rank's segment.
    file: File,
    ours: Mapping,
    /// Where in a peer's segment the lane to this rank lies.
    inward: Lane,
    peers: Vec<Peer>,
    /// The peers whose connections stand.
    active: Vec<Rank>,
    strangers: Vec<Option<PendingConnection>>,
    notices: Vec<Notice>,
    turn: u32,
    /// Whether somebody was about to wait, so that the next turn must ask the system.
    waited: Cell<bool>,
    /// Whether a connection is being opened.
    dials: bool,
    /// Whether deadlines have changed since the timer was set.
    timer_is_stale: bool,
    ready: Vec<Ready>,
}

struct Peer {
    /// How it is reached; nothing if it is on another host.
    key: Option<SharedMemory>,
    /// Where in this rank's segment the lane to it lies.
    lane: Lane,
    outgoing: OutgoingLane,
    link: Link,
}

enum Link {
    Idle,
    Dialing(Box<Dial>),
    Open(Box<OpenConnection>),
    Lost,
}

/// A connection that stands.
struct OpenConnection {
    /// One, or two if both ranks have connected.
    wires: Vec<SideChannel>,
    /// The peer's segment.
    theirs: Mapping,
    incoming: IncomingLane,
    /// The peer's pools.
    pools: Pools,
    /// The pools of this process of which the peer knows.
    told: AnnouncedPools,
    /// Whether a socket has ended.
    ended: bool,
    /// Whether nothing more is read: this process lacks what it takes. It still writes, so that the
    /// peer hears why.
    is_deaf: bool,
}

/// A connection that has not said yet whose it is.
struct PendingConnection {
    socket: OwnedFd,
    bytes: [u8; Hello::BYTES],
    have_bytes: usize,
    /// The segment that came along.
    file: Option<OwnedFd>,
    since: Instant,
}

/// Whether the rank of `card` shares memory with the one of `ours`.
pub fn is_reached(ours: &Card, card: &Card) -> bool {
    let user = |card: &Card| card.shm.as_ref().map(|key| key.user);
    ours.host == card.host && user(ours).is_some() && user(ours) == user(card)
}

impl ShmTransport {
    /// The transport of `rank` in a group whose ranks published `cards`, one for each rank, to
    /// those of the others that [`is_reached`] says. All ranks of the group have the same `token`,
    /// and no other group has it.
    ///
    /// # Errors
    /// [`Error::Network`] if the system gives no more of something.
    pub fn new(
        listener: Listener,
        rank: Rank,
        cards: &[Card],
        token: Token,
        generation: u32,
        options: Options,
    ) -> Result<ShmTransport> {
        let size = u32::try_from(cards.len()).unwrap_or(u32::MAX);
        let Some(ours) = cards.get(rank as usize) else {
            let message = format!("rank {rank} is outside of a group of {size} ranks");
            return Err(Error::InvalidArgument { message });
        };
        // All ranks of the host count alike, and so know their lanes.
        let is_here: Vec<bool> = cards.iter().map(|card| is_reached(ours, card)).collect();
        let index = |rank: usize| is_here[..rank].iter().filter(|is_here| **is_here).count();
        let layout = Layout::new(index(cards.len()));
        let peer = |(other, card): (usize, &Card)| Peer {
            key: card.shm.clone().filter(|_| is_here[other] && other != rank as usize),
            lane: layout.lane(index(other)),
            outgoing: OutgoingLane::default(),
            link: Link::Idle,
        };
        let peers = cards.iter().enumerate().map(peer).collect();
        let bell = Bell::new()?;
        let means = SharedResources::new(&listener, &layout, &bell).map_err(|error| {
            Error::Network { message: format!("cannot make the shared memory of a group: {error}") }
        })?;
        let SharedResources { readiness, file, ours } = means;
        Ok(ShmTransport {
            hello: Hello::new(token, generation, rank, size, rank),
            options,
            process_id: std::process::id(),
            listener: Some(listener),
            accept_pause: None,
            short_since: None,
            readiness,
            bell,
            layout,
            file,
            ours,
            inward: layout.lane(index(rank as usize)),
            peers,
            active: Vec::new(),
            strangers: Vec::new(),
            notices: Vec::new(),
            turn: 0,
            waited: Cell::new(false),
            dials: false,
            timer_is_stale: false,
            ready: Vec::new(),
        })
    }
}

/// What the system gives.
struct SharedResources {
    readiness: Readiness,
    file: File,
    ours: Mapping,
}

impl SharedResources {
    fn new(
        listener: &Listener,
        layout: &Layout,
        bell: &Bell,
    ) -> std::result::Result<SharedResources, rustix::io::Errno> {
        let readiness = Readiness::new()?;
        readiness.add(listener, LISTENER, false)?;
        if let Some(interest) = bell.interest() {
            readiness.add(&interest.fd, BELL, false)?;
        }
        let file = File::new(layout.bytes())?;
        let ours = file.map()?;
        Ok(SharedResources { readiness, file, ours })
    }
}

impl Transport for ShmTransport {
    fn rank(&self) -> Rank {
        self.hello.rank
    }

    fn size(&self) -> u32 {
        self.hello.size
    }

    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        let Some(Peer { lane, outgoing, link: Link::Open(open), .. }) =
            self.peers.get_mut(peer as usize)
        else {
            return false;
        };
        match outgoing.put_short(lane, &self.ours, &header, payload) {
            Ok(true) => {
                open.wake();
                true
            }
            Ok(false) => false,
            Err(CorruptRing) => {
                self.lose(peer, incoming::garbled(CorruptRing));
                false
            }
        }
    }

    fn is_near(&self, peer: Rank) -> bool {
        self.peers.get(peer as usize).is_some_and(|peer| matches!(peer.link, Link::Open(_)))
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank(), "a frame for rank {peer}");
        let Some(Peer { lane, outgoing, link, .. }) = self.peers.get_mut(peer as usize) else {
            return;
        };
        // The header cannot lie about the bytes that follow it.
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header { payload_bytes, ..header };
        match link {
            Link::Lost => {}
            Link::Open(open) => {
                let OpenConnection { wires, told, .. } = &mut **open;
                let tell =
                    &mut |place: &Place| wires.first().is_some_and(|it| told.tell(it, place));
                match outgoing.try_put(lane, &self.ours, &header, &payload, tell) {
                    Ok(PutOutcome::Left) => {
                        open.wake();
                        self.notices.push(Notice::Sent(peer, header));
                    }
                    Ok(PutOutcome::Lent) => open.wake(),
                    Ok(PutOutcome::NoRoom) => {
                        outgoing.push(header, payload);
                        self.flush(peer);
                    }
                    Err(CorruptRing) => self.lose(peer, incoming::garbled(CorruptRing)),
                }
            }
            Link::Dialing(_) => outgoing.push(header, payload),
            Link::Idle => {
                outgoing.push(header, payload);
                self.dial(peer);
            }
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
        for place in 0..self.active.len() {
            // A peer that is lost leaves the list, and its turn falls to the next call.
            let Some(&peer) = self.active.get(place) else { break };
            if !self.peers[peer as usize].outgoing.is_done() {
                moved |= self.flush(peer);
                // What has left may be needed for what comes.
                moved |= self.tell(sink);
            }
            moved |= self.receive(peer, sink);
        }
        self.turn = self.turn.wrapping_add(1);
        if self.waited.take() || self.dials || self.turn.is_multiple_of(EVENT_TURNS) {
            moved |= self.poll(sink);
            if self.readiness.is_due() {
                self.expire();
                moved = true;
            }
        }
        moved |= self.tell(sink);
        if self.timer_is_stale {
            self.set_timer();
        }
        moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        if self.listener.is_none() {
            return;
        }
        self.waited.set(true);
        sleep::fall_asleep(&self.ours, ASLEEP);
        let has_work = |peer: &Rank| {
            let Peer { lane, outgoing, link, .. } = &self.peers[*peer as usize];
            let Link::Open(open) = link else { return false };
            (!open.is_deaf && open.incoming.is_ready(&self.inward, &open.theirs))
                || outgoing.may_go_on(lane, &self.ours)
        };
        if !self.notices.is_empty() || self.active.iter().any(has_work) {
            self.bell.ring();
        }
        interests.push(Interest { fd: self.readiness.fd(), writable: false });
    }

    fn abandon(&mut self) {
        for peer in &mut self.peers {
            peer.outgoing.abandon(&peer.lane, &self.ours);
            if let Link::Open(open) = &mut peer.link {
                open.incoming.abandon();
            }
        }
    }

    fn close(&mut self, orderly: bool) {
        self.close_all(orderly);
    }
}

impl ShmTransport {
    /// Tells `sink` what happened outside of its reach; whether there was anything.
    fn tell(&mut self, sink: &mut dyn Sink) -> bool {
        notice::tell(&mut self.notices, sink)
    }

    /// Reads what `peer` has written, for one turn.
    fn receive(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let Link::Open(open) = &mut self.peers[peer as usize].link else { return false };
        if open.is_deaf {
            return false;
        }
        let mut received = open.receive(&self.inward, peer, sink);
        if received.as_ref().is_ok_and(|received| received.is_missing) {
            // The peer told of the pool before it wrote the entry.
            received = open.hear(peer).and_then(|()| open.receive(&self.inward, peer, sink));
        }
        match received {
            Ok(received) if received.is_missing => {
                self.lose(peer, incoming::garbled(CorruptRing));
                true
            }
            Ok(received) => {
                if received.is_awaited {
                    open.wake();
                }
                if open.ended && !received.moved {
                    let why = open.incoming.cut_off();
                    self.lose(peer, why);
                    return true;
                }
                received.moved
            }
            Err(why) => {
                self.lose(peer, why);
                true
            }
        }
    }

    /// Puts what waits for `peer` into its lane, as far as there is room, and notes what it has
    /// read.
    fn flush(&mut self, peer: Rank) -> bool {
        let Peer { lane, outgoing, link: Link::Open(open), .. } = &mut self.peers[peer as usize]
        else {
            return false;
        };
        let (notices, ours) = (&mut self.notices, &self.ours);
        let mut sent = |header| notices.push(Notice::Sent(peer, header));
        let OpenConnection { wires, told, .. } = &mut **open;
        let tell = &mut |place: &Place| wires.first().is_some_and(|it| told.tell(it, place));
        // In this order: what is read after this side looked for room last is noticed later.
        let flushed = outgoing.flush(lane, ours, tell, &mut sent);
        let reaped = flushed.and_then(|moved| Ok((outgoing.reap(lane, ours, &mut sent)?, moved)));
        match reaped {
            Ok((reaped, moved)) => {
                if moved {
                    open.wake();
                }
                reaped || moved
            }
            Err(CorruptRing) => {
                self.lose(peer, incoming::garbled(CorruptRing));
                true
            }
        }
    }

    /// Asks the system what happened to the connections.
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
                BELL => {
                    self.bell.heard();
                    false
                }
                key if key >= STRANGER => self.greet(number as usize),
                _ => self.hear(number, sink),
            };
        }
        self.ready = ready;
        moved
    }

    /// Something came over a connection to `peer`: an answer, a wake-up, or its end.
    fn hear(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        match &mut self.peers[peer as usize].link {
            Link::Dialing(_) => self.hear_welcome(peer),
            Link::Open(open) if !open.is_deaf => {
                if let Err(why) = open.hear(peer) {
                    self.lose(peer, why);
                    return true;
                }
                // What it wrote before it ended, or before it woke this rank, is there now.
                self.receive(peer, sink)
            }
            Link::Idle | Link::Open(_) | Link::Lost => false,
        }
    }

    /// Gives `peer` up, once. Where the peer is not to blame, it can still be told so.
    fn lose(&mut self, peer: Rank, why: LossReason) {
        let entry = &mut self.peers[peer as usize];
        match (&mut entry.link, &why) {
            (Link::Lost, _) => return,
            (Link::Open(open), LossReason::Local(_)) => {
                open.wires.iter().for_each(|wire| self.readiness.remove(&wire.socket));
                open.is_deaf = true;
                self.notices.push(Notice::Lost(peer, why));
                return;
            }
            _ => {}
        }
        match std::mem::replace(&mut entry.link, Link::Lost) {
            Link::Open(open) => {
                open.wires.iter().for_each(|wire| self.readiness.remove(&wire.socket));
            }
            Link::Dialing(dial) => {
                dial.into_socket().iter().for_each(|socket| self.readiness.remove(socket));
            }
            Link::Idle | Link::Lost => {}
        }
        entry.outgoing.clear(&entry.lane, &self.ours);
        self.active.retain(|active| *active != peer);
        self.timer_is_stale = true;
        self.notices.push(Notice::Lost(peer, why));
    }
}

impl OpenConnection {
    fn receive(
        &mut self,
        inward: &Lane,
        peer: Rank,
        sink: &mut dyn Sink,
    ) -> std::result::Result<incoming::ReceiveProgress, LossReason> {
        let OpenConnection { theirs, incoming, pools, ended, .. } = self;
        incoming.receive(inward, theirs, pools, (peer, *ended), sink)
    }

    /// Wakes the peer if it sleeps, after something was written for it.
    fn wake(&self) {
        if sleep::must_be_woken(&self.theirs, ASLEEP)
            && let Some(wire) = self.wires.first()
        {
            wire.wake();
        }
    }

    /// Takes in what the peer has said, and notes an end.
    fn hear(&mut self, peer: Rank) -> std::result::Result<(), LossReason> {
        for wire in &mut self.wires {
            self.ended |= !wire.hear(peer, &mut self.pools)?;
        }
        Ok(())
    }
}
