//! A session of a store's client over one WebSocket after another: dial, beat, silence, resume,
//! give up. Moved by the caller of [`ClientConnection::advance`], over sockets that others
//! provide, by the time that it is told. Knows nothing of what is asked.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use super::attempts::{Attempt, Attempts, ServerState};
use super::client::{Client, PacketMover};
use crate::clock::Instant;
use crate::transport::websocket::{
    Beat, Dialer, Heartbeat, Socket, SocketClose, SocketEvent, close_code,
};
use crate::wire::session::DEFAULT_WINDOW_BYTES;

/// How long the end of a session takes at most, until its last packets have left.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// One connection to a store's server.
pub struct ClientConnection {
    client: Client,
    /// Gone when nobody uses it any more.
    used: Weak<ConnectionUse>,
    dialer: Box<dyn Dialer>,
    url: String,
    socket: Option<Box<dyn Socket>>,
    attempts: Attempts,
    heartbeat: Heartbeat,
    /// When the session is ended at the latest, once nobody uses it.
    ends: Option<Instant>,
    warning: Option<String>,
}

/// Somebody uses a connection, as long as this lives; its owner is woken at the end.
#[derive(Debug)]
pub struct ConnectionUse(Waker);

impl PacketMover for ConnectionUse {}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

impl ClientConnection {
    /// A session with the server at `url`, which may take as long as `limit` to be opened, and half
    /// a minute at most. It ends when the [`ConnectionUse`] is gone. The server is to wait
    /// `grace_ms` after a lost socket; 0: it chooses. `owner` is woken when there is something to
    /// move.
    pub fn new(
        url: String,
        dialer: Box<dyn Dialer>,
        grace_ms: u32,
        limit: Duration,
        owner: &Waker,
    ) -> (ClientConnection, Client, Arc<ConnectionUse>) {
        let client = Client::new(DEFAULT_WINDOW_BYTES, grace_ms);
        client.set_owner(owner);
        let (now, used) = (Instant::now(), Arc::new(ConnectionUse(owner.clone())));
        let connection = ClientConnection {
            client: client.clone(),
            used: Arc::downgrade(&used),
            dialer,
            url,
            socket: None,
            attempts: Attempts::new(now, limit),
            heartbeat: Heartbeat::new(now),
            ends: None,
            warning: None,
        };
        (connection, client, used)
    }

    /// Moves what can be moved; false when it is over.
    pub fn advance(&mut self, now: Instant) -> bool {
        // What came in time counts, however late this is called.
        self.listen(now);
        self.dial(now);
        self.beat(now);
        self.send();
        self.end_if_unused(now);
        self.client.end().is_none()
    }

    /// When [`ClientConnection::advance`] is to be called at the latest.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let attempt = self.attempts.deadline(now, self.client.is_open());
        [Some(self.heartbeat.next()), attempt, self.ends].into_iter().flatten().min()
    }

    /// What somebody should hear while the server does not answer, once.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Opens a socket, or gives up, if it is time.
    fn dial(&mut self, now: Instant) {
        let is_open = self.client.is_open();
        if let Some(left) = self.attempts.warning(now, is_open) {
            let (url, known) = (&self.url, self.attempts.known());
            let left = left.as_secs_f64().ceil();
            self.warning = Some(format!(
                "no store has answered at {url} yet ({known}); it is tried for {left} s more. \
                 {ADVICE}"
            ));
        }
        match self.attempts.next(now, is_open) {
            Attempt::None => {}
            Attempt::GiveUp => {
                self.client.lose("the connection to the store broke and could not be resumed");
            }
            Attempt::Unreachable => {
                self.client.lose(unreachable(&self.url, self.attempts.known()));
            }
            Attempt::Dial => {
                self.socket = None;
                self.client.detach();
                match self.dialer.dial(&self.url) {
                    Ok(socket) => self.socket = Some(socket),
                    // A URL that cannot be used now never can.
                    Err(error) => self.client.lose(error.to_string()),
                }
            }
        }
    }

    fn listen(&mut self, now: Instant) {
        while let Some(event) = self.socket.as_mut().and_then(|socket| socket.receive()) {
            self.heartbeat.heard(now);
            match event {
                SocketEvent::Opened => {
                    self.client.attach();
                    self.attempts.learn(ServerState::Mute);
                }
                SocketEvent::Alive => {}
                SocketEvent::Packet(packet) => self.receive(packet, now),
                SocketEvent::Closed(closed) => self.closed(&closed, now),
            }
        }
    }

    /// Says that this side is there, or finds that the other is not.
    fn beat(&mut self, now: Instant) {
        if self.heartbeat.is_overdue(now) {
            // This page was suspended: what came meanwhile is still to be heard.
            self.heartbeat.heard(now);
        }
        match self.heartbeat.beat(now) {
            Beat::NotDue => {}
            Beat::Silent if self.client.is_open() => {
                let reason = Heartbeat::silence();
                self.closed(&SocketClose { clean: false, code: close_code::ABNORMAL, reason }, now);
            }
            Beat::Due | Beat::Silent => self.client.acknowledge(),
        }
    }

    fn receive(&mut self, packet: Bytes, now: Instant) {
        if let Err(violation) = self.client.receive(packet.into()) {
            if let Some(socket) = &mut self.socket {
                socket.close(violation.close_code(), &violation.to_string());
            }
            self.client.lose(if self.attempts.is_first_contact() {
                let why = format!("the server that answers there is not a store: {violation}");
                unreachable(&self.url, &why)
            } else {
                format!("the store at {} breaks the protocol: {violation}", self.url)
            });
            return;
        }
        if self.client.is_open() {
            self.attempts.succeeded(now, self.client.grace_ms());
        }
    }

    fn closed(&mut self, closed: &SocketClose, now: Instant) {
        let SocketClose { code, reason, .. } = closed;
        self.socket = None;
        self.client.detach();
        let said = if reason.is_empty() { format!("code {code}") } else { reason.clone() };
        if closed.is_final(self.client.is_welcomed()) {
            let url = &self.url;
            self.client.lose(format!("the store at {url} closed the connection: {said}"));
            return;
        }
        if !reason.is_empty() {
            self.attempts.learn(ServerState::Refusing(said));
        }
        self.attempts.failed(now);
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
        let ends = *self.ends.get_or_insert(now + CLOSE_LIMIT);
        if self.client.is_flushed() || now >= ends || !self.client.is_open() {
            if let Some(socket) = &mut self.socket {
                socket.close(close_code::NORMAL, "");
            }
            self.client.lose("nobody uses the store any more");
        }
    }
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
