//! Opening connections between the ranks of a host, and exchanging their shared memory. Knows
//! nothing of frames.
//!
//! The first rank with something to send connects, which on one host succeeds immediately or never,
//! and sends its hello together with its segment; the answer brings the other's. If both connect at
//! once, one connection stays (`crossing`): it carries nothing but wake-ups, pools and the news of
//! an end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::attach::PeerMemory;
use super::incoming::IncomingLane;
use super::memory::{File, Mapping};
use super::ring::SharedMemory;
use super::side_channel::{
    AnnouncedPools, CROSSED, Pools, SideChannel, missing_file_reason, not_mapped,
};
use super::socket::{self, SocketRead};
use super::{Link, Listener, OpenConnection, PeerTable, PeerTransport, ShmTransport};
use crate::transport::notice::Notice;
use crate::transport::peers::{DialAttempt, WatchedSockets};
use crate::transport::readiness::{Readiness, ReadySocket};
use crate::transport::{LossReason, Rank, Sink, Timeouts};
use crate::wire::handshake::{Hello, Refusal, Welcome};

/// How long to wait before the next attempt after the system lacked resources.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Most connections between two ranks: one that each opened.
const MAX_SOCKETS: usize = 2;

/// A rank's attempt to reach another.
pub(in crate::transport) struct Dial {
    since: Instant,
    stage: Stage,
}

enum Stage {
    /// The other's queue of connections is full.
    Pausing { until: Instant },
    /// The hello has left.
    Greeting {
        socket: OwnedFd,
        bytes: [u8; Welcome::BYTES],
        have_bytes: usize,
        file: Option<OwnedFd>,
    },
}

impl Dial {
    /// The connection, if the hello has left.
    pub(super) fn into_socket(self) -> Option<OwnedFd> {
        match self.stage {
            Stage::Greeting { socket, .. } => Some(socket),
            Stage::Pausing { .. } => None,
        }
    }

    /// Bytes of the answer that have not come.
    fn missing_bytes(&self) -> usize {
        match self.stage {
            Stage::Greeting { have_bytes, .. } => Welcome::BYTES - have_bytes,
            Stage::Pausing { .. } => 0,
        }
    }
}

impl WatchedSockets for Dial {
    fn unwatch(&self, readiness: &Readiness) {
        if let Stage::Greeting { socket, .. } = &self.stage {
            readiness.remove(socket);
        }
    }
}

impl DialAttempt for Dial {
    fn deadline(&self, _: &Timeouts) -> Option<Instant> {
        match self.stage {
            Stage::Pausing { until } => Some(until),
            Stage::Greeting { .. } => None,
        }
    }
}

impl PeerTransport for ShmTransport {
    fn table(&mut self) -> &mut PeerTable<ShmTransport> {
        &mut self.table
    }

    fn accept_next(listener: &Listener) -> Result<OwnedFd, Errno> {
        listener.accept()
    }

    /// Handles what came over a connection: an answer, a wake-up, or its end.
    fn handle(&mut self, event: ReadySocket, sink: &mut dyn Sink) -> bool {
        let peer = event.key as Rank;
        match &mut self.table.peers[peer as usize].link {
            Link::Dialing(_) => self.hear_welcome(peer),
            Link::Open(open) if !open.is_deaf => {
                if let Err(why) = open.receive_messages(peer) {
                    self.lose(peer, why);
                    return true;
                }
                self.settle(peer);
                // What it wrote before it ended, or before it woke this rank, is there now.
                self.receive(peer, sink)
            }
            Link::Idle | Link::Open(_) | Link::Lost => false,
        }
    }

    fn admitted(&mut self, slot: usize) {
        // Its hello left together with the connection.
        self.greet(slot);
    }

    fn greet(&mut self, slot: usize) -> bool {
        let Some(pending) = self.table.pending.get_mut(slot) else { return false };
        match socket::receive(&pending.socket, &mut pending.bytes[pending.have_bytes..]) {
            SocketRead::Nothing => return false,
            SocketRead::End => {
                self.table.pending.forget(slot, &self.table.readiness);
                return true;
            }
            SocketRead::Bytes(bytes, file) => {
                pending.have_bytes += bytes;
                pending.attachment = pending.attachment.take().or(file);
            }
        }
        if pending.have_bytes < Hello::BYTES {
            return true;
        }
        let Some(pending) = self.table.pending.take(slot) else { return true };
        self.table.timer_is_stale = true;
        match Hello::decode(&pending.bytes) {
            Ok(hello) => match self.judge(&hello) {
                Ok(()) => {
                    self.welcome(hello.rank, pending.socket, pending.attachment);
                    return true;
                }
                Err(refusal) => {
                    tracing::debug!(rank = hello.rank, %refusal, "refused a connection");
                    self.refuse(&pending.socket, refusal);
                }
            },
            Err(error) => tracing::debug!(%error, "closed a connection of a stranger"),
        }
        self.table.readiness.remove(&pending.socket);
        true
    }

    /// A peer whose system has taken the connection lives; it answers when it comes to its first
    /// operation, and operations that wait for that have limits of their own. If it dies, the
    /// connection ends.
    fn expire_dial(&mut self, peer: Rank, now: Instant) {
        let Some((since, deadline)) = self.retry(peer) else { return };
        if now < deadline {
            return;
        }
        self.attempt(peer, since, now);
        if now >= since + self.table.timeouts.connect_timeout && self.retry(peer).is_some() {
            let why = "its queue of connections on this host stays full".to_owned();
            self.lose(peer, LossReason::Unreachable(why));
        }
    }

    /// Where the peer is not to blame, it can still be told so.
    fn lose(&mut self, peer: Rank, why: LossReason) {
        let PeerTable { peers, notices, readiness, .. } = &mut self.table;
        if let (Link::Open(open), LossReason::Local(_)) = (&mut peers[peer as usize].link, &why) {
            open.unwatch(readiness);
            open.is_deaf = true;
            notices.push(Notice::Lost(peer, why));
            return;
        }
        let (is_unexplained, all_arrived) = match &peers[peer as usize].link {
            Link::Open(open) => {
                (matches!(why, LossReason::Died(_)) && !open.has_broken_group(), true)
            }
            // What it said to others, this rank could not hear.
            Link::Idle | Link::Dialing(_) => (matches!(why, LossReason::Unreachable(_)), false),
            Link::Lost => (false, false),
        };
        if self.table.lose(peer, why) {
            if is_unexplained {
                self.table.examine(peer, all_arrived);
            }
            let entry = &mut self.table.peers[peer as usize];
            entry.queue.clear(&entry.route.lane, &self.ours);
        }
    }
}

impl ShmTransport {
    /// Begins to connect to `peer`.
    pub(super) fn dial(&mut self, peer: Rank) {
        let now = Instant::now();
        self.attempt(peer, now, now);
        self.table.set_timer();
    }

    /// Since when `peer` is dialled, and when that has to be tried again, if it has to be.
    fn retry(&self, peer: Rank) -> Option<(Instant, Instant)> {
        let Link::Dialing(dial) = &self.table.peers[peer as usize].link else { return None };
        Some((dial.since, dial.deadline(&self.table.timeouts)?))
    }

    fn attempt(&mut self, peer: Rank, since: Instant, now: Instant) {
        let hello = Hello { target: peer, ..self.table.hello };
        let Some(key) = &self.table.peers[peer as usize].route.key else {
            self.lose(peer, LossReason::Unreachable("it is on another host".to_owned()));
            return;
        };
        let greeted = socket::reach(key).and_then(|socket| {
            socket::send(&socket, &hello.encode(), self.file.as_ref())?;
            self.table.readiness.add(&socket, peer.into(), false)?;
            Ok(socket)
        });
        let stage = match greeted {
            Ok(socket) => {
                let bytes = [0; Welcome::BYTES];
                Stage::Greeting { socket, bytes, have_bytes: 0, file: None }
            }
            Err(Errno::AGAIN) => Stage::Pausing { until: now + RETRY_PAUSE },
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                let why = format!("it cannot connect to rank {peer} on this host: {error}");
                self.lose(peer, LossReason::Local(why));
                return;
            }
            // It listened before it published its address, so it is gone now.
            Err(error) => {
                self.lose(
                    peer,
                    LossReason::Unreachable(format!("its socket on this host: {error}")),
                );
                return;
            }
        };
        self.table.peers[peer as usize].link = Link::Dialing(Box::new(Dial { since, stage }));
    }

    /// Reads the answer of a peer.
    fn hear_welcome(&mut self, peer: Rank) -> bool {
        let Link::Dialing(dial) = &mut self.table.peers[peer as usize].link else { return false };
        let Stage::Greeting { socket, bytes, have_bytes, file } = &mut dial.stage else {
            return false;
        };
        match socket::receive(socket, &mut bytes[*have_bytes..]) {
            SocketRead::Nothing => return false,
            SocketRead::End => {
                let why = "it closed the connection on this host".to_owned();
                self.lose(peer, LossReason::Unreachable(why));
                return true;
            }
            SocketRead::Bytes(bytes, brought) => {
                *have_bytes += bytes;
                *file = file.take().or(brought);
            }
        }
        if *have_bytes < Welcome::BYTES {
            return true;
        }
        let (welcome, file) = (Welcome::decode(bytes), file.take());
        let unreachable = |why: String| Err(LossReason::Unreachable(why));
        let opened = match (welcome, file) {
            (Ok(Welcome { refusal: Some(refusal), .. }), _) => unreachable(refusal.to_string()),
            (Ok(welcome), _) if welcome.rank != peer => {
                unreachable("another rank answers there".to_owned())
            }
            (Ok(_), file) => self.examine(peer, file),
            (Err(error), _) => unreachable(error.to_string()),
        };
        let link = std::mem::replace(&mut self.table.peers[peer as usize].link, Link::Idle);
        match (opened, link) {
            (Ok(theirs), Link::Dialing(dial)) => {
                let channels =
                    dial.into_socket().into_iter().map(|socket| SideChannel::own(socket, 0));
                self.open(peer, channels.collect(), theirs);
                // Whether a second connection comes is known from here on.
                self.hear_messages(peer);
            }
            (Err(why), link) => {
                self.table.peers[peer as usize].link = link;
                self.lose(peer, why);
            }
            // It was dialling above.
            (Ok(_), _) => {}
        }
        true
    }

    /// The segment that a peer brought, if it brought one.
    fn examine(&self, peer: Rank, file: Option<OwnedFd>) -> Result<Mapping, LossReason> {
        let file = file.ok_or_else(|| {
            let why = "it offers no shared memory".to_owned();
            missing_file_reason(peer, LossReason::Unreachable(why))
        })?;
        let file = File::from_peer(file, self.layout.bytes()).map_err(LossReason::Unreachable)?;
        file.map().map_err(|error| not_mapped(peer, error))
    }

    fn open(&mut self, peer: Rank, channels: Vec<SideChannel>, theirs: Mapping) {
        let memory = channels.first().and_then(|it| PeerMemory::of(&it.socket, &theirs));
        theirs.store(self.inward.attached, u64::from(memory.is_some()));
        // If there are two, they end together.
        if let Some(channel) = channels.first() {
            self.table.readiness.watch_end(&channel.socket);
        }
        let open = OpenConnection {
            channels,
            theirs,
            memory,
            incoming: IncomingLane::new(&self.known_prices),
            pools: Pools::default(),
            announced: AnnouncedPools::default(),
            ended: false,
            has_had_two: false,
            is_deaf: false,
        };
        self.table.open(peer, open);
        self.flush(peer);
    }

    /// Whether the sender of `hello` is a peer whose connection is missing.
    fn judge(&self, hello: &Hello) -> Result<(), Refusal> {
        hello.check(&self.table.hello)?;
        let peer = &self.table.peers[hello.rank as usize];
        match &peer.link {
            _ if peer.route.key.is_none() => Err(Refusal::Rank),
            Link::Idle | Link::Dialing(_) => Ok(()),
            Link::Open(open) if open.channels.len() < MAX_SOCKETS => Ok(()),
            Link::Open(_) => Err(Refusal::Connected),
            Link::Lost => Err(Refusal::Lost),
        }
    }

    /// Accepts the connection of `peer`, and what it brought.
    fn welcome(&mut self, peer: Rank, socket: OwnedFd, file: Option<OwnedFd>) {
        let watched = self.table.readiness.modify(&socket, peer.into(), false);
        // A connection that breaks before it is accepted is as if it had never been.
        let is_crossed = match &self.table.peers[peer as usize].link {
            Link::Dialing(dial) => matches!(dial.stage, Stage::Greeting { .. }),
            Link::Idle | Link::Open(_) | Link::Lost => false,
        };
        let accept = |this: &Self| watched.is_ok() && this.accept(&socket, is_crossed);
        if let Link::Open(_) = self.table.peers[peer as usize].link {
            let accepted = accept(self);
            match &mut self.table.peers[peer as usize].link {
                Link::Open(open) if accepted => open.channels.push(SideChannel::new(socket)),
                _ => self.table.readiness.remove(&socket),
            }
            self.settle(peer);
            return;
        }
        let theirs = match self.examine(peer, file) {
            Ok(theirs) => theirs,
            Err(why) => {
                tracing::warn!(rank = peer, ?why, "closed a connection of this host");
                self.table.readiness.remove(&socket);
                // Only this rank knows that it is not the peer's fault.
                if let LossReason::Local(_) = why {
                    self.lose(peer, why);
                }
                return;
            }
        };
        if !accept(self) {
            self.table.readiness.remove(&socket);
            return;
        }
        let mut channels = vec![SideChannel::new(socket)];
        match std::mem::replace(&mut self.table.peers[peer as usize].link, Link::Idle) {
            Link::Dialing(dial) => {
                // The rest of the answer is still on its way.
                let missing = dial.missing_bytes();
                channels.extend(dial.into_socket().map(|socket| SideChannel::own(socket, missing)));
            }
            Link::Idle | Link::Open(_) | Link::Lost => {}
        }
        self.open(peer, channels, theirs);
    }

    /// Reads the messages of `peer`, which has just answered.
    fn hear_messages(&mut self, peer: Rank) {
        let Link::Open(open) = &mut self.table.peers[peer as usize].link else { return };
        match open.receive_messages(peer) {
            Ok(()) => self.settle(peer),
            Err(why) => self.lose(peer, why),
        }
    }

    /// Refuses a connection.
    fn refuse(&self, socket: &OwnedFd, refusal: Refusal) {
        // Whoever connected may be gone.
        let _ = socket::send(socket, &self.table.welcome(Some(refusal)), None);
    }

    /// Answers a hello, with this rank's segment, and says whether this rank has connected to the
    /// peer, too; whether the answer has left.
    fn accept(&self, socket: &OwnedFd, is_crossed: bool) -> bool {
        let mut answer = self.table.welcome(None).to_vec();
        answer.extend(is_crossed.then_some(CROSSED));
        socket::send(socket, &answer, self.file.as_ref()).is_ok()
    }
}
