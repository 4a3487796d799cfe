//! The WebSocket side of a store's server, on the same port as the other one: who may connect, one
//! socket's packets, and how long a lost one is waited for. Knows nothing of what packets mean.

mod relay;
mod requests;
mod sessions;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub(super) mod tls;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::http::header::ORIGIN;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::Settings;
use super::connection::Host;
use super::service::Service;
use super::waiters::ClientId;
use crate::wire::channel::RelayKind;
use crate::wire::origin::AllowedOrigins;
use crate::wire::session::{DEFAULT_GRACE_MS, MAX_PACKET_BYTES, ResumeToken};
use sessions::{Fault, Sessions, SocketId};
use socket::{End, Socket};

/// How long a client may take for its first byte, for the handshake, and for its hello.
const GREETING: Duration = Duration::from_secs(10);
/// How long a client that is sent away may take to hear why.
const LINGER: Duration = Duration::from_secs(2);
/// What it may still send in that time before nobody listens any more.
const LINGER_BYTES: usize = 16 << 20;

/// What the WebSockets of a server share.
#[derive(Debug)]
pub(super) struct Web {
    sessions: RefCell<Sessions>,
    origins: AllowedOrigins,
    #[cfg(feature = "tls")]
    identity: Option<tls::Identity>,
    last_socket: Cell<SocketId>,
}

impl Web {
    pub(super) fn new(settings: Settings) -> Web {
        let grace_ms = settings.grace_ms.unwrap_or(DEFAULT_GRACE_MS);
        Web {
            sessions: RefCell::new(Sessions::new(grace_ms)),
            origins: settings.origins,
            #[cfg(feature = "tls")]
            identity: settings.identity,
            last_socket: Cell::new(0),
        }
    }

    /// The wait of `client` has ended, if it is a session's.
    pub(super) fn woken(&self, client: ClientId, service: &mut Service) -> bool {
        self.sessions.borrow_mut().woken(client, service)
    }

    /// Wakes the sockets of sessions that may have something to send.
    pub(super) fn wake_touched(&self) {
        self.sessions.borrow_mut().wake_touched();
    }

    /// Ends the session that keeps most memory, if that is more than `bytes`; whether it did.
    pub(super) fn relieve(&self, bytes: usize, service: &mut Service) -> bool {
        self.sessions.borrow_mut().relieve(bytes, service)
    }

    /// Bytes of memory that all sessions keep.
    pub(super) fn held_bytes(&self) -> usize {
        self.sessions.borrow().held_bytes()
    }
}

/// Serves one client until its socket ends, if it asks for a WebSocket; else the stream.
///
/// A request for a WebSocket begins with "GET", and a TLS connection with a handshake record's 22;
/// a TCPStore client's first byte is zero.
pub(super) async fn serve(host: &Rc<Host>, stream: TcpStream) -> Option<TcpStream> {
    let mut first = [0];
    // Who says nothing gets a TCPStore server's patience.
    let peeked = tokio::time::timeout(GREETING, stream.peek(&mut first)).await;
    let local = stream.local_addr().ok().map(|address| address.ip());
    match (peeked, first) {
        (Ok(Ok(1)), [b'G']) => serve_over(host.clone(), stream, local).await,
        #[cfg(feature = "tls")]
        (Ok(Ok(1)), [22]) if let Some(identity) = &host.web.identity => {
            match tokio::time::timeout(GREETING, identity.accept(stream)).await {
                Ok(Ok(stream)) => serve_over(host.clone(), stream, local).await,
                Ok(Err(why)) => tracing::debug!("a TLS handshake failed: {why}"),
                Err(_) => tracing::debug!("a client took too long for its TLS handshake"),
            }
        }
        _ => return Some(stream),
    }
    None
}

async fn serve_over<S>(host: Rc<Host>, stream: S, local: Option<IpAddr>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let id = host.web.last_socket.get() + 1;
    host.web.last_socket.set(id);
    match tokio::time::timeout(GREETING, accept(stream, &host.web.origins, local)).await {
        Ok(Ok(stream)) => converse(host, stream, id).await,
        Ok(Err(why)) => tracing::warn!("the store's server refused a WebSocket: {why}"),
        Err(_) => tracing::debug!("a client took too long to ask for a WebSocket"),
    }
}

async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    origins: &AllowedOrigins,
    local: Option<IpAddr>,
) -> Result<WebSocketStream<S>, String> {
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .write_buffer_size(64 << 10)
        .max_message_size(Some(MAX_PACKET_BYTES))
        .max_frame_size(Some(MAX_PACKET_BYTES));
    let mut refused = None;
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let judge = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let origin = request.headers().get(ORIGIN).map(|value| value.to_str().unwrap_or("?"));
        if origins.allow(origin, local) {
            return Ok(response);
        }
        let text = AllowedOrigins::refusal(origin.unwrap_or_default());
        refused = Some(text.clone());
        let mut response = ErrorResponse::new(Some(text));
        *response.status_mut() = StatusCode::FORBIDDEN;
        Err(response)
    };
    let accepted =
        tokio_tungstenite::accept_hdr_async_with_config(stream, judge, Some(config)).await;
    accepted.map_err(|error| refused.unwrap_or_else(|| error.to_string()))
}

/// A client's packets, from its hello to the end of the socket.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    host: Rc<Host>,
    stream: WebSocketStream<S>,
    id: SocketId,
) {
    let mut socket = Socket::new(stream);
    let hello = tokio::time::timeout(GREETING, socket.first_packet()).await;
    let greeted = match hello {
        Ok(Ok(packet)) => greet(&host, &packet, id).map_err(End::Fault),
        Ok(Err(end)) => Err(end),
        Err(_) => Err(End::Refused(1008, "no hello came")),
    };
    let end = match greeted {
        Ok(number) => {
            let end = socket.run(&host, number, id).await;
            over(&host, number, id, &end);
            end
        }
        Err(end) => end,
    };
    tracing::debug!("a WebSocket of the store's server ends: {end}");
    if let Some((code, reason)) = end.answer() {
        dismiss(socket.into_stream(), code, &reason).await;
    }
}

fn greet(host: &Host, packet: &[u8], id: SocketId) -> Result<u64, Fault> {
    let token = crate::random::bytes().map(ResumeToken).map_err(|_| Fault::Overloaded)?;
    host.web.sessions.borrow_mut().greet(packet, token, id)
}

/// The socket is over, and its session too unless it may come back.
fn over(host: &Rc<Host>, number: u64, id: SocketId, end: &End) {
    let gone = |how| {
        host.with_service(|service| host.web.sessions.borrow_mut().end(number, how, service));
        host.tell_woken(None);
    };
    match end {
        End::Replaced => {}
        End::Left => gone(RelayKind::Left),
        End::Fault(_) | End::Refused(..) => gone(RelayKind::Dead),
        End::Lost(_) => {
            let Some(grace_ms) = host.web.sessions.borrow_mut().lost(number, id) else { return };
            let host = host.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(u64::from(grace_ms))).await;
                host.with_service(|service| {
                    host.web.sessions.borrow_mut().expire(number, id, service)
                });
                host.tell_woken(None);
            });
        }
    }
}

/// Says why a client is sent away, and gives it time to hear that: closing while it still sends
/// would have the system throw the reason away.
async fn dismiss<S: AsyncRead + AsyncWrite + Unpin>(
    stream: WebSocketStream<S>,
    code: u16,
    reason: &str,
) {
    let said = tokio::time::timeout(LINGER, async {
        let mut stream = stream;
        socket::close(&mut stream, code, reason).await;
        let mut stream = stream.into_inner();
        // What cannot be said to who does not listen is lost.
        let _ = stream.shutdown().await;
        let mut rest = vec![0; 16 << 10];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut rest).await {
                Ok(0) | Err(_) => break,
                Ok(bytes) => left = left.saturating_sub(bytes),
            }
        }
    });
    let _ = said.await;
}
