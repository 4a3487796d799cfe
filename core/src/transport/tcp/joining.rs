//! Opening connections: dialling, accepting, and which connection stays when both sides dial. Knows
//! nothing of frames.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;

use super::dial::{Dial, Outcome, Target};
use super::greeting::{self, Greeting};
use super::{Connection, Link, Listener, Peer, PeerTable, PeerTransport, Route, TcpTransport};
use crate::transport::peers::WatchedSockets;
use crate::transport::readiness::{Readiness, ReadySocket};
use crate::transport::{LossReason, Rank, Sink, Timeouts, Transport};
use crate::wire::handshake::{Hello, Refusal};

/// Added to a peer's rank: the key of the connection that is being opened to it.
const DIAL_KEY: u64 = 1 << 32;

impl PeerTransport for TcpTransport {
    fn table(&mut self) -> &mut PeerTable<TcpTransport> {
        &mut self.table
    }

    fn accept_next(listener: &Listener) -> Result<OwnedFd, Errno> {
        listener.accept()
    }

    fn handle(&mut self, event: ReadySocket, sink: &mut dyn Sink) -> bool {
        // The lower half of the key is a rank.
        let peer = event.key as Rank;
        if event.key >= DIAL_KEY {
            return self.with_dial(peer, |dial, target| dial.advance(target));
        }
        let received = event.readable && self.receive(peer, sink);
        (event.writable && self.flush(peer)) || received
    }

    fn admitted(&mut self, _: usize) {
        // The system reports when its hello has arrived.
    }

    fn greet(&mut self, slot: usize) -> bool {
        self.table.timer_is_stale = true;
        match greeting::read(&mut self.table.pending, slot, &self.table.readiness) {
            Greeting::None => return false,
            Greeting::Foreign(socket) => {
                greeting::answer(&socket, &self.table.welcome(Some(Refusal::Version)));
                self.table.readiness.remove(&socket);
            }
            Greeting::Web(socket, bytes) => {
                self.table.readiness.remove(&socket);
                match &mut self.web {
                    Some(web) => web.push((socket, bytes)),
                    None => {
                        tracing::debug!("closed a WebSocket: this group has no rank that wants one")
                    }
                }
            }
            Greeting::Hello(socket, hello) => {
                let refusal = self.judge(&hello).err();
                let has_left = greeting::answer(&socket, &self.table.welcome(refusal));
                match refusal {
                    // A connection that breaks before it is accepted is as if it had never been.
                    None if has_left => self.open(hello.rank, socket),
                    None => self.table.readiness.remove(&socket),
                    Some(refusal) => {
                        tracing::debug!(rank = hello.rank, %refusal, "refused a connection");
                        self.table.readiness.remove(&socket);
                    }
                }
            }
        }
        true
    }

    fn expire_dial(&mut self, peer: Rank, now: Instant) {
        self.with_dial(peer, |dial, target| dial.expire(target, now));
    }

    fn lose(&mut self, peer: Rank, why: LossReason) {
        let is_unexplained = matches!(why, LossReason::Died(_) | LossReason::Unreachable(_));
        // A reset loses what was under way, perhaps the reason, which a third rank may know then.
        // So may one know what a peer said that was never connected to.
        let all_arrived = self.table.peers.len() == 2
            || matches!(&self.table.peers[peer as usize].link, Link::Open(it) if it.is_read);
        if self.table.lose(peer, why) {
            self.table.peers[peer as usize].queue.clear();
            self.busy = self.busy.filter(|busy| *busy != peer);
            if is_unexplained {
                self.table.examine(peer, all_arrived);
            }
        }
    }
}

impl TcpTransport {
    /// Begins to connect to `peer`.
    pub(super) fn dial(&mut self, peer: Rank) {
        let PeerTable { hello, timeouts, readiness, peers, .. } = &mut self.table;
        let Peer { route, link, .. } = &mut peers[peer as usize];
        let target = target(Hello { target: peer, ..*hello }, route, timeouts, readiness);
        let (dial, outcome) = Dial::begin(&target);
        *link = Link::Dialing(Box::new(dial));
        self.settle(peer, outcome);
        self.table.set_timer();
    }

    /// Calls `change` with the attempts to connect to `peer`, if there are any.
    fn with_dial(
        &mut self,
        peer: Rank,
        change: impl FnOnce(&mut Dial, &Target<'_>) -> Outcome,
    ) -> bool {
        let PeerTable { hello, timeouts, readiness, peers, .. } = &mut self.table;
        let Peer { route, link: Link::Dialing(dial), .. } = &mut peers[peer as usize] else {
            // The event belongs to an attempt that was given up.
            return false;
        };
        let target = target(Hello { target: peer, ..*hello }, route, timeouts, readiness);
        let outcome = change(dial, &target);
        self.settle(peer, outcome);
        true
    }

    fn settle(&mut self, peer: Rank, outcome: Outcome) {
        self.table.timer_is_stale = true;
        match outcome {
            Outcome::Refused(why) if self.table.has_ended(peer) => {
                self.lose(peer, LossReason::Unreachable(why));
            }
            Outcome::Pending | Outcome::Refused(_) => {}
            Outcome::Welcomed(socket) => self.open(peer, socket),
            Outcome::Hopeless(why) => self.lose(peer, why),
        }
    }

    /// The connection to `peer` is open.
    fn open(&mut self, peer: Rank, socket: OwnedFd) {
        if let Err(error) = self.table.readiness.modify(&socket, peer.into(), false) {
            self.lose(peer, LossReason::Died(format!("its connection cannot be watched: {error}")));
            return;
        }
        self.table.readiness.watch_end(&socket);
        let connection = Connection::new(socket);
        if let Link::Dialing(dial) = self.table.open(peer, connection) {
            dial.unwatch(&self.table.readiness);
        }
        self.flush(peer);
    }

    /// Whether the sender of `hello` is a peer without a connection yet.
    fn judge(&self, hello: &Hello) -> std::result::Result<(), Refusal> {
        hello.check(&self.table.hello)?;
        match &self.table.peers[hello.rank as usize].link {
            Link::Idle => Ok(()),
            Link::Dialing(dial) if dial.hello_has_left() && self.rank() < hello.rank => {
                Err(Refusal::Crossing)
            }
            Link::Dialing(_) => Ok(()),
            Link::Open(_) => Err(Refusal::Connected),
            Link::Lost => Err(Refusal::Lost),
        }
    }
}

fn target<'a>(
    hello: Hello,
    route: &'a Route,
    timeouts: &'a Timeouts,
    readiness: &'a Readiness,
) -> Target<'a> {
    Target { route, hello, key: DIAL_KEY + u64::from(hello.target), timeouts, readiness }
}
