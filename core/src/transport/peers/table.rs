//! The table of a group's ranks, with the state of one transport for each: how the rank is reached,
//! the frames that wait for it, and its link. Knows nothing of what a transport does with them.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::pending_connections::PendingConnections;
use super::process::ProcessCheck;
use crate::transport::notice::{self, Notice};
use crate::transport::readiness::{Readiness, ReadySocket};
use crate::transport::{LossReason, Rank, SHORTAGE_LIMIT, Sink, Timeouts};
use crate::wire::card::Card;
use crate::wire::handshake::{Hello, Refusal, Welcome};

/// The key of the listener's events; a connection has its peer's rank.
pub(super) const LISTENER_KEY: u64 = u64::MAX - 1;
/// Added to a slot: the key of a connection that has not sent its hello yet.
pub(super) const PENDING_KEY: u64 = 2 << 32;
/// Added to a peer's rank: the key of the descriptor of its process, see [`PeerTable::examine`].
pub(super) const PROCESS_KEY: u64 = 3 << 32;
/// How long no connection is accepted after the system lacked resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The parts of a transport's links.
pub(in crate::transport) trait Medium {
    /// How a peer is reached.
    type Route;
    /// The frames that wait to leave for a peer.
    type Queue;
    /// The attempts to connect to a peer.
    type Dial: DialAttempt;
    /// An open connection.
    type Connection: WatchedSockets;
    /// The socket that accepts connections.
    type Listener: AsFd;
    /// What may come along with a hello.
    type Attachment: Default;

    /// The word for a connection in messages.
    const CONNECTION: &'static str;
    /// The word for several connections in messages.
    const CONNECTIONS: &'static str;
    /// Most connections that wait for their hello.
    const MAX_PENDING: usize;

    /// Whether this transport leads to a peer with this route.
    fn is_reached(route: &Self::Route) -> bool;
}

/// Owns sockets that are watched.
pub(in crate::transport) trait WatchedSockets {
    /// Removes the sockets from `readiness`, before they are closed.
    fn unwatch(&self, readiness: &Readiness);
}

/// The attempts to connect to a peer.
pub(in crate::transport) trait DialAttempt: WatchedSockets {
    /// When this rank has to continue with them; none while only the peer can.
    fn deadline(&self, timeouts: &Timeouts) -> Option<Instant>;
}

/// One rank of the group. This rank has an entry, too, which is not used.
pub(in crate::transport) struct Peer<M: Medium> {
    pub(in crate::transport) route: M::Route,
    pub(in crate::transport) queue: M::Queue,
    pub(in crate::transport) link: Link<M::Dial, M::Connection>,
    /// The number of its process, if this rank can ask the system for it.
    process_id: Option<u32>,
}

/// How far this rank and a peer have come.
pub(in crate::transport) enum Link<Dial, Connection> {
    Idle,
    Dialing(Box<Dial>),
    Open(Box<Connection>),
    Lost,
}

impl<M: Medium> Peer<M> {
    /// A peer that was not connected to.
    pub(in crate::transport) fn new(route: M::Route, queue: M::Queue) -> Peer<M> {
        Peer { route, queue, link: Link::Idle, process_id: None }
    }

    /// As this, for the rank of `card`, seen from that of `ours`.
    #[must_use]
    pub(in crate::transport) fn of_process(self, card: &Card, ours: &Card) -> Peer<M> {
        Peer { process_id: card.process_known_to(ours), ..self }
    }
}

/// A peer that was lost while its process ran.
struct EndingPeer {
    peer: Rank,
    /// Readable when the process has ended.
    process: OwnedFd,
    /// Whether all that it had sent has arrived.
    all_arrived: bool,
}

/// The error of a turn after the transport was closed.
pub(in crate::transport) struct TransportClosed;

/// The peers of one rank, and the system's side of the links to them.
pub(in crate::transport) struct PeerTable<M: Medium> {
    /// This rank's hello; `target` is filled in for each peer.
    pub(in crate::transport) hello: Hello,
    pub(in crate::transport) timeouts: Timeouts,
    /// The process that made it; a forked child must not send in its name.
    pub(in crate::transport) process_id: u32,
    is_closed: bool,
    /// Where others connect; nothing once none of them will any more.
    pub(in crate::transport) listener: Option<M::Listener>,
    /// Until when no connection is accepted, because the system lacked resources.
    accept_pause: Option<Instant>,
    /// Since when the system lacked resources for a connection.
    short_since: Option<Instant>,
    pub(in crate::transport) readiness: Readiness,
    /// By rank.
    pub(in crate::transport) peers: Vec<Peer<M>>,
    /// The peers with open connections.
    pub(in crate::transport) active: Vec<Rank>,
    /// Whether a connection is being opened, as of the last time that the timer was set.
    pub(in crate::transport) is_dialing: bool,
    pub(in crate::transport) pending: PendingConnections<M::Attachment>,
    pub(in crate::transport) notices: Vec<Notice>,
    /// Peers that were lost while their processes ran.
    ending: Vec<EndingPeer>,
    turn: u32,
    /// Whether a thread was about to wait, so that the next turn must ask the system.
    waited: Cell<bool>,
    /// Whether deadlines have changed since the timer was set.
    pub(in crate::transport) timer_is_stale: bool,
    /// Memory for the events of one turn.
    pub(super) ready: Vec<ReadySocket>,
}

impl<M: Medium> PeerTable<M> {
    /// The table of the rank that says `hello`, whose connections come in at `listener`.
    ///
    /// # Errors
    /// The system's error if it cannot watch sockets.
    pub(in crate::transport) fn new(
        listener: M::Listener,
        hello: Hello,
        timeouts: Timeouts,
        peers: Vec<Peer<M>>,
    ) -> Result<PeerTable<M>, Errno> {
        let readiness = Readiness::new()?;
        readiness.add(&listener, LISTENER_KEY, false)?;
        Ok(PeerTable {
            hello,
            timeouts,
            process_id: std::process::id(),
            is_closed: false,
            listener: Some(listener),
            accept_pause: None,
            short_since: None,
            readiness,
            peers,
            active: Vec::new(),
            is_dialing: false,
            pending: PendingConnections::new(M::MAX_PENDING),
            notices: Vec::new(),
            ending: Vec::new(),
            turn: 0,
            waited: Cell::new(false),
            timer_is_stale: false,
            ready: Vec::new(),
        })
    }

    /// Whether the transport was closed.
    pub(in crate::transport) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether others may still connect.
    pub(in crate::transport) fn is_accepting(&self) -> bool {
        self.listener.is_some()
    }

    /// Accepts no connections any more: all that were to come are there.
    pub(in crate::transport) fn stop_accepting(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.readiness.remove(listener);
            self.pending.forget_all(&self.readiness);
            self.accept_pause = None;
            self.timer_is_stale = true;
        }
    }

    /// Whether there is no connection to `peer` or attempt to open one, and this rank can dial it.
    pub(in crate::transport) fn may_dial(&self, peer: Rank) -> bool {
        let is_idle =
            self.peers.get(peer as usize).is_some_and(|peer| matches!(peer.link, Link::Idle));
        is_idle && peer != self.hello.rank && !self.is_closed()
    }

    /// Notifies `sink` what happened since the last turn. Returns whether there was anything.
    pub(in crate::transport) fn begin_turn(
        &mut self,
        sink: &mut dyn Sink,
    ) -> Result<bool, TransportClosed> {
        if self.is_closed() { Err(TransportClosed) } else { Ok(self.tell(sink)) }
    }

    /// Notifies `sink` what happened while it was not at hand. Returns whether there was anything.
    pub(in crate::transport) fn tell(&mut self, sink: &mut dyn Sink) -> bool {
        notice::tell(&mut self.notices, sink)
    }

    /// Notes that a thread is about to wait.
    pub(in crate::transport) fn note_waiting(&self) {
        self.waited.set(true);
    }

    /// Counts one more turn. Returns whether the system must be asked for events in it: in one of
    /// `turns`, and after a thread was about to wait.
    pub(in crate::transport) fn next_turn(&mut self, turns: u32) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.waited.take() || self.turn.is_multiple_of(turns)
    }

    /// Notes that the connection to `peer` is open. Returns the link's state before.
    pub(in crate::transport) fn open(
        &mut self,
        peer: Rank,
        connection: M::Connection,
    ) -> Link<M::Dial, M::Connection> {
        self.active.push(peer);
        self.timer_is_stale = true;
        let link = &mut self.peers[peer as usize].link;
        std::mem::replace(link, Link::Open(Box::new(connection)))
    }

    /// Gives `peer` up; false if it was given up before.
    pub(in crate::transport) fn lose(&mut self, peer: Rank, why: LossReason) -> bool {
        match std::mem::replace(&mut self.peers[peer as usize].link, Link::Lost) {
            Link::Lost => return false,
            Link::Open(connection) => connection.unwatch(&self.readiness),
            Link::Dialing(dial) => dial.unwatch(&self.readiness),
            Link::Idle => {}
        }
        self.active.retain(|active| *active != peer);
        self.timer_is_stale = true;
        self.notices.push(Notice::Lost(peer, why));
        true
    }

    /// Has the sink notified once the process of `peer` has ended, which was lost without a
    /// goodbye; `all_arrived` says that all that it had sent was read. Where this rank cannot ask
    /// for it, the sink hears that at least.
    pub(in crate::transport) fn examine(&mut self, peer: Rank, all_arrived: bool) {
        let process_id = self.peers[peer as usize].process_id;
        match process_id.map_or(ProcessCheck::Unknown, ProcessCheck::of) {
            ProcessCheck::Ended => self.notices.push(Notice::ProcessEnded(peer, all_arrived)),
            ProcessCheck::Runs(process) => {
                let key = PROCESS_KEY + u64::from(peer);
                if self.readiness.add(&process, key, false).is_ok() {
                    self.ending.push(EndingPeer { peer, process, all_arrived });
                }
            }
            ProcessCheck::Unknown if all_arrived => {
                self.notices.push(Notice::EndedInSilence(peer));
            }
            ProcessCheck::Unknown => {}
        }
    }

    /// Whether the process of `peer` is known to have ended.
    pub(in crate::transport) fn has_ended(&self, peer: Rank) -> bool {
        let process_id = self.peers[peer as usize].process_id;
        matches!(process_id.map(ProcessCheck::of), Some(ProcessCheck::Ended))
    }

    /// The process of `peer`, which was lost before, has ended.
    pub(super) fn process_ended(&mut self, peer: Rank) {
        let Some(place) = self.ending.iter().position(|it| it.peer == peer) else { return };
        let EndingPeer { process, all_arrived, .. } = self.ending.swap_remove(place);
        self.readiness.remove(process);
        self.notices.push(Notice::ProcessEnded(peer, all_arrived));
    }

    /// The peers whose connections are missing.
    pub(super) fn missing(&self) -> Vec<Rank> {
        let is_missing = |peer: &Rank| {
            let Peer { route, link, .. } = &self.peers[*peer as usize];
            M::is_reached(route) && matches!(link, Link::Idle | Link::Dialing(_))
        };
        let others = (0..self.hello.size).filter(|peer| *peer != self.hello.rank);
        others.filter(is_missing).collect()
    }

    /// Adds an accepted connection to those that wait for their hello, and returns its slot.
    pub(super) fn admit(&mut self, socket: OwnedFd) -> Option<usize> {
        self.short_since = None;
        match self.pending.admit(socket, &self.readiness, PENDING_KEY) {
            Ok(slot) => {
                self.timer_is_stale = true;
                Some(slot)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot watch an incoming {}", M::CONNECTION);
                None
            }
        }
    }

    /// Accepts no connections for a while, because the system lacks resources. Returns whether that
    /// has been so for [`SHORTAGE_LIMIT`].
    pub(super) fn pause_accepting(&mut self) -> bool {
        let now = Instant::now();
        if let Some(listener) = &self.listener {
            self.readiness.remove(listener);
        }
        self.accept_pause = Some(now + ACCEPT_PAUSE);
        self.timer_is_stale = true;
        now >= *self.short_since.get_or_insert(now) + SHORTAGE_LIMIT
    }

    /// Drops connections that were silent for too long, and accepts others again when it is time.
    pub(super) fn expire(&mut self, now: Instant) {
        self.timer_is_stale = true;
        self.pending.expire(now, self.timeouts.hello_timeout, &self.readiness);
        if let (Some(pause), Some(listener)) = (self.accept_pause, &self.listener)
            && now >= pause
        {
            let watched = self.readiness.add(listener, LISTENER_KEY, false);
            self.accept_pause = watched.err().map(|_| now + ACCEPT_PAUSE);
        }
    }

    /// Sets the timer, so that a thread that waits wakes when something is due.
    pub(in crate::transport) fn set_timer(&mut self) {
        self.timer_is_stale = false;
        let dials = self.peers.iter().filter_map(|peer| match &peer.link {
            Link::Dialing(dial) => Some(dial.deadline(&self.timeouts)),
            _ => None,
        });
        self.is_dialing = dials.clone().next().is_some();
        let pending = self.pending.deadline(self.timeouts.hello_timeout);
        let first = dials.flatten().chain(pending).chain(self.accept_pause).min();
        self.readiness.wake_at(first);
    }

    /// Stops accepting, and drops the notices that were not delivered; false if that was done
    /// before. The links stay, for the caller to close.
    pub(in crate::transport) fn close(&mut self) -> bool {
        self.pending.clear();
        self.notices.clear();
        self.active.clear();
        self.ending.clear();
        self.listener = None;
        !std::mem::replace(&mut self.is_closed, true)
    }

    /// Whether this is a forked child: the parent process continues with the connections.
    pub(in crate::transport) fn is_inherited(&self) -> bool {
        self.process_id != std::process::id()
    }

    /// This rank's answer to a hello.
    pub(in crate::transport) fn welcome(&self, refusal: Option<Refusal>) -> [u8; Welcome::BYTES] {
        let Hello { version, rank, generation, .. } = self.hello;
        Welcome { version, rank, generation, refusal }.encode()
    }
}
