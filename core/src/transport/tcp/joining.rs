//! How connections come to stand: dialling, accepting, and who wins when both sides do. Knows
//! nothing of frames.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::dial::{Dial, Outcome, Target};
use super::pending_connections::{Greeting, answer};
use super::{Connection, LISTENER, Link, Options, Peer, TcpTransport};
use crate::transport::readiness::Readiness;
use crate::transport::stream::Inbox;
use crate::transport::{LossReason, Rank, SHORTAGE_LIMIT, Transport};
use crate::wire::handshake::{Hello, Refusal};

/// Added to a peer's rank: the key of the connection that is being opened to it.
pub(super) const DIAL: u64 = 1 << 32;
/// Added to a slot: the key of a stranger's connection.
pub(super) const STRANGER: u64 = 2 << 32;
/// Most connections that one turn accepts.
const ACCEPTS: usize = 16;
/// How long no connection is accepted after the system ran out of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl TcpTransport {
    /// Begins to connect to `peer`.
    pub(super) fn dial(&mut self, peer: Rank) {
        let Peer { endpoints, is_within_host, .. } = &self.peers[peer as usize];
        let hello = Hello { target: peer, ..self.hello };
        let target = target(hello, &self.options, endpoints, *is_within_host);
        let (dial, outcome) = Dial::begin(&target, &self.readiness);
        self.peers[peer as usize].link = Link::Dialing(Box::new(dial));
        self.settle(peer, outcome);
        self.set_timer();
    }

    pub(super) fn advance_dial(&mut self, peer: Rank) -> bool {
        self.with_dial(peer, |dial, target, readiness| dial.advance(target, readiness))
    }

    /// Lets `change` go on with the connecting to `peer`, if that is under way.
    fn with_dial(
        &mut self,
        peer: Rank,
        change: impl FnOnce(&mut Dial, &Target<'_>, &Readiness) -> Outcome,
    ) -> bool {
        let entry = &mut self.peers[peer as usize];
        let Peer { endpoints, is_within_host, link: Link::Dialing(dial), .. } = entry else {
            // An event of an attempt that was given up.
            return false;
        };
        let hello = Hello { target: peer, ..self.hello };
        let target = target(hello, &self.options, endpoints, *is_within_host);
        let outcome = change(dial, &target, &self.readiness);
        self.settle(peer, outcome);
        true
    }

    fn settle(&mut self, peer: Rank, outcome: Outcome) {
        self.timer_is_stale = true;
        match outcome {
            Outcome::Pending => {}
            Outcome::Welcomed(socket) => self.open(peer, socket),
            Outcome::Hopeless(why) => self.lose(peer, why),
        }
    }

    /// The connection to `peer` stands.
    fn open(&mut self, peer: Rank, socket: OwnedFd) {
        if let Err(error) = self.readiness.modify(&socket, peer.into(), false) {
            self.lose(peer, LossReason::Died(format!("its connection cannot be watched: {error}")));
            return;
        }
        let inbox = Inbox::new();
        let connection = Connection { socket, inbox, blocked: false, write_error: None };
        let link = &mut self.peers[peer as usize].link;
        if let Link::Dialing(dial) = std::mem::replace(link, Link::Open(Box::new(connection))) {
            dial.unwatch(&self.readiness);
        }
        self.flush(peer);
    }

    /// Takes in connections of whoever comes.
    pub(super) fn accept(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                break;
            };
            match listener.accept() {
                Ok(socket) => {
                    self.short_since = None;
                    self.pending_connections
                        .admit(socket, &self.readiness, |slot| STRANGER + slot as u64);
                    self.timer_is_stale = true;
                    moved = true;
                }
                Err(error) if is_passing(error) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept TCP connections for now");
                    self.readiness.remove(listener);
                    self.accept_pause = Some(Instant::now() + ACCEPT_PAUSE);
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
        let is_missing =
            |peer: &Rank| matches!(self.peers[*peer as usize].link, Link::Idle | Link::Dialing(_));
        let own = self.rank();
        let missing = (0..self.size()).filter(|&peer| peer != own).filter(is_missing);
        let missing: Vec<Rank> = missing.collect();
        for &peer in &missing {
            self.lose(
                peer,
                LossReason::Local(format!("it cannot accept TCP connections: {error}")),
            );
        }
        !missing.is_empty()
    }

    /// Hears what the stranger in `slot` says.
    pub(super) fn greet(&mut self, slot: usize) -> bool {
        self.timer_is_stale = true;
        match self.pending_connections.read(slot, &self.readiness) {
            Greeting::None => return false,
            Greeting::Foreign(socket) => {
                answer(&socket, &self.hello, Some(Refusal::Version));
                self.readiness.remove(&socket);
            }
            Greeting::Web(socket, bytes) => {
                self.readiness.remove(&socket);
                match &mut self.web {
                    Some(web) => web.push((socket, bytes)),
                    None => {
                        tracing::debug!("closed a WebSocket: this group has no rank that wants one")
                    }
                }
            }
            Greeting::Hello(socket, hello) => match self.judge(&hello) {
                Err(refusal) => {
                    tracing::debug!(rank = hello.rank, %refusal, "refused a connection");
                    answer(&socket, &self.hello, Some(refusal));
                    self.readiness.remove(&socket);
                }
                // A connection that breaks before it is accepted is as if it had never been.
                Ok(()) if answer(&socket, &self.hello, None) => self.open(hello.rank, socket),
                Ok(()) => self.readiness.remove(&socket),
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
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.timer_is_stale = true;
        self.pending_connections.expire(now, self.options.hello_timeout, &self.readiness);
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

    pub(super) fn set_timer(&mut self) {
        self.timer_is_stale = false;
        let dials = self.peers.iter().filter_map(|peer| match &peer.link {
            Link::Dialing(dial) => dial.deadline(&self.options),
            _ => None,
        });
        let strangers = self.pending_connections.deadline(self.options.hello_timeout);
        let first = dials.chain(strangers).chain(self.accept_pause).min();
        self.readiness.wake_at(first);
    }
}

fn target<'a>(
    hello: Hello,
    options: &'a Options,
    endpoints: &'a [SocketAddr],
    is_within_host: bool,
) -> Target<'a> {
    let key = DIAL + u64::from(hello.target);
    Target { endpoints, is_within_host, hello, key, options }
}

/// Whether the failure of one accept says nothing of the next.
fn is_passing(error: Errno) -> bool {
    matches!(error, Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN)
}
