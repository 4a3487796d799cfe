//! The WebSocket side of a store's server, on the same port as the other one: who may connect, one
//! socket's packets, and how long a lost one is waited for. Knows nothing of what packets mean.

mod disconnected;
mod relay;
mod requests;
mod sessions;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub(super) mod tls;
mod unread;
mod upgrade;
pub(super) mod web;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;

use super::host::Host;
use crate::store::websocket::{Measured, PacketSocket, Unfinished};
use crate::wire::channel::RelayKind;
use crate::wire::session::ResumeToken;
use sessions::{Fault, Newcomer, SocketId};
use socket::{End, SessionPackets};

/// How long a client may take for its first byte, for the handshake, and for its hello.
const GREETING: Duration = Duration::from_secs(10);
/// How long a client that is sent away may take to learn why.
const LINGER: Duration = Duration::from_secs(2);
/// What it may still send in that time before nobody listens any more.
const LINGER_BYTES: usize = 16 << 20;

/// Serves one client until its socket ends, if it asks for a WebSocket; else the stream.
///
/// A request for a WebSocket begins with "GET", as others of HTTP begin with a method, and a TLS
/// connection with a handshake record's 22; a TCPStore client's first byte is zero.
pub(super) async fn serve(host: &Rc<Host>, stream: TcpStream) -> Option<TcpStream> {
    let mut first = [0];
    // Who says nothing gets a TCPStore server's patience.
    let peeked = tokio::time::timeout(GREETING, stream.peek(&mut first)).await;
    let local = stream.local_addr().ok().map(|address| address.ip());
    let ends = (local, stream.peer_addr().ok().map(|address| address.ip()));
    match (peeked, first) {
        (Ok(Ok(1)), [b'A'..=b'Z']) => {
            // Most clients are none: their tasks need not have the room for one.
            Box::pin(serve_over(host.clone(), stream, ends)).await;
        }
        #[cfg(feature = "tls")]
        (Ok(Ok(1)), [22]) if let Some(identity) = &host.web.identity => {
            match tokio::time::timeout(GREETING, identity.accept(stream)).await {
                Ok(Ok(stream)) => serve_over(host.clone(), stream, ends).await,
                Ok(Err(why)) => tracing::debug!("a TLS handshake failed: {why}"),
                Err(_) => tracing::debug!("a client took too long for its TLS handshake"),
            }
        }
        _ => return Some(stream),
    }
    None
}

/// Sends all clients what there is for them, then away; returns when the last of them has heard it.
/// Without it, the rank whose last request ends the server would not learn that it was carried
/// out, and would dial again and again.
pub(super) async fn end(host: &Host) {
    host.web.sessions.borrow_mut().begin_to_end();
    while host.web.sockets.get() > 0 {
        host.web.silence.notified().await;
    }
}

/// Ends the waits for clients that do not come back, as long as the server lives.
pub(super) async fn expire(host: Rc<Host>) {
    let web = &host.web;
    loop {
        let now_ms = web.now_ms();
        let due_ms = host.with_service(|service| web.sessions.borrow_mut().expire(now_ms, service));
        host.tell_woken(None);
        let absent = web.absence.notified();
        match due_ms {
            None => absent.await,
            Some(due_ms) => {
                let due = web.epoch + Duration::from_millis(due_ms);
                // Either way there is something to look at.
                let _ = tokio::time::timeout_at(due, absent).await;
            }
        }
    }
}

/// Serves a client whose connection has these ends, this server's and its own.
async fn serve_over<S>(host: Rc<Host>, stream: S, (local, source): (Option<IpAddr>, Option<IpAddr>))
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let socket = host.web.last_socket.get() + 1;
    host.web.last_socket.set(socket);
    host.web.sockets.set(host.web.sockets.get() + 1);
    let (stream, unfinished) = Measured::new(stream);
    let accepted = upgrade::accept(stream, &host.web.origins, local);
    match tokio::time::timeout(GREETING, accepted).await {
        Ok(Ok(stream)) => {
            let newcomer = Newcomer { socket, source };
            converse(&host, stream, &unfinished, newcomer).await;
        }
        Ok(Err(why)) => tracing::warn!("the store's server refused a WebSocket: {why}"),
        Err(_) => tracing::debug!("a client took too long to ask for a WebSocket"),
    }
    host.web.sockets.set(host.web.sockets.get() - 1);
    if host.web.sockets.get() == 0 {
        host.web.silence.notify_one();
    }
}

/// A client's packets, from its hello to the end of the socket.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    host: &Rc<Host>,
    stream: WebSocketStream<Measured<S>>,
    unfinished: &Unfinished,
    newcomer: Newcomer,
) {
    let mut socket = PacketSocket::new(stream);
    let hello = tokio::time::timeout(GREETING, socket.first_packet()).await;
    let greeted = match hello {
        Ok(Ok(packet)) => greet(host, &packet, newcomer).map_err(End::Fault),
        Ok(Err(end)) => Err(End::from(end)),
        Err(_) => Err(End::Refused(1008, "no hello came")),
    };
    let end = match greeted {
        Ok(number) => {
            let carried = SessionPackets { host, number, socket: newcomer.socket, unfinished };
            let end = socket::run(&mut socket, carried).await;
            over(host, number, newcomer.socket, &end);
            end
        }
        Err(end) => end,
    };
    tracing::debug!("a WebSocket of the store's server ends: {end}");
    if let Some((code, reason)) = end.answer() {
        dismiss(socket.into_stream(), code, &reason).await;
    }
}

fn greet(host: &Host, packet: &[u8], newcomer: Newcomer) -> Result<u64, Fault> {
    let token = crate::random::bytes().map(ResumeToken).map_err(|_| Fault::Overloaded)?;
    let greeted = host.with_service(|service| {
        host.web.sessions.borrow_mut().greet(packet, token, newcomer, service)
    });
    host.tell_woken(None);
    greeted
}

/// The socket is over, and its session too unless it may come back.
fn over(host: &Rc<Host>, number: u64, id: SocketId, end: &End) {
    let gone = |how| {
        host.with_service(|service| host.web.sessions.borrow_mut().end(number, how, service));
        host.tell_woken(None);
    };
    match end {
        // To call the ranks dead would have them blamed for the end of the store.
        End::Replaced | End::Fault(Fault::Ended) => {}
        End::Left => gone(RelayKind::Left),
        End::Fault(_) | End::Refused(..) => gone(RelayKind::Dead),
        End::Lost(_) => {
            let now_ms = host.web.now_ms();
            host.with_service(|service| {
                host.web.sessions.borrow_mut().lost(number, id, now_ms, service);
            });
            host.tell_woken(None);
            host.web.absence.notify_one();
        }
    }
}

/// Says why a client is sent away, and gives it time to learn that: closing while it still sends
/// would have the system throw the reason away.
async fn dismiss<S: AsyncRead + AsyncWrite + Unpin>(
    stream: WebSocketStream<Measured<S>>,
    code: u16,
    reason: &str,
) {
    let said = tokio::time::timeout(LINGER, async {
        let mut stream = stream;
        socket::close(&mut stream, code, reason).await;
        hear_out(stream.into_inner().into_inner()).await;
    });
    let _ = said.await;
}

/// Ends what is said to a client, and drops what it still sends, within limits.
async fn hear_out<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let heard = tokio::time::timeout(LINGER, async {
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
    let _ = heard.await;
}
