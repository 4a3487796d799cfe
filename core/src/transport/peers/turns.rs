//! What a transport does with its peers in a turn, besides moving frames: events of the system,
//! connections that come in, deadlines. Knows nothing of frames.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use super::table::{LISTENER_KEY, Medium, PENDING_KEY, PROCESS_KEY, PeerTable};
use crate::transport::readiness::ReadySocket;
use crate::transport::{LossReason, Rank, Sink};

/// Most connections that one turn accepts.
const MAX_ACCEPTS: usize = 16;

/// A transport whose peers are in a [`PeerTable`].
pub(in crate::transport) trait PeerTransport: Medium + Sized {
    fn table(&mut self) -> &mut PeerTable<Self>;

    /// The next connection that came in, if one waits.
    fn accept_next(listener: &Self::Listener) -> Result<OwnedFd, Errno>;

    /// Something happened to a connection to a peer.
    fn handle(&mut self, event: ReadySocket, sink: &mut dyn Sink) -> bool;

    /// A connection came in, and waits for its hello in `slot`.
    fn admitted(&mut self, slot: usize);

    /// Reads from the connection in `slot`, which may send its hello.
    fn greet(&mut self, slot: usize) -> bool;

    /// Continues with connecting to `peer`, if that is under way and due at `now`.
    fn expire_dial(&mut self, peer: Rank, now: Instant);

    /// Gives `peer` up, once.
    fn lose(&mut self, peer: Rank, why: LossReason);

    /// Asks the system what happened to the connections, and continues with them.
    fn poll(&mut self, sink: &mut dyn Sink) -> bool {
        let table = self.table();
        let mut ready = std::mem::take(&mut table.ready);
        table.readiness.poll(&mut ready);
        let mut moved = false;
        for event in &ready {
            moved |= match event.key {
                LISTENER_KEY => self.accept(),
                // The lower half of the key is the slot.
                key if is_of(PENDING_KEY, key) => self.greet(key as u32 as usize),
                key if is_of(PROCESS_KEY, key) => {
                    self.table().process_ended(key as Rank);
                    true
                }
                _ => self.handle(*event, sink),
            };
        }
        self.table().ready = ready;
        moved
    }

    /// Accepts the connections that came.
    fn accept(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..MAX_ACCEPTS {
            let table = self.table();
            let Some(listener) = &table.listener else { break };
            match Self::accept_next(listener) {
                Ok(socket) => {
                    moved = true;
                    if let Some(slot) = table.admit(socket) {
                        self.admitted(slot);
                    }
                }
                Err(error) if is_passing(error) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept {} for now", Self::CONNECTIONS);
                    let is_over = table.pause_accepting();
                    moved |= is_over && self.give_up_accepting(error);
                    break;
                }
            }
        }
        moved
    }

    /// Gives up the peers whose connections are missing, because no connection can be accepted for
    /// `error`, and one of theirs may be waiting. Returns whether there was any.
    fn give_up_accepting(&mut self, error: Errno) -> bool {
        let missing = self.table().missing();
        for &peer in &missing {
            let why = format!("it cannot accept {}: {error}", Self::CONNECTIONS);
            self.lose(peer, LossReason::Local(why));
        }
        !missing.is_empty()
    }

    /// Does what is due. Returns whether anything was.
    fn expire(&mut self) -> bool {
        if !self.table().readiness.is_due() {
            return false;
        }
        let now = Instant::now();
        self.table().expire(now);
        for peer in 0..self.table().hello.size {
            self.expire_dial(peer, now);
        }
        true
    }

    /// Notifies `sink` what happened in the turn. Returns whether there was anything.
    fn end_turn(&mut self, sink: &mut dyn Sink) -> bool {
        let table = self.table();
        let moved = table.tell(sink);
        if table.timer_is_stale {
            table.set_timer();
        }
        moved
    }
}

/// Whether `key` is the sum of `kind` and a slot or a rank.
fn is_of(kind: u64, key: u64) -> bool {
    key & !u64::from(u32::MAX) == kind
}

/// Whether the next accept may succeed although one failed with this error.
fn is_passing(error: Errno) -> bool {
    matches!(error, Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN)
}
