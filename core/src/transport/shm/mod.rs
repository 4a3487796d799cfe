//! Frames between the ranks of one host, through memory that they share. Knows nothing of
//! schedules, groups or stores.
//!
//! Each rank has one segment of memory without a name (`layout`), in which it writes and its peers
//! read: a lane for each peer, with a ring of entries for headers and small payloads (`ring`) and
//! an area for long ones (`area`). The peer reduces or copies straight out of the lane, so a
//! payload is copied once on each side, or once altogether where it is reduced. No lock is ever
//! held, and no entry is seen before it is complete: a rank may be killed at any instruction.
//!
//! A long payload can stay where it is (`lending`): in a pool of memory that the peer maps
//! (`side_channel`), or in any memory, which the system reads for the peer (`attach`).
//!
//! Two ranks connect through a Unix socket, over which they give each other their segments
//! (`joining`). The connection stays open: a byte over it wakes a rank that sleeps (`sleep`), and
//! its end shows that a rank died, which no lane could. Segments and sockets have no names in any
//! folder, so ranks that were killed leave nothing behind.
//!
//! A message between two ranks that are polling takes no system call.

mod area;
mod attach;
pub mod board;
mod closing;
mod crossing;
mod entry;
mod incoming;
mod joining;
mod layout;
mod lending;
mod memory;
mod outgoing;
mod prices;
mod ready;
mod ring;
mod side_channel;
mod sleep;
mod socket;
#[cfg(test)]
pub(super) mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{Shutdown, shutdown};

use self::attach::PeerMemory;
use self::incoming::IncomingLane;
use self::joining::Dial;
use self::layout::{ASLEEP, BROKEN, Lane, Layout};
pub use self::lending::LendingThresholds;
use self::memory::{File, Mapping};
use self::outgoing::{OutgoingLane, PutOutcome};
use self::prices::LanePrices;
use self::ring::{CorruptRing, SharedMemory as _};
use self::side_channel::{AnnouncedPools, Pools, SideChannel};
pub use self::socket::Listener;
use super::notice::Notice;
use super::peers::{Link, Medium, Peer, PeerTable, PeerTransport, WatchedSockets};
use super::readiness::Readiness;
use super::{Interest, LossReason, Membership, Payload, Rank, Sink, Timeouts, Transport};
use crate::generated::error::{Error, Result};
use crate::price::KnownPrices;
use crate::tensor::shared::Pool;
use crate::wire::card::{Card, SharedMemory};
use crate::wire::frame::Header;

/// The system is asked for events in one turn of this many, unless a thread is about to wait or a
/// connection is being opened.
const EVENT_TURNS: u32 = 64;

/// The connections of one rank to the others on its host.
pub struct ShmTransport {
    table: PeerTable<ShmTransport>,
    /// What keeps a rank awake that has found something to do.
    ready: Arc<OwnedFd>,
    layout: Layout,
    /// This rank's segment, until all peers have it.
    file: Option<File>,
    ours: Mapping,
    /// Where in a peer's segment the lane to this rank lies.
    inward: Lane,
    /// What the system has read from the memory of a peer, to be reduced.
    attach_scratch: Vec<u8>,
    /// What copies cost in an earlier group.
    known_prices: LanePrices,
}

impl Medium for ShmTransport {
    type Route = Route;
    type Queue = OutgoingLane;
    type Dial = Dial;
    type Connection = OpenConnection;
    type Listener = Listener;
    /// The segment.
    type Attachment = Option<OwnedFd>;

    const CONNECTION: &'static str = "connection of this host";
    const CONNECTIONS: &'static str = "connections of this host";
    const MAX_PENDING: usize = 64;

    fn is_reached(route: &Route) -> bool {
        route.key.is_some()
    }
}

/// How a peer is reached.
pub(in crate::transport) struct Route {
    /// The name of its socket; nothing if it is on another host.
    key: Option<SharedMemory>,
    /// Where in this rank's segment the lane to it lies.
    lane: Lane,
}

/// An open connection.
pub(in crate::transport) struct OpenConnection {
    /// One, or two if both ranks have connected.
    channels: Vec<SideChannel>,
    /// The peer's segment.
    theirs: Mapping,
    /// The peer's own memory, if this rank may read it.
    memory: Option<PeerMemory>,
    incoming: IncomingLane,
    /// The peer's pools.
    pools: Pools,
    /// The pools of this process that the peer knows.
    announced: AnnouncedPools,
    /// Whether a socket has ended.
    ended: bool,
    /// Whether both ranks had connected.
    has_had_two: bool,
    /// Whether nothing more is read, because this process lacks resources. It still writes, so that
    /// the peer learns why.
    is_deaf: bool,
}

/// Whether the rank of `card` shares memory with the one of `ours`.
pub fn is_reached(ours: &Card, card: &Card) -> bool {
    let user = |card: &Card| card.shm.as_ref().map(|key| key.user);
    ours.host == card.host && user(ours).is_some() && user(ours) == user(card)
}

impl ShmTransport {
    /// The transport of a rank to those of its group that [`is_reached`] says.
    ///
    /// # Errors
    /// [`Error::Network`] if the system has no more of a resource.
    pub fn new(
        listener: Listener,
        membership: Membership<'_>,
        timeouts: Timeouts,
        lending: LendingThresholds,
    ) -> Result<ShmTransport> {
        let hello = membership.hello(membership.size()?);
        let Membership { rank, cards, .. } = membership;
        let ours = &cards[rank as usize];
        // All ranks of the host count alike, and so know their lanes.
        let is_here: Vec<bool> = cards.iter().map(|card| is_reached(ours, card)).collect();
        let index = |rank: usize| is_here[..rank].iter().filter(|is_here| **is_here).count();
        let layout = Layout::new(index(cards.len()));
        let peer = |(other, card): (usize, &Card)| {
            let key = card.shm.clone().filter(|_| is_here[other] && other != rank as usize);
            let route = Route { key, lane: layout.lane(index(other)) };
            Peer::new(route, OutgoingLane::new(lending)).of_process(card, ours)
        };
        let peers = cards.iter().enumerate().map(peer).collect();
        let share = || {
            let table = PeerTable::new(listener, hello, timeouts, peers)?;
            let file = File::new(layout.bytes())?;
            let ours = file.map()?;
            Ok((table, file, ours, ready::descriptor()?))
        };
        let shared = share().map_err(|error: rustix::io::Errno| Error::Network {
            message: format!("cannot make the shared memory of a group: {error}"),
        });
        let (table, file, ours, ready) = shared?;
        let file = Some(file);
        attach::sign(&ours)?;
        let inward = layout.lane(index(rank as usize));
        let (attach_scratch, known_prices) = (Vec::new(), LanePrices::default());
        Ok(ShmTransport { table, ready, layout, file, ours, inward, attach_scratch, known_prices })
    }
}

impl Transport for ShmTransport {
    fn rank(&self) -> Rank {
        self.table.hello.rank
    }

    fn size(&self) -> u32 {
        self.table.hello.size
    }

    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        let Some(Peer { route, queue, link: Link::Open(open), .. }) =
            self.table.peers.get_mut(peer as usize)
        else {
            return false;
        };
        match queue.put_short(&route.lane, &self.ours, &header, payload) {
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
        let peer = self.table.peers.get(peer as usize);
        peer.is_some_and(|peer| matches!(peer.link, Link::Open(_)))
    }

    fn process_of(&self, peer: Rank) -> Option<u32> {
        let Link::Open(open) = &self.table.peers.get(peer as usize)?.link else { return None };
        attach::process_at(&open.channels.first()?.socket)
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        debug_assert!(peer < self.size() && peer != self.rank(), "a frame for rank {peer}");
        let PeerTable { peers, notices, .. } = &mut self.table;
        let Some(Peer { route, queue, link, .. }) = peers.get_mut(peer as usize) else {
            return;
        };
        // The header cannot lie about the bytes that follow it.
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header { payload_bytes, ..header };
        match link {
            Link::Lost => {}
            Link::Open(open) => {
                let OpenConnection { channels, announced, .. } = &mut **open;
                let announce = &mut |pool: &Arc<Pool>| {
                    channels.first().is_some_and(|channel| announced.announce(channel, pool))
                };
                match queue.try_put(&route.lane, &self.ours, &header, &payload, announce) {
                    Ok(PutOutcome::Left) => {
                        open.wake();
                        notices.push(Notice::Sent(peer, header));
                    }
                    Ok(PutOutcome::Lent) => open.wake(),
                    Ok(PutOutcome::NoRoom) => {
                        queue.push(header, payload);
                        self.flush(peer);
                    }
                    Err(CorruptRing) => self.lose(peer, incoming::garbled(CorruptRing)),
                }
            }
            Link::Dialing(_) => queue.push(header, payload),
            Link::Idle => {
                queue.push(header, payload);
                self.dial(peer);
            }
        }
    }

    fn connect(&mut self, peer: Rank) {
        if self.table.may_dial(peer) {
            self.dial(peer);
        }
    }

    fn is_joining(&self) -> bool {
        self.table.is_accepting() && self.has_unsettled()
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let Ok(mut moved) = self.table.begin_turn(sink) else { return false };
        for place in 0..self.table.active.len() {
            // A peer that is lost leaves the list, and its turn falls to the next call.
            let Some(&peer) = self.table.active.get(place) else { break };
            if !self.table.peers[peer as usize].queue.is_done() {
                moved |= self.flush(peer);
                // What has left may be needed for what comes.
                moved |= self.table.tell(sink);
            }
            moved |= self.receive(peer, sink);
        }
        if self.table.next_turn(EVENT_TURNS) || self.table.is_dialing {
            moved |= self.poll(sink);
            self.finish_joining();
            moved |= self.expire();
        }
        self.end_turn(sink) || moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        if self.table.is_closed() {
            return;
        }
        self.table.note_waiting();
        sleep::fall_asleep(&self.ours, ASLEEP);
        let has_work = |peer: &Rank| {
            let Peer { route, queue, link, .. } = &self.table.peers[*peer as usize];
            let Link::Open(open) = link else { return false };
            (!open.is_deaf && open.incoming.is_ready(&self.inward, &open.theirs))
                || queue.may_proceed(&route.lane, &self.ours)
        };
        if !self.table.notices.is_empty() || self.table.active.iter().any(has_work) {
            interests.push(Interest { fd: self.ready.clone(), writable: false });
        }
        interests.push(Interest { fd: self.table.readiness.fd(), writable: false });
    }

    fn begin_with(&mut self, known: &KnownPrices) {
        self.known_prices = LanePrices::of(known);
        for Peer { route, queue, .. } in &mut self.table.peers {
            queue.begin_with(&self.known_prices, &route.lane, &self.ours);
        }
    }

    fn add_prices(&self, known: &mut KnownPrices) {
        let lane =
            |peer: &Peer<ShmTransport>| peer.queue.known_prices(&peer.route.lane, &self.ours);
        let lanes: Vec<LanePrices> = self.table.peers.iter().map(lane).collect();
        LanePrices::add_to(&lanes, known);
    }

    fn deadline(&self) -> Option<Instant> {
        self.table.readiness.deadline()
    }

    fn release_idle_memory(&mut self) {
        for peer in &mut self.table.peers {
            peer.queue.release_area(&peer.route.lane, &self.ours);
        }
    }

    fn disconnect(&mut self, peer: Rank) -> bool {
        let Some(Link::Open(open)) = self.table.peers.get(peer as usize).map(|peer| &peer.link)
        else {
            return false;
        };
        let cut = |channel: &SideChannel| shutdown(&channel.socket, Shutdown::Both).is_ok();
        let is_cut = open.channels.iter().all(cut);
        // The memory would serve on, until somebody looks at the sockets.
        let why = "its connection ended without a goodbye: closed".to_owned();
        self.lose(peer, LossReason::Died(why));
        is_cut
    }

    fn abandon(&mut self) {
        self.ours.store(BROKEN, 1);
        for peer in &mut self.table.peers {
            peer.queue.abandon(&peer.route.lane, &self.ours);
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
    /// Reads what `peer` has written, for one turn.
    fn receive(&mut self, peer: Rank, sink: &mut dyn Sink) -> bool {
        let Link::Open(open) = &mut self.table.peers[peer as usize].link else { return false };
        if open.is_deaf {
            return false;
        }
        let scratch = &mut self.attach_scratch;
        let mut received = open.receive(&self.inward, peer, scratch, sink);
        if received.as_ref().is_ok_and(|received| received.is_missing) {
            // The peer told of the pool before it wrote the entry.
            received = open
                .receive_messages(peer)
                .and_then(|()| open.receive(&self.inward, peer, scratch, sink));
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
        let (PeerTable { peers, notices, .. }, ours) = (&mut self.table, &self.ours);
        let Peer { route, queue, link: Link::Open(open), .. } = &mut peers[peer as usize] else {
            return false;
        };
        let mut sent = |header| notices.push(Notice::Sent(peer, header));
        let OpenConnection { channels, announced, .. } = &mut **open;
        let announce = &mut |pool: &Arc<Pool>| {
            channels.first().is_some_and(|channel| announced.announce(channel, pool))
        };
        // In this order: what the peer reads after this side last looked for room is noticed later.
        let flushed = queue.flush(&route.lane, ours, announce, &mut sent);
        let reaped =
            flushed.and_then(|moved| Ok((queue.reap(&route.lane, ours, &mut sent)?, moved)));
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
}

impl WatchedSockets for OpenConnection {
    fn unwatch(&self, readiness: &Readiness) {
        self.channels.iter().for_each(|channel| readiness.remove(&channel.socket));
    }
}

impl OpenConnection {
    fn receive(
        &mut self,
        inward: &Lane,
        peer: Rank,
        scratch: &mut Vec<u8>,
        sink: &mut dyn Sink,
    ) -> std::result::Result<incoming::ReceiveProgress, LossReason> {
        let OpenConnection { theirs, memory, incoming, pools, ended, .. } = self;
        let lender = incoming::Lender { pools, memory: memory.as_ref(), scratch };
        incoming.receive(inward, theirs, lender, (peer, *ended), sink)
    }

    /// Wakes the peer if it sleeps, after something was written for it.
    fn wake(&self) {
        if sleep::must_be_woken(&self.theirs, ASLEEP)
            && let Some(channel) = self.channels.first()
        {
            channel.wake();
        }
    }

    /// Whether the peer has broken the group: it, or who was told by it, knows why better than the
    /// end of its process shows.
    fn has_broken_group(&self) -> bool {
        self.theirs.load(BROKEN) != 0
    }

    /// Receives the peer's messages, and notes an end.
    fn receive_messages(&mut self, peer: Rank) -> std::result::Result<(), LossReason> {
        for channel in self.channels.iter_mut().filter(|channel| !channel.is_over()) {
            self.ended |= !channel.receive(peer, &mut self.pools)?;
        }
        Ok(())
    }
}
