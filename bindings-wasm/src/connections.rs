//! Connections to store servers: a session over one WebSocket after another. Knows nothing of what
//! is asked, nor of browsers: whoever provides the sockets.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use polyrank::clock::Instant;
use polyrank::store::websocket::Client;
use polyrank::transport::websocket::{Closed, Dialer, Socket, SocketEvent, close_code};
use polyrank::wire::session::{DEFAULT_WINDOW_BYTES, Next, Reconnect};
use wasm_bindgen::JsValue;

use crate::events;

/// How often something is said, so that the server's side does not seem dead.
const BEAT: Duration = Duration::from_secs(10);

/// Without any sign of life from the server for so long, its socket counts as broken: the server
/// says something every [`BEAT`], too.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a server that does not answer is asked before the next attempt. Chromium itself keeps a
/// socket back for up to 5 s after a dozen that failed: given up sooner, none would ever open.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The pause after the first attempt while the server has never answered: it may not have started
/// yet. It grows to [`LONGEST_PAUSE`], so that the browser does not come to keep sockets back.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a server that has never answered is tried at most. A page cannot know whether nobody
/// listens yet or somebody who speaks no WebSocket, as PyTorch's store, and must not look as if it
/// hung.
const REACH: Duration = Duration::from_secs(30);

/// After so long without an answer, the console says what is being waited for.
const QUIET: Duration = Duration::from_secs(2);

/// How long the end of a session takes at most, until its last packets have left.
const FAREWELL: Duration = Duration::from_millis(500);

/// Lives as long as somebody uses the connection.
pub(crate) struct Use;

/// One connection.
struct Connection {
    client: Client,
    /// Gone when nobody uses it any more.
    used: Weak<Use>,
    dialer: Box<dyn Dialer>,
    url: String,
    socket: Option<Box<dyn Socket>>,
    attempts: Attempts,
    next_beat: Instant,
    last_heard: Instant,
    /// When the session is ended at the latest, once nobody uses it.
    ends: Option<Instant>,
}

/// What is known of a server with which no session stood yet, the more the greater: what one
/// attempt has shown is not forgotten because a later one shows less.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// It never accepted a WebSocket; of why, browsers tell pages nothing.
    Nothing,
    /// It did, and says nothing.
    Mute,
    /// It closed one, and said why.
    Said(String),
}

/// When the next socket is opened.
enum Attempts {
    /// The server has not answered yet.
    First {
        /// When to dial, or to give an attempt up.
        next: Instant,
        /// When to give up for good.
        until: Instant,
        /// When the console is told, if it was not.
        warn: Option<Instant>,
        /// How long to wait after an attempt that fails.
        pause: Duration,
        /// The best that is known of the server.
        known: Known,
    },
    /// The session stood once.
    Again {
        reconnect: Reconnect,
        /// Zero of the clock of `reconnect`.
        epoch: Instant,
    },
}

thread_local! {
    static CONNECTIONS: RefCell<Vec<Connection>> = RefCell::default();
}

/// Opens a session with the server at `url`, which may take as long as `limit`, and no longer than
/// [`REACH`]. It ends when what is returned beside it is gone. The server is to wait `grace_ms`
/// after a lost socket; 0: it chooses.
pub(crate) fn open(
    url: String,
    dialer: Box<dyn Dialer>,
    grace_ms: u32,
    limit: Duration,
) -> (Client, Arc<Use>) {
    let client = Client::new(DEFAULT_WINDOW_BYTES, grace_ms);
    client.set_owner(&Waker::from(Arc::new(Turn)));
    let (now, used) = (Instant::now(), Arc::new(Use));
    let (until, warn) = (now + limit.min(REACH), Some(now + QUIET));
    let connection = Connection {
        client: client.clone(),
        used: Arc::downgrade(&used),
        dialer,
        url,
        socket: None,
        attempts: Attempts::First { next: now, until, warn, pause: PAUSE, known: Known::Nothing },
        next_beat: now + BEAT,
        last_heard: now,
        ends: None,
    };
    CONNECTIONS.with_borrow_mut(|all| all.push(connection));
    events::request_turn();
    (client, used)
}

/// Moves all connections; when it must be called again at the latest.
pub(crate) fn advance(now: Instant) -> Option<Instant> {
    // Whoever is woken may open another one.
    let mut connections = CONNECTIONS.take();
    connections.retain_mut(|connection| connection.advance(now));
    let next = connections.iter().filter_map(Connection::deadline).min();
    CONNECTIONS.with_borrow_mut(|all| all.extend(connections));
    next
}

/// Has the event loop move the packets.
struct Turn;

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        events::request_turn();
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        events::request_turn();
    }
}

impl Connection {
    /// Moves what can be moved; false when it is over.
    fn advance(&mut self, now: Instant) -> bool {
        // What came in time counts, however late this is called.
        self.listen(now);
        self.dial(now);
        if now >= self.next_beat {
            self.beat(now);
        }
        self.send();
        self.end_if_unused(now);
        self.client.end().is_none()
    }

    /// Opens a socket, or gives up, if it is time.
    fn dial(&mut self, now: Instant) {
        match &mut self.attempts {
            Attempts::First { .. } if self.client.is_open() => return,
            Attempts::First { next, until, warn, known, .. } => {
                if now >= *until {
                    let why = unreachable(&self.url, known.text());
                    self.client.lose(why);
                    return;
                }
                if warn.take_if(|when| now >= *when).is_some() {
                    let left = (*until - now).as_secs_f64().ceil();
                    let url = &self.url;
                    warning(&format!(
                        "no store has answered at {url} yet ({}); it is tried for {left} s \
                         more. {ADVICE}",
                        known.text()
                    ));
                }
                if now < *next {
                    return;
                }
                *next = now + ATTEMPT;
            }
            Attempts::Again { reconnect, epoch } => match reconnect.next(ms(now, *epoch)) {
                Next::Nothing | Next::Wait { .. } => return,
                Next::Try => reconnect.trying(),
                Next::GiveUp => {
                    self.client.lose("the connection to the store broke and could not be resumed");
                    return;
                }
            },
        }
        self.socket = None;
        self.client.detach();
        match self.dialer.dial(&self.url) {
            Ok(socket) => self.socket = Some(socket),
            // An URL that cannot be used now never can.
            Err(error) => self.client.lose(error.to_string()),
        }
    }

    fn listen(&mut self, now: Instant) {
        while let Some(event) = self.socket.as_mut().and_then(|socket| socket.receive()) {
            self.last_heard = now;
            match event {
                SocketEvent::Opened => {
                    self.client.attach();
                    self.attempts.learn(Known::Mute);
                }
                SocketEvent::Alive => {}
                SocketEvent::Packet(packet) => self.receive(packet, now),
                SocketEvent::Closed(closed) => self.closed(&closed, now),
            }
        }
    }

    /// Says that this side is there, or finds that the other is not.
    fn beat(&mut self, now: Instant) {
        if now >= self.next_beat + BEAT {
            // This page was suspended: what came meanwhile is still to be heard.
            self.last_heard = now;
        }
        self.next_beat = now + BEAT;
        if self.client.is_open() && now >= self.last_heard + SILENCE {
            let reason = format!("it was silent for {} s", SILENCE.as_secs());
            self.closed(&Closed { clean: false, code: close_code::ABNORMAL, reason }, now);
        } else {
            self.client.acknowledge();
        }
    }

    fn receive(&mut self, packet: Bytes, now: Instant) {
        if let Err(violation) = self.client.receive(packet.into()) {
            if let Some(socket) = &mut self.socket {
                socket.close(violation.close_code(), &violation.to_string());
            }
            self.client.lose(match self.attempts {
                Attempts::First { .. } => {
                    unreachable(&self.url, &format!("what answers there is no store: {violation}"))
                }
                Attempts::Again { .. } => {
                    format!("the store at {} does not follow: {violation}", self.url)
                }
            });
            return;
        }
        if self.client.is_open() {
            match &mut self.attempts {
                Attempts::First { .. } => {
                    let reconnect = Reconnect::new(self.client.grace_ms());
                    self.attempts = Attempts::Again { reconnect, epoch: now };
                }
                Attempts::Again { reconnect, .. } => reconnect.restored(),
            }
        }
    }

    fn closed(&mut self, closed: &Closed, now: Instant) {
        let Closed { code, reason, .. } = closed;
        self.socket = None;
        self.client.detach();
        let said = if reason.is_empty() { format!("code {code}") } else { reason.clone() };
        if closed.is_final(self.client.is_welcomed()) {
            let url = &self.url;
            self.client.lose(format!("the store at {url} closed the connection: {said}"));
            return;
        }
        if !reason.is_empty() {
            self.attempts.learn(Known::Said(said));
        }
        match &mut self.attempts {
            Attempts::First { next, pause, .. } => {
                *next = now + *pause;
                *pause = (*pause * 3 / 2).min(LONGEST_PAUSE);
            }
            Attempts::Again { reconnect, epoch } => reconnect.lost(ms(now, *epoch)),
        }
    }

    fn send(&mut self) {
        // No more than the session's window can be under way, so that nothing piles up here.
        while let Some(socket) = &mut self.socket
            && let Some(packet) = self.client.next_packet()
        {
            socket.send(Bytes::from_owner(packet));
        }
    }

    /// Ends the session when its last user is gone and its last packets have left.
    fn end_if_unused(&mut self, now: Instant) {
        if self.used.strong_count() > 0 {
            return;
        }
        let ends = *self.ends.get_or_insert(now + FAREWELL);
        if self.client.is_flushed() || now >= ends || !self.client.is_open() {
            if let Some(socket) = &mut self.socket {
                socket.close(close_code::NORMAL, "");
            }
            self.client.lose("nobody uses the store any more");
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let attempt = match &self.attempts {
            Attempts::First { .. } if self.client.is_open() => None,
            Attempts::First { next, until, warn, .. } => {
                [Some(*next), Some(*until), *warn].into_iter().flatten().min()
            }
            Attempts::Again { reconnect, epoch } => {
                match reconnect.next(ms(Instant::now(), *epoch)) {
                    Next::Nothing => None,
                    Next::Wait { until_ms } => Some(*epoch + Duration::from_millis(until_ms)),
                    Next::Try | Next::GiveUp => Some(Instant::now()),
                }
            }
        };
        [Some(self.next_beat), attempt, self.ends].into_iter().flatten().min()
    }
}

impl Attempts {
    /// Notes what an attempt has shown, unless more is known.
    fn learn(&mut self, shown: Known) {
        if let Attempts::First { known, .. } = self
            && shown >= *known
        {
            *known = shown;
        }
    }
}

impl Known {
    fn text(&self) -> &str {
        match self {
            Known::Nothing => "no WebSocket could be opened",
            Known::Mute => "it opened a WebSocket, but says nothing that a store would",
            Known::Said(reason) => reason,
        }
    }
}

fn ms(now: Instant, epoch: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(epoch).as_millis()).unwrap_or(u64::MAX)
}

/// What to do about a server that cannot be reached.
const ADVICE: &str = "Is the address right, is the store running, and may this page connect to it \
    (POLYRANK_ALLOWED_ORIGINS on its side)? A store of PyTorch has no WebSocket side: let polyrank \
    host the store (`polyrank store`, or rank 0 of a job)";

/// What else to do where connections are encrypted: a browser does not say that it is this.
const CERTIFICATE: &str = ". It must be started with --certificate, for wss://, and the browser \
    must trust that certificate";

/// What to say of a server that cannot be reached, `why` being what is known of it.
fn unreachable(url: &str, why: &str) -> String {
    let certificate = if url.starts_with("wss:") { CERTIFICATE } else { "" };
    format!("cannot reach a store at {url} ({why}). {ADVICE}{certificate}")
}

fn warning(text: &str) {
    web_sys::console::warn_1(&JsValue::from_str(&format!("polyrank: {text}")));
}
