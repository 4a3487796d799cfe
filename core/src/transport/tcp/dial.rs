//! One rank's attempts to connect to another, up to the welcome. Knows nothing of frames.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::Route;
use super::listener::{prefer_within_host, set_options};
use crate::fork;
use crate::transport::peers::{DialAttempt, WatchedSockets};
use crate::transport::readiness::Readiness;
use crate::transport::{LossReason, SHORTAGE_LIMIT, Timeouts};
use crate::wire::handshake::{Hello, Refusal, Welcome};

/// How long one endpoint may take to answer if there are others to try.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Why a loopback address of another host cannot be reached.
const WRONG_INTERFACE: &str = "that is the loopback interface of another host; POLYRANK_IFNAME, \
    on that host, names one that leads to the others";

/// The attempts to reach one peer.
pub(in crate::transport) struct Dial {
    /// When they began, or when this rank checked them again.
    since: Instant,
    /// Since when every attempt was refused: no process listens there, or another one does.
    refused_since: Option<Instant>,
    /// Since when the system lacked resources for a connection.
    short_since: Option<Instant>,
    attempts: u32,
    stage: Stage,
    why: String,
}

enum Stage {
    Pausing {
        until: Instant,
    },
    Connecting {
        socket: OwnedFd,
        until: Instant,
    },
    /// The hello has left.
    Greeting {
        socket: OwnedFd,
        bytes: [u8; Welcome::BYTES],
        have_bytes: usize,
    },
}

/// The state of the attempts after a call.
pub(super) enum Outcome {
    /// Nothing yet.
    Pending,
    /// All endpoints refused, for this reason; they will be tried again.
    Refused(String),
    /// The peer accepted this connection.
    Welcomed(OwnedFd),
    /// The peer cannot be reached, for this reason.
    Hopeless(LossReason),
}

/// The peer to reach, and what is needed for that.
pub(super) struct Target<'a> {
    pub(super) route: &'a Route,
    pub(super) hello: Hello,
    /// Key of the connection's events.
    pub(super) key: u64,
    pub(super) timeouts: &'a Timeouts,
    pub(super) readiness: &'a Readiness,
}

impl WatchedSockets for Dial {
    fn unwatch(&self, readiness: &Readiness) {
        match &self.stage {
            Stage::Connecting { socket, .. } | Stage::Greeting { socket, .. } => {
                readiness.remove(socket);
            }
            Stage::Pausing { .. } => {}
        }
    }
}

impl DialAttempt for Dial {
    fn deadline(&self, timeouts: &Timeouts) -> Option<Instant> {
        let last = self.since + timeouts.connect_timeout;
        match &self.stage {
            Stage::Pausing { until } | Stage::Connecting { until, .. } => Some(last.min(*until)),
            Stage::Greeting { .. } => None,
        }
    }
}

impl Dial {
    /// Begins the first attempt.
    pub(super) fn begin(target: &Target<'_>) -> (Dial, Outcome) {
        let now = Instant::now();
        let stage = Stage::Pausing { until: now };
        let why = "it did not answer".to_owned();
        let (refused_since, short_since) = (None, None);
        let mut dial = Dial { since: now, refused_since, short_since, attempts: 0, stage, why };
        let outcome = dial.attempt(target, now);
        (dial, outcome)
    }

    /// Whether the peer may have accepted, or may still accept, this side's connection.
    pub(super) fn hello_has_left(&self) -> bool {
        matches!(self.stage, Stage::Greeting { .. })
    }

    /// The connection, if the hello has left.
    pub(super) fn into_socket(self) -> Option<OwnedFd> {
        match self.stage {
            Stage::Greeting { socket, .. } => Some(socket),
            Stage::Pausing { .. } | Stage::Connecting { .. } => None,
        }
    }

    /// Does what is due at `now`.
    ///
    /// A peer whose system has taken the connection lives; it answers when it comes to its first
    /// operation, and operations that wait for that have limits of their own. If it dies, the
    /// connection ends.
    pub(super) fn expire(&mut self, target: &Target<'_>, now: Instant) -> Outcome {
        let last = self.since + target.timeouts.connect_timeout;
        if now >= last && !self.hello_has_left() {
            if now < last + MAX_PAUSE {
                return Outcome::Hopeless(LossReason::Unreachable(self.why.clone()));
            }
            // This rank was busy elsewhere when the time was up, and the peer may have been, too.
            self.since = now;
        }
        match &self.stage {
            Stage::Pausing { until } if now >= *until => self.attempt(target, now),
            Stage::Connecting { until, .. } if now >= *until => {
                self.pause("it did not answer in time", target, now)
            }
            _ => Outcome::Pending,
        }
    }

    /// Continues after the socket became readable or writable.
    pub(super) fn advance(&mut self, target: &Target<'_>) -> Outcome {
        let now = Instant::now();
        if let Stage::Connecting { socket, .. } = &self.stage {
            match rustix::net::getpeername(socket) {
                Ok(Some(_)) => return self.greet(target, now),
                Ok(None) | Err(Errno::NOTCONN) => {}
                Err(error) => return self.fail(error, target, now),
            }
            return match socket_error(socket) {
                Ok(Ok(())) => Outcome::Pending,
                Ok(Err(error)) | Err(error) => self.fail(error, target, now),
            };
        }
        let Stage::Greeting { socket, bytes, have_bytes } = &mut self.stage else {
            return Outcome::Pending;
        };
        match recv(socket, &mut bytes[*have_bytes..], RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return Outcome::Pending,
            Err(error) => return self.fail(error, target, now),
            Ok((0, _)) => return self.pause("it closed the connection", target, now),
            Ok((bytes, _)) => *have_bytes += bytes,
        }
        if *have_bytes < Welcome::BYTES {
            return Outcome::Pending;
        }
        let welcome = Welcome::decode(bytes);
        match welcome {
            Ok(Welcome { refusal: Some(Refusal::Crossing), .. }) => {
                // The peer is there, and its own connection is on the way.
                self.refused_since = None;
                self.pause("its own connection did not come", target, now)
            }
            Ok(Welcome { refusal: Some(refusal), .. }) => {
                self.refuse(&refusal.to_string(), target, now)
            }
            Ok(welcome) if welcome.rank != target.hello.target => {
                self.refuse("another rank answers there", target, now)
            }
            Ok(_) => self.welcomed(now),
            Err(error) => self.refuse(&error.to_string(), target, now),
        }
    }

    fn welcomed(&mut self, now: Instant) -> Outcome {
        match std::mem::replace(&mut self.stage, Stage::Pausing { until: now }) {
            Stage::Greeting { socket, .. } => Outcome::Welcomed(socket),
            _ => Outcome::Pending,
        }
    }

    /// Opens a socket and connects it to the next endpoint.
    fn attempt(&mut self, target: &Target<'_>, now: Instant) -> Outcome {
        let endpoints = &target.route.endpoints;
        if endpoints.is_empty() {
            let why = "its address card names no TCP endpoint".to_owned();
            return Outcome::Hopeless(LossReason::Unreachable(why));
        }
        let endpoint = endpoints[self.attempts as usize % endpoints.len()];
        self.attempts = self.attempts.wrapping_add(1);
        self.why = format!("{endpoint} did not answer");
        let family = match endpoint {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let opened = fork::unshared(|| socket_with(family, SocketType::STREAM, flags, None));
        let socket = match opened {
            Ok(socket) => socket,
            Err(error) => return self.fail(error, target, now),
        };
        set_options(&socket);
        if target.route.is_within_host {
            prefer_within_host(&socket);
        }
        let connected = connect(&socket, &endpoint);
        if let Err(error) = target.readiness.add(&socket, target.key, true) {
            return self.fail(error, target, now);
        }
        let until = match endpoints.len() {
            1 => self.since + target.timeouts.connect_timeout,
            _ => now + ENDPOINT_TIMEOUT,
        };
        self.stage = Stage::Connecting { socket, until };
        self.short_since = None;
        match connected {
            Ok(()) => self.greet(target, now),
            Err(Errno::INPROGRESS | Errno::INTR) => Outcome::Pending,
            Err(error) => self.fail(error, target, now),
        }
    }

    /// Sends the hello over the new connection.
    fn greet(&mut self, target: &Target<'_>, now: Instant) -> Outcome {
        match std::mem::replace(&mut self.stage, Stage::Pausing { until: now }) {
            Stage::Connecting { socket, .. } => {
                let hello = target.hello.encode();
                // A new connection has room for a hello, so fewer bytes are a failure.
                let sent = match send(&socket, &hello, SendFlags::NOSIGNAL) {
                    Ok(bytes) if bytes == hello.len() => {
                        target.readiness.modify(&socket, target.key, false)
                    }
                    Ok(_) => Err(Errno::AGAIN),
                    Err(error) => Err(error),
                };
                if let Err(error) = sent {
                    target.readiness.remove(&socket);
                    return self.fail(error, target, now);
                }
                self.stage = Stage::Greeting { socket, bytes: [0; Welcome::BYTES], have_bytes: 0 };
            }
            other => self.stage = other,
        }
        Outcome::Pending
    }

    fn fail(&mut self, error: Errno, target: &Target<'_>, now: Instant) -> Outcome {
        let why = error.to_string();
        match error {
            Errno::CONNREFUSED => self.refuse(&why, target, now),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => {
                let since = *self.short_since.get_or_insert(now);
                let outcome = self.pause(&why, target, now);
                if now < since + SHORTAGE_LIMIT {
                    return outcome;
                }
                let peer = target.hello.target;
                Outcome::Hopeless(LossReason::Local(format!(
                    "it cannot connect to rank {peer}: {why}"
                )))
            }
            _ => self.pause(&why, target, now),
        }
    }

    /// No process listens there, or one that refuses this rank. That is retried, but not for long:
    /// a rank listens before it publishes its address.
    fn refuse(&mut self, why: &str, target: &Target<'_>, now: Instant) -> Outcome {
        let since = *self.refused_since.get_or_insert(now);
        let tried_all = self.attempts as usize >= target.route.endpoints.len();
        let outcome = self.pause(why, target, now);
        if tried_all && now >= since + target.timeouts.refused_timeout {
            return Outcome::Hopeless(LossReason::Unreachable(self.why.clone()));
        }
        if tried_all { Outcome::Refused(self.why.clone()) } else { outcome }
    }

    fn pause(&mut self, why: &str, target: &Target<'_>, now: Instant) -> Outcome {
        let endpoints = &target.route.endpoints;
        let last = (self.attempts as usize).wrapping_sub(1) % endpoints.len().max(1);
        self.why = match endpoints.get(last) {
            Some(endpoint) if endpoint.ip().is_loopback() && !target.route.is_within_host => {
                format!("{endpoint}: {why}; {WRONG_INTERFACE}")
            }
            Some(endpoint) => format!("{endpoint}: {why}"),
            None => why.to_owned(),
        };
        let rounds = self.attempts / u32::try_from(endpoints.len().max(1)).unwrap_or(1);
        let pause = FIRST_PAUSE * 2_u32.pow(rounds.min(10));
        self.unwatch(target.readiness);
        self.stage = Stage::Pausing { until: now + pause.min(MAX_PAUSE) };
        Outcome::Pending
    }
}
