//! One WebSocket of a store's server: packets of its session in and out, pings, and how it ended.
//! Knows nothing of handshakes or of what packets mean.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as SocketError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::sessions::{Fault, SocketId};
use crate::store::tcp::server::connection::Host;

/// Time between two pings.
const PING: Duration = Duration::from_secs(10);
/// Without any sign of life for so long, the socket is lost.
const SILENCE: Duration = Duration::from_secs(30);
/// Packets that one socket moves before another gets its turn.
const TURN: usize = 32;
/// Most bytes of a close frame's reason.
const MAX_REASON_BYTES: usize = 123;

/// A WebSocket whose handshake is done.
pub(super) struct Socket<S> {
    stream: WebSocketStream<S>,
    pings: Interval,
    heard: Instant,
}

/// How a socket ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it in order, so that it does not come back.
    Left,
    /// It broke, or is silent: the client may come back.
    Lost(String),
    /// Its session has another socket now.
    Replaced,
    /// The session broke a rule.
    Fault(Fault),
    /// The socket broke a rule.
    Refused(u16, &'static str),
}

impl End {
    /// Close code and reason for the client, if it is to hear one.
    pub(super) fn answer(&self) -> Option<(u16, String)> {
        match self {
            End::Left | End::Lost(_) => None,
            End::Replaced => Some((1008, "the session goes on with another socket".into())),
            End::Fault(fault) => Some((fault.close_code(), fault.to_string())),
            End::Refused(code, why) => Some((*code, (*why).into())),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Left => f.write_str("the client left"),
            End::Lost(why) => write!(f, "it was lost: {why}"),
            other => {
                let (code, why) = other.answer().unwrap_or_default();
                write!(f, "{why} ({code})")
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) fn new(stream: WebSocketStream<S>) -> Socket<S> {
        let mut pings = tokio::time::interval(PING);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        Socket { stream, pings, heard: Instant::now() }
    }

    pub(super) fn into_stream(self) -> WebSocketStream<S> {
        self.stream
    }

    /// The first packet that the client sends.
    pub(super) async fn first_packet(&mut self) -> Result<Vec<u8>, End> {
        poll_fn(|context| self.poll_packet(context)).await
    }

    /// Moves packets until the socket ends.
    pub(super) async fn run(&mut self, host: &Host, number: u64, id: SocketId) -> End {
        poll_fn(|context| self.poll_run(host, number, id, context)).await
    }

    fn poll_run(
        &mut self,
        host: &Host,
        number: u64,
        id: SocketId,
        context: &mut Context<'_>,
    ) -> Poll<End> {
        let claimed = host.web.sessions.borrow_mut().claim(number, id, context.waker());
        if let Err(fault) = claimed {
            return Poll::Ready(fault.map_or(End::Replaced, End::Fault));
        }
        if let Some(end) = self.poll_alive(host, number, context) {
            return Poll::Ready(end);
        }
        for _ in 0..TURN {
            if let Err(end) = self.write(host, number, context) {
                return Poll::Ready(end);
            }
            let packet = match ready!(self.poll_packet(context)) {
                Ok(packet) => packet,
                Err(end) => return Poll::Ready(end),
            };
            let received = host.with_service(|service| {
                host.web.sessions.borrow_mut().receive(number, packet, service)
            });
            host.tell_woken(None);
            if let Err(fault) = received {
                return Poll::Ready(End::Fault(fault));
            }
            if host.is_overloaded() {
                // Whoever keeps most has to go, which is rarely the one who comes last.
                host.relieve(0);
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what the socket takes.
    fn write(&mut self, host: &Host, number: u64, context: &mut Context<'_>) -> Result<(), End> {
        let lost = |error: SocketError| End::Lost(error.to_string());
        let mut stream = Pin::new(&mut self.stream);
        loop {
            match stream.as_mut().poll_ready(context) {
                Poll::Ready(ready) => ready.map_err(lost)?,
                // The rest follows when the socket takes bytes again.
                Poll::Pending => return Ok(()),
            }
            let next = host.with_service(|service| {
                host.web.sessions.borrow_mut().next_packet(number, service)
            });
            host.tell_woken(None);
            let Some(packet) = next.map_err(End::Fault)? else { break };
            stream.as_mut().start_send(Message::Binary(Bytes::from_owner(packet))).map_err(lost)?;
        }
        // What an earlier flush left behind goes now, even if nothing was added to it.
        if let Poll::Ready(flushed) = stream.poll_flush(context) {
            flushed.map_err(lost)?;
        }
        Ok(())
    }

    fn poll_packet(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, End>> {
        loop {
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Err(End::Lost("it was closed".into())));
            };
            self.heard = Instant::now();
            return Poll::Ready(match message {
                Ok(Message::Binary(packet)) => Ok(packet.into()),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
                Ok(Message::Text(_)) => Err(End::Refused(1003, "polyrank speaks no text")),
                Ok(Message::Close(frame)) => Err(match frame.map(|frame| u16::from(frame.code)) {
                    None | Some(1000 | 1001 | 1005) => End::Left,
                    Some(code) => End::Lost(format!("the client closed it with code {code}")),
                }),
                Err(SocketError::Capacity(CapacityError::MessageTooLong { .. })) => {
                    Err(End::Refused(1009, "the message is longer than a packet may be"))
                }
                Err(SocketError::Protocol(error)) if is_sent(&error) => {
                    Err(End::Refused(1002, "a WebSocket frame is malformed"))
                }
                Err(SocketError::Utf8(_)) => Err(End::Refused(1007, "text is not UTF-8")),
                Err(error) => Err(End::Lost(error.to_string())),
            });
        }
    }

    /// Pings when it is time to; an end if nothing was heard for long.
    fn poll_alive(&mut self, host: &Host, number: u64, context: &mut Context<'_>) -> Option<End> {
        while self.pings.poll_tick(context).is_ready() {
            if self.heard.elapsed() >= SILENCE {
                return Some(End::Lost(format!("nothing came for {} s", SILENCE.as_secs())));
            }
            // A page sees no pings, but it sees this.
            host.web.sessions.borrow_mut().acknowledge(number);
            let mut stream = Pin::new(&mut self.stream);
            if let Poll::Ready(Ok(())) = stream.as_mut().poll_ready(context) {
                // If it fails, so does the next read.
                let _ = stream.as_mut().start_send(Message::Ping(Bytes::new()));
                let _ = stream.poll_flush(context);
            }
        }
        None
    }
}

/// Whether the client sent what it must not, rather than nothing any more.
fn is_sent(error: &tokio_tungstenite::tungstenite::error::ProtocolError) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError::*;
    !matches!(error, ResetWithoutClosingHandshake | SendAfterClosing | ReceivedAfterClosing)
}

/// Sends a close frame.
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut WebSocketStream<S>,
    code: u16,
    reason: &str,
) {
    let end = reason.floor_char_boundary(MAX_REASON_BYTES);
    let frame = CloseFrame { code: code.into(), reason: reason[..end].into() };
    // A client that is gone needs no reason.
    let _ = stream.close(Some(frame)).await;
}
