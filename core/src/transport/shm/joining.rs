//! How connections between the ranks of a host come to stand, and with them their shared memory.
//! Knows nothing of frames.
//!
//! Whoever first has something to say connects, which on one host succeeds immediately or never,
//! and sends its hello together with its segment; the answer brings the other's. If both connect at
//! once, both connections stay: they carry nothing but wake-ups and the news of an end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::incoming::IncomingLane;
use super::memory::{File, Mapping};
use super::side_channel::{AnnouncedPools, Pools, SideChannel, not_brought, not_mapped};
use super::socket::{self, SocketRead};
use super::{LISTENER, Link, OpenConnection, Peer, PendingConnection, ShmTransport};
use crate::transport::{LossReason, Rank, SHORTAGE_LIMIT, Transport};
use crate::wire::handshake::{Hello, Refusal, Welcome};

/// Added to a slot: the key of a stranger's connection.
pub(super) const STRANGER: u64 = 1 << 32;
/// Most connections that wait for their hello, which comes immediately. One more takes the place of
/// the oldest.
const STRANGERS: usize = 64;
/// Most connections that one turn accepts.
const ACCEPTS: usize = 16;
/// How long nothing is tried after the system had no room.
const PAUSE: Duration = Duration::from_millis(5);
/// Most connections between two ranks: one that each opened.
const SOCKETS: usize = 2;

/// A rank's attempt to reach another.
pub(super) struct Dial {
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

    /// When it has to be tried again; none while only the peer can go on.
    fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Pausing { until } => Some(until),
            Stage::Greeting { .. } => None,
        }
    }
}

impl ShmTransport {
    /// Begins to connect to `peer`.
    pub(super) fn dial(&mut self, peer: Rank) {
        let now = Instant::now();
        self.attempt(peer, now, now);
        self.set_timer();
    }

    fn attempt(&mut self, peer: Rank, since: Instant, now: Instant) {
        let hello = Hello { target: peer, ..self.hello };
        let Some(key) = &self.peers[peer as usize].key else {
            self.lose(peer, LossReason::Unreachable("it is on another host".to_owned()));
            return;
        };
        let greeted = socket::reach(key).and_then(|socket| {
            socket::tell(&socket, &hello.encode(), Some(&self.file))?;
            self.readiness.add(&socket, peer.into(), false)?;
            Ok(socket)
        });
        let stage = match greeted {
            Ok(socket) => {
                let bytes = [0; Welcome::BYTES];
                Stage::Greeting { socket, bytes, have_bytes: 0, file: None }
            }
            Err(Errno::AGAIN) => Stage::Pausing { until: now + PAUSE },
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                let why = format!("it cannot connect to rank {peer} on this host: {error}");
                self.lose(peer, LossReason::Local(why));
                return;
            }
            // It listened before it said where, so that it is gone.
            Err(error) => {
                self.lose(
                    peer,
                    LossReason::Unreachable(format!("its socket on this host: {error}")),
                );
                return;
            }
        };
        self.peers[peer as usize].link = Link::Dialing(Box::new(Dial { since, stage }));
    }

    /// Reads the answer of a peer.
    pub(super) fn hear_welcome(&mut self, peer: Rank) -> bool {
        let Link::Dialing(dial) = &mut self.peers[peer as usize].link else { return false };
        let Stage::Greeting { socket, bytes, have_bytes, file } = &mut dial.stage else {
            return false;
        };
        match socket::hear(socket, &mut bytes[*have_bytes..]) {
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
        let link = std::mem::replace(&mut self.peers[peer as usize].link, Link::Idle);
        match (opened, link) {
            (Ok(theirs), Link::Dialing(dial)) => {
                let wires =
                    dial.into_socket().into_iter().map(|socket| SideChannel::new(socket, 0));
                self.open(peer, wires.collect(), theirs);
            }
            (Err(why), link) => {
                self.peers[peer as usize].link = link;
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
            not_brought(peer, LossReason::Unreachable("it offers no shared memory".to_owned()))
        })?;
        let file = File::from_peer(file, self.layout.bytes()).map_err(LossReason::Unreachable)?;
        file.map().map_err(|error| not_mapped(peer, error))
    }

    fn open(&mut self, peer: Rank, wires: Vec<SideChannel>, theirs: Mapping) {
        let open = OpenConnection {
            wires,
            theirs,
            incoming: IncomingLane::default(),
            pools: Pools::default(),
            told: AnnouncedPools::default(),
            ended: false,
            is_deaf: false,
        };
        self.peers[peer as usize].link = Link::Open(Box::new(open));
        self.active.push(peer);
        self.timer_is_stale = true;
        self.flush(peer);
    }

    /// Takes in connections of whoever comes.
    pub(super) fn accept(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { break };
            match listener.accept() {
                Ok(socket) => {
                    self.short_since = None;
                    self.admit(socket);
                    moved = true;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections of this host for now");
                    self.readiness.remove(listener);
                    self.accept_pause = Some(Instant::now() + 20 * PAUSE);
                    self.timer_is_stale = true;
                    moved |= self.give_up_accepting(error);
                    break;
                }
            }
        }
        moved
    }

    /// Gives up the peers whose connections are missing, one of which waits, after
    /// [`SHORTAGE_LIMIT`] in which no connection could be accepted for `error`. Whether the time
    /// was up.
    fn give_up_accepting(&mut self, error: Errno) -> bool {
        let now = Instant::now();
        if now < *self.short_since.get_or_insert(now) + SHORTAGE_LIMIT {
            return false;
        }
        let is_missing = |peer: &Rank| {
            let Peer { key, link, .. } = &self.peers[*peer as usize];
            key.is_some() && matches!(link, Link::Idle | Link::Dialing(_))
        };
        let missing: Vec<Rank> = (0..self.size()).filter(is_missing).collect();
        for &peer in &missing {
            let why = format!("it cannot accept connections of this host: {error}");
            self.lose(peer, LossReason::Local(why));
        }
        !missing.is_empty()
    }

    fn admit(&mut self, socket: OwnedFd) {
        let slots = &mut self.strangers;
        let slot = match slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if slots.len() < STRANGERS => {
                slots.push(None);
                slots.len() - 1
            }
            None => {
                let since =
                    |slot: &Option<PendingConnection>| slot.as_ref().map(|stranger| stranger.since);
                (0..slots.len()).min_by_key(|slot| since(&slots[*slot])).unwrap_or(0)
            }
        };
        self.forget(slot);
        if let Err(error) = self.readiness.add(&socket, STRANGER + slot as u64, false) {
            tracing::debug!(%error, "cannot watch an incoming connection of this host");
            return;
        }
        let stranger = PendingConnection {
            socket,
            bytes: [0; Hello::BYTES],
            have_bytes: 0,
            file: None,
            since: Instant::now(),
        };
        self.strangers[slot] = Some(stranger);
        self.timer_is_stale = true;
        // Its hello left together with the connection.
        self.greet(slot);
    }

    /// Drops the stranger in `slot`, if there is one.
    fn forget(&mut self, slot: usize) {
        if let Some(stranger) = self.strangers[slot].take() {
            self.readiness.remove(&stranger.socket);
        }
    }

    /// Hears what the stranger in `slot` says.
    pub(super) fn greet(&mut self, slot: usize) -> bool {
        let Some(Some(stranger)) = self.strangers.get_mut(slot) else { return false };
        match socket::hear(&stranger.socket, &mut stranger.bytes[stranger.have_bytes..]) {
            SocketRead::Nothing => return false,
            SocketRead::End => {
                self.forget(slot);
                return true;
            }
            SocketRead::Bytes(bytes, file) => {
                stranger.have_bytes += bytes;
                stranger.file = stranger.file.take().or(file);
            }
        }
        if stranger.have_bytes < Hello::BYTES {
            return true;
        }
        let Some(PendingConnection { socket, bytes, file, .. }) = self.strangers[slot].take()
        else {
            return true;
        };
        self.timer_is_stale = true;
        match Hello::decode(&bytes) {
            Ok(hello) => match self.judge(&hello) {
                Ok(()) => {
                    self.welcome(hello.rank, socket, file);
                    return true;
                }
                Err(refusal) => {
                    tracing::debug!(rank = hello.rank, %refusal, "refused a connection");
                    self.answer(&socket, Some(refusal));
                }
            },
            Err(error) => tracing::debug!(%error, "closed a connection of a stranger"),
        }
        self.readiness.remove(&socket);
        true
    }

    /// Whether the sender of `hello` is a peer whose connection is missing.
    fn judge(&self, hello: &Hello) -> Result<(), Refusal> {
        hello.check(&self.hello)?;
        let peer = &self.peers[hello.rank as usize];
        match &peer.link {
            _ if peer.key.is_none() => Err(Refusal::Rank),
            Link::Idle | Link::Dialing(_) => Ok(()),
            Link::Open(open) if open.wires.len() < SOCKETS => Ok(()),
            Link::Open(_) => Err(Refusal::Connected),
            Link::Lost => Err(Refusal::Lost),
        }
    }

    /// Accepts the connection of `peer`, and what it brought.
    fn welcome(&mut self, peer: Rank, socket: OwnedFd, file: Option<OwnedFd>) {
        let watched = self.readiness.modify(&socket, peer.into(), false);
        if let Link::Open(open) = &mut self.peers[peer as usize].link {
            // A connection that breaks before it is accepted is as if it had never been.
            if watched.is_ok() && answer(&socket, &self.hello, None, Some(&self.file)) {
                open.wires.push(SideChannel::new(socket, 0));
            } else {
                self.readiness.remove(&socket);
            }
            return;
        }
        let theirs = match self.examine(peer, file) {
            Ok(theirs) => theirs,
            Err(why) => {
                tracing::warn!(rank = peer, ?why, "closed a connection of this host");
                self.readiness.remove(&socket);
                // Nobody else knows that it is not the peer's fault.
                if let LossReason::Local(_) = why {
                    self.lose(peer, why);
                }
                return;
            }
        };
        if watched.is_err() || !answer(&socket, &self.hello, None, Some(&self.file)) {
            self.readiness.remove(&socket);
            return;
        }
        let mut wires = vec![SideChannel::new(socket, 0)];
        match std::mem::replace(&mut self.peers[peer as usize].link, Link::Idle) {
            Link::Dialing(dial) => {
                // The rest of the answer is still on its way.
                let missing = dial.missing_bytes();
                wires.extend(dial.into_socket().map(|socket| SideChannel::new(socket, missing)));
            }
            Link::Idle | Link::Open(_) | Link::Lost => {}
        }
        self.open(peer, wires, theirs);
    }

    fn answer(&self, socket: &OwnedFd, refusal: Option<Refusal>) {
        answer(socket, &self.hello, refusal, None);
    }

    /// Does what is due.
    ///
    /// A peer whose system has taken the connection lives; it answers when it comes to its first
    /// operation, and whoever waits for that has a limit of its own. If it dies, the connection
    /// ends.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.timer_is_stale = true;
        let hello_timeout = self.options.hello_timeout;
        let is_late = |stranger: &PendingConnection| now >= stranger.since + hello_timeout;
        for slot in 0..self.strangers.len() {
            if self.strangers[slot].as_ref().is_some_and(is_late) {
                self.forget(slot);
            }
        }
        if let (Some(pause), Some(listener)) = (self.accept_pause, &self.listener)
            && now >= pause
        {
            let watched = self.readiness.add(listener, LISTENER, false);
            self.accept_pause = watched.err().map(|_| now + 20 * PAUSE);
        }
        for peer in 0..self.size() {
            let Link::Dialing(dial) = &self.peers[peer as usize].link else { continue };
            let since = dial.since;
            if dial.deadline().is_none_or(|deadline| now < deadline) {
                continue;
            }
            self.attempt(peer, since, now);
            let is_late = now >= since + self.options.connect_timeout;
            if let Link::Dialing(dial) = &self.peers[peer as usize].link
                && is_late
                && dial.deadline().is_some()
            {
                let why = "its queue of connections on this host stays full".to_owned();
                self.lose(peer, LossReason::Unreachable(why));
            }
        }
    }

    pub(super) fn set_timer(&mut self) {
        self.timer_is_stale = false;
        self.dials = self.peers.iter().any(|peer| matches!(peer.link, Link::Dialing(_)));
        let dials = self.peers.iter().filter_map(|peer| match &peer.link {
            Link::Dialing(dial) => dial.deadline(),
            _ => None,
        });
        let strangers = self.strangers.iter().flatten();
        let strangers = strangers.map(|stranger| stranger.since + self.options.hello_timeout);
        let first = dials.chain(strangers).chain(self.accept_pause).min();
        self.readiness.wake_at(first);
    }
}

/// Answers a hello; whether the answer has left.
fn answer(socket: &OwnedFd, ours: &Hello, refusal: Option<Refusal>, file: Option<&File>) -> bool {
    let welcome =
        Welcome { version: ours.version, rank: ours.rank, generation: ours.generation, refusal };
    socket::tell(socket, &welcome.encode(), file).is_ok()
}
