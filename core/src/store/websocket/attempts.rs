//! The attempts to reach a store's server: when the next socket is opened, and when that is
//! hopeless. Knows nothing of what goes over a socket.

use std::time::Duration;

use crate::clock::Instant;
use crate::wire::session::{Next, Reconnect};

/// How long a server that does not answer is asked before the next attempt. Chromium itself keeps a
/// socket back for up to 5 s after a dozen that failed: given up sooner, none would ever open.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after the first attempt while the server has never answered: it may not have started
/// yet. It grows to [`MAX_PAUSE`], so that the browser does not come to keep sockets back.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How long a server that has never answered is tried at most. A page cannot know whether nobody
/// listens yet or somebody who speaks no WebSocket, as PyTorch's store, and must not look as if it
/// hung.
const MAX_FIRST_CONTACT: Duration = Duration::from_secs(30);

/// After so long without an answer, somebody should learn what is being waited for.
const WARNING_AFTER: Duration = Duration::from_secs(2);

/// When the next socket is opened.
pub(super) enum Attempts {
    /// The server has not answered yet.
    First(FirstContact),
    /// The session stood once.
    Again {
        reconnect: Reconnect,
        /// Zero of the clock of `reconnect`.
        epoch: Instant,
    },
}

/// The attempts before there was a session.
pub(super) struct FirstContact {
    /// When to dial, or to give an attempt up.
    next: Instant,
    /// When to give up for good.
    until: Instant,
    /// When to warn, unless that was done.
    warn: Option<Instant>,
    /// How long to wait after an attempt that fails.
    pause: Duration,
    /// The best that is known of the server.
    known: ServerState,
}

/// What is known of a server with which no session stood yet, the more the greater: what one
/// attempt has shown is not forgotten because a later one shows less.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerState {
    /// It never accepted a WebSocket; of why, browsers tell pages nothing.
    Unreachable,
    /// It did, and says nothing.
    Mute,
    /// It closed one, and said why.
    Refusing(String),
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Nothing.
    None,
    /// Open a socket.
    Dial,
    /// Give up: the session stood, and could not be resumed.
    GiveUp,
    /// Give up: the server never answered.
    Unreachable,
}

impl Attempts {
    /// Attempts that begin at `now`, and may take as long as `limit`.
    pub(super) fn new(now: Instant, limit: Duration) -> Attempts {
        Attempts::First(FirstContact {
            next: now,
            until: now + limit.min(MAX_FIRST_CONTACT),
            warn: Some(now + WARNING_AFTER),
            pause: FIRST_PAUSE,
            known: ServerState::Unreachable,
        })
    }

    /// What to do at `now`, where the session stands or not (`is_open`). What this says to dial
    /// counts as dialled.
    pub(super) fn next(&mut self, now: Instant, is_open: bool) -> Attempt {
        match self {
            Attempts::First(_) if is_open => Attempt::None,
            Attempts::First(first) if now >= first.until => Attempt::Unreachable,
            Attempts::First(first) if now < first.next => Attempt::None,
            Attempts::First(first) => {
                first.next = now + ATTEMPT_TIMEOUT;
                Attempt::Dial
            }
            Attempts::Again { reconnect, epoch } => match reconnect.next(ms(now, *epoch)) {
                Next::Nothing | Next::Wait { .. } => Attempt::None,
                Next::Try => {
                    reconnect.trying();
                    Attempt::Dial
                }
                Next::GiveUp => Attempt::GiveUp,
            },
        }
    }

    /// How much longer the server is tried, if it is time to warn of that, once.
    pub(super) fn warning(&mut self, now: Instant, is_open: bool) -> Option<Duration> {
        match self {
            Attempts::First(first) if !is_open && now < first.until => {
                first.warn.take_if(|when| now >= *when).map(|_| first.until - now)
            }
            _ => None,
        }
    }

    /// Notes what an attempt has shown, unless more is known.
    pub(super) fn learn(&mut self, shown: ServerState) {
        if let Attempts::First(first) = self
            && shown >= first.known
        {
            first.known = shown;
        }
    }

    /// The session stands; the server waits `grace_ms` for a lost socket to be replaced.
    pub(super) fn succeeded(&mut self, now: Instant, grace_ms: u32) {
        match self {
            Attempts::First(_) => {
                *self = Attempts::Again { reconnect: Reconnect::new(grace_ms), epoch: now };
            }
            Attempts::Again { reconnect, .. } => reconnect.restored(),
        }
    }

    /// An attempt failed, or the socket was lost.
    pub(super) fn failed(&mut self, now: Instant) {
        match self {
            Attempts::First(first) => {
                first.next = now + first.pause;
                first.pause = (first.pause * 3 / 2).min(MAX_PAUSE);
            }
            Attempts::Again { reconnect, epoch } => reconnect.lost(ms(now, *epoch)),
        }
    }

    /// Whether the session has never stood.
    pub(super) fn is_first_contact(&self) -> bool {
        matches!(self, Attempts::First(_))
    }

    /// What is known of a server with which no session stood yet.
    pub(super) fn known(&self) -> &str {
        match self {
            Attempts::First(first) => first.known.text(),
            Attempts::Again { .. } => "it answered before",
        }
    }

    /// When there is something to do.
    pub(super) fn deadline(&self, now: Instant, is_open: bool) -> Option<Instant> {
        match self {
            Attempts::First(_) if is_open => None,
            Attempts::First(FirstContact { next, until, warn, .. }) => {
                [Some(*next), Some(*until), *warn].into_iter().flatten().min()
            }
            Attempts::Again { reconnect, epoch } => match reconnect.next(ms(now, *epoch)) {
                Next::Nothing => None,
                Next::Wait { until_ms } => Some(*epoch + Duration::from_millis(until_ms)),
                Next::Try | Next::GiveUp => Some(now),
            },
        }
    }
}

impl ServerState {
    fn text(&self) -> &str {
        match self {
            ServerState::Unreachable => "no WebSocket could be opened",
            ServerState::Mute => "it opened a WebSocket, but says nothing that a store would",
            ServerState::Refusing(reason) => reason,
        }
    }
}

fn ms(now: Instant, epoch: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(epoch).as_millis()).unwrap_or(u64::MAX)
}
