//! Two ranks that connect to each other at once have two connections: how they agree on one, and
//! when a rank has all that it will get. Knows nothing of frames.
//!
//! The connection of the lower rank stays. Each rank that has both says over the other one that
//! this was its last message there, and closes it when the peer has said the same, so that no
//! message is lost on the way. A rank that accepts a connection while its own attempt is under way
//! says so with its answer: the peer then knows that a second connection comes.

use super::{Link, OpenConnection, ShmTransport};
use crate::transport::Rank;
use crate::transport::readiness::Readiness;

impl OpenConnection {
    /// Does what there is to do about a second connection to the peer, of which this rank
    /// `keeps_own`.
    fn settle(&mut self, keeps_own: bool, readiness: &Readiness) {
        // What a peer has not accepted, it may never be able to.
        if self.channels.len() < 2 || self.channels.iter().any(|it| it.is_unanswered()) {
            return;
        }
        self.has_had_two = true;
        if self.channels[0].is_own != keeps_own {
            self.channels.swap(0, 1);
        }
        let spare = &mut self.channels[1];
        spare.say_last();
        if spare.is_over() {
            readiness.remove(&spare.socket);
            self.channels.truncate(1);
            readiness.watch_end(&self.channels[0].socket);
        }
    }

    /// Whether no connection to the peer will come or go any more.
    fn is_settled(&self) -> bool {
        match &self.channels[..] {
            [only] => self.has_had_two || !only.has_heard_crossing(),
            _ => false,
        }
    }
}

impl ShmTransport {
    /// Does what there is to do about a second connection to `peer`.
    pub(super) fn settle(&mut self, peer: Rank) {
        let keeps_own = self.table.hello.rank < peer;
        if let Link::Open(open) = &mut self.table.peers[peer as usize].link {
            open.settle(keeps_own, &self.table.readiness);
        }
    }

    /// Whether a connection to a peer is being opened, or a second one closed.
    pub(super) fn has_unsettled(&self) -> bool {
        self.table.peers.iter().any(|peer| match &peer.link {
            Link::Open(open) => !open.is_settled(),
            Link::Dialing(_) => true,
            Link::Idle | Link::Lost => false,
        })
    }

    /// Closes what only ranks need that still connect, once none does.
    pub(super) fn finish_joining(&mut self) {
        if !self.table.is_accepting() {
            return;
        }
        let is_done = self.table.peers.iter().all(|peer| match &peer.link {
            Link::Open(open) => open.is_settled(),
            Link::Lost => true,
            Link::Idle | Link::Dialing(_) => peer.route.key.is_none(),
        });
        if is_done {
            self.table.stop_accepting();
            self.file = None;
        }
    }
}
