//! Accepts WebSockets: new sessions, and sessions that continue over a new socket. Their number
//! and the time they may take are bounded. Knows nothing of ranks, and nothing of who provides the
//! sockets.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::direct::{Arrival, ArrivalSlot, DirectPipe, WINDOW_BYTES};
use super::pipe::{Acceptor, Pipe};
use super::socket::{Socket, SocketEvent, close_code};
use crate::clock::Instant;
use crate::generated::error::Result;
use crate::random;
use crate::transport::Interest;
use crate::wire::session::{DEFAULT_GRACE_MS, Hello, ResumeToken, Session, Violation};

/// Most sockets that have not said yet which session they carry. One more takes the place of the
/// oldest, whose client tries again.
const MAX_SOCKETS: usize = 128;
/// Events of one such socket that are heard before others have their turn.
const TURN_EVENTS: usize = 8;
/// What such a socket may tell: that it is open, a few pings, and which session it carries; or,
/// after it was refused, what was under way.
const MAX_EVENTS: usize = 64;
/// How long a socket that was refused may take to learn why.
const REFUSAL_LINGER: Duration = Duration::from_secs(1);
/// Most sessions that wait to be accepted. A client that opens one more is told to try again,
/// before there is a session that could be lost.
const MAX_READY_SESSIONS: usize = 64;

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub struct ReceptionOptions {
    /// How long a socket may take until it says which session it carries.
    pub hello_timeout: Duration,
    /// How long a session waits for a client whose socket broke, if the client does not say, ms.
    pub grace_ms: u32,
    /// The longest that a client may ask for, ms.
    pub longest_grace_ms: u32,
}

impl Default for ReceptionOptions {
    fn default() -> ReceptionOptions {
        ReceptionOptions {
            hello_timeout: Duration::from_secs(10),
            grace_ms: DEFAULT_GRACE_MS,
            longest_grace_ms: 60_000,
        }
    }
}

/// Where sockets come from: the next one that came, if any.
pub type Source = Box<dyn FnMut() -> Option<Box<dyn Socket>> + Send>;

/// Turns sockets into pipes.
pub(super) struct Reception {
    options: ReceptionOptions,
    /// The next socket that came, if any.
    source: Source,
    fresh: VecDeque<FreshSocket>,
    doors: HashMap<ResumeToken, Weak<Mutex<Option<Arrival>>>>,
    ready: VecDeque<DirectPipe>,
}

/// A socket that has not said anything.
struct FreshSocket {
    socket: Box<dyn Socket>,
    until: Instant,
    /// It was refused; its end is waited for.
    refused: bool,
    /// What it told.
    events: usize,
}

impl FreshSocket {
    fn new(socket: Box<dyn Socket>, until: Instant) -> FreshSocket {
        FreshSocket { socket, until, refused: false, events: 0 }
    }

    /// Tells it why it is sent away.
    fn refused(mut socket: Box<dyn Socket>, code: u16, why: &str, now: Instant) -> FreshSocket {
        tracing::debug!(why, "refused a WebSocket");
        socket.close(code, why);
        FreshSocket { refused: true, ..FreshSocket::new(socket, now + REFUSAL_LINGER) }
    }
}

impl Reception {
    pub(super) fn new(source: Source, options: ReceptionOptions) -> Reception {
        let (fresh, doors, ready) = (VecDeque::new(), HashMap::new(), VecDeque::new());
        Reception { options, source, fresh, doors, ready }
    }

    /// Hears what `fresh` says; gives it back if there is more to wait for.
    fn hear(&mut self, mut fresh: FreshSocket, now: Instant) -> (bool, Option<FreshSocket>) {
        for turn in 0..TURN_EVENTS {
            let Some(event) = fresh.socket.receive() else {
                let moved = turn > 0;
                return if now >= fresh.until { (true, None) } else { (moved, Some(fresh)) };
            };
            fresh.events += 1;
            match event {
                SocketEvent::Closed(_) => return (true, None),
                SocketEvent::Packet(packet) if !fresh.refused => {
                    let Err((socket, code, why)) = self.open(fresh.socket, &packet, now) else {
                        return (true, None);
                    };
                    fresh = FreshSocket::refused(socket, code, &why, now);
                }
                _ if fresh.events <= MAX_EVENTS => {}
                _ if fresh.refused => return (true, None),
                _ => {
                    let why = "too many pings, and no hello";
                    fresh = FreshSocket::refused(fresh.socket, close_code::POLICY, why, now);
                }
            }
        }
        (true, Some(fresh))
    }

    /// Opens the session that `packet` asks for, or continues with it.
    fn open(
        &mut self,
        socket: Box<dyn Socket>,
        packet: &[u8],
        now: Instant,
    ) -> std::result::Result<(), (Box<dyn Socket>, u16, String)> {
        let Some(hello) = Hello::decode(packet) else {
            return Err((socket, close_code::PROTOCOL, Violation::Malformed.to_string()));
        };
        if hello.token != ResumeToken::NONE {
            let door = self.doors.get(&hello.token).and_then(Weak::upgrade);
            let Some(door) = door else {
                let why = Violation::UnknownSession;
                return Err((socket, why.close_code(), why.to_string()));
            };
            *door.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arrival { hello, socket });
            return Ok(());
        }
        if self.ready.len() >= MAX_READY_SESSIONS {
            let why = "too many connect at once; try again".to_owned();
            return Err((socket, close_code::TRY_AGAIN, why));
        }
        let (token, session) = match self.session(&hello) {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => return Err((socket, why.close_code(), why.to_string())),
            Err(error) => return Err((socket, close_code::POLICY, error.to_string())),
        };
        let door = ArrivalSlot::default();
        self.doors.retain(|_, door| door.strong_count() > 0);
        self.doors.insert(token, Arc::downgrade(&door));
        self.ready.push_back(DirectPipe::server(session, socket, door, now));
        Ok(())
    }

    fn session(
        &self,
        hello: &Hello,
    ) -> Result<std::result::Result<(ResumeToken, Session), Violation>> {
        let token = ResumeToken(random::bytes()?);
        let grace_ms = match hello.grace_ms {
            0 => self.options.grace_ms,
            wanted => wanted.min(self.options.longest_grace_ms),
        };
        let session = Session::accept(hello, token, 0, WINDOW_BYTES, grace_ms);
        Ok(session.map(|session| (token, session)))
    }
}

impl Acceptor for Reception {
    fn advance(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(socket) = (self.source)() {
            if self.fresh.len() >= MAX_SOCKETS {
                self.fresh.pop_front();
            }
            let until = now + self.options.hello_timeout;
            self.fresh.push_back(FreshSocket::new(socket, until));
            moved = true;
        }
        for _ in 0..self.fresh.len() {
            let Some(fresh) = self.fresh.pop_front() else { break };
            let (heard, fresh) = self.hear(fresh, now);
            moved |= heard;
            self.fresh.extend(fresh);
        }
        moved
    }

    fn accept(&mut self) -> Option<Box<dyn Pipe>> {
        self.ready.pop_front().map(|pipe| Box::new(pipe) as _)
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        interests.extend(self.fresh.iter().filter_map(|fresh| fresh.socket.interest()));
    }

    fn deadline(&self) -> Option<Instant> {
        self.fresh.iter().map(|fresh| fresh.until).min()
    }
}
