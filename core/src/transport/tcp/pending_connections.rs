//! Connections that came in and have not said yet who they are. Their number, their bytes and their
//! time are bounded, so a stranger costs nobody else anything. Knows nothing of frames.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::transport::readiness::Readiness;
use crate::wire::handshake::{HandshakeError, Hello, Refusal, Welcome, check_prefix};

/// Most connections that wait for their hello. One more takes the place of the oldest: ranks say
/// hello immediately, and one that was put out tries again.
pub(super) const STRANGERS: usize = 128;

/// How a request to open a WebSocket begins.
const WEB: &[u8] = b"GET ";

/// The connections without a name.
#[derive(Default)]
pub(super) struct PendingConnections {
    slots: Vec<Option<PendingConnection>>,
}

struct PendingConnection {
    socket: OwnedFd,
    bytes: [u8; Hello::BYTES],
    have_bytes: usize,
    since: Instant,
}

/// What came of reading from a stranger.
pub(super) enum Greeting {
    /// Nothing yet, or the connection is gone.
    None,
    /// It said who it is, and is not a stranger any more.
    Hello(OwnedFd, Hello),
    /// It is a rank of another version of the protocol.
    Foreign(OwnedFd),
    /// It begins as a WebSocket does, with these bytes.
    Web(OwnedFd, Vec<u8>),
}

impl PendingConnections {
    /// Takes in a new connection; its events get the key `key_of(slot)`.
    pub(super) fn admit(
        &mut self,
        socket: OwnedFd,
        readiness: &Readiness,
        key_of: impl Fn(usize) -> u64,
    ) {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < STRANGERS => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => self.oldest().unwrap_or(0),
        };
        self.forget(slot, readiness);
        if let Err(error) = readiness.add(&socket, key_of(slot), false) {
            tracing::debug!(%error, "cannot watch an incoming TCP connection");
            return;
        }
        let since = Instant::now();
        let bytes = [0; Hello::BYTES];
        self.slots[slot] = Some(PendingConnection { socket, bytes, have_bytes: 0, since });
    }

    /// Reads what the stranger in `slot` says; never more than its hello.
    pub(super) fn read(&mut self, slot: usize, readiness: &Readiness) -> Greeting {
        let Some(Some(stranger)) = self.slots.get_mut(slot) else {
            return Greeting::None;
        };
        let room = &mut stranger.bytes[stranger.have_bytes..];
        match recv(&stranger.socket, room, RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return Greeting::None,
            Ok((bytes, _)) if bytes > 0 => stranger.have_bytes += bytes,
            Ok(_) | Err(_) => {
                self.forget(slot, readiness);
                return Greeting::None;
            }
        }
        let bytes = &stranger.bytes[..stranger.have_bytes];
        if bytes.len() < WEB.len() && WEB.starts_with(bytes) {
            return Greeting::None;
        }
        if bytes.starts_with(WEB) {
            let bytes = bytes.to_vec();
            return match self.slots[slot].take() {
                Some(stranger) => Greeting::Web(stranger.socket, bytes),
                None => Greeting::None,
            };
        }
        let hello = check_prefix(bytes).and_then(|_| Hello::decode(bytes));
        if hello == Err(HandshakeError::Short) {
            return Greeting::None;
        }
        let Some(stranger) = self.slots[slot].take() else {
            return Greeting::None;
        };
        match hello {
            Ok(hello) => Greeting::Hello(stranger.socket, hello),
            Err(HandshakeError::Version { .. }) => Greeting::Foreign(stranger.socket),
            Err(error) => {
                tracing::debug!(%error, "closed a connection of a stranger");
                readiness.remove(&stranger.socket);
                Greeting::None
            }
        }
    }

    /// Drops those who have been silent for `timeout`.
    pub(super) fn expire(&mut self, now: Instant, timeout: Duration, readiness: &Readiness) {
        let is_late = |stranger: &PendingConnection| now >= stranger.since + timeout;
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(is_late) {
                self.forget(slot, readiness);
            }
        }
    }

    /// When the first of them will have been silent for `timeout`.
    pub(super) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.slots.iter().flatten().map(|stranger| stranger.since + timeout).min()
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Drops the one in `slot`, if there is one.
    fn forget(&mut self, slot: usize, readiness: &Readiness) {
        if let Some(stranger) = self.slots[slot].take() {
            readiness.remove(&stranger.socket);
        }
    }

    fn oldest(&self) -> Option<usize> {
        let slots = self.slots.iter().enumerate();
        let taken = slots.filter_map(|(slot, taken)| Some((taken.as_ref()?.since, slot)));
        taken.min().map(|(_, slot)| slot)
    }
}

/// Tells the other side whether it is accepted; false if that could not be sent.
pub(super) fn answer(socket: &OwnedFd, ours: &Hello, refusal: Option<Refusal>) -> bool {
    let &Hello { version, rank, generation, .. } = ours;
    let welcome = Welcome { version, rank, generation, refusal }.encode();
    // A connection over which nothing was sent yet has room for it.
    send(socket, &welcome, SendFlags::NOSIGNAL) == Ok(welcome.len())
}
