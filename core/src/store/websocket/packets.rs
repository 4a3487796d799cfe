//! One WebSocket that carries packets, at either end: packets in and out, pings, and how it ended.
//! Knows nothing of what packets mean, or of what comes after the socket.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::measured::TooMuch;
use crate::clock::Instant;
use crate::transport::websocket::{Beat, Heartbeat, SocketClose, close_code};
use crate::wire::session::Packet;

/// Packets that one socket moves before another gets its turn.
const TURN: usize = 32;

/// A WebSocket whose handshake is done.
pub(in crate::store) struct PacketSocket<S> {
    stream: WebSocketStream<S>,
    /// Wakes the task for the next beat.
    timer: Pin<Box<Sleep>>,
    heartbeat: Heartbeat,
}

/// Who sends and receives the packets of a socket.
pub(in crate::store) trait Packets {
    /// Why it wants no more of the socket.
    type Fault;
    /// The socket is about to move packets; `context` is to be woken when there are others.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), Self::Fault>;
    /// The next packet for the socket.
    fn next_packet(&mut self) -> Result<Option<Packet>, Self::Fault>;
    /// A packet that came.
    fn receive(&mut self, packet: Vec<u8>) -> Result<(), Self::Fault>;
    /// It is time for a sign of life: pages see no pings, but they see packets.
    fn acknowledge(&mut self);
}

/// How a socket ended.
#[derive(Debug)]
pub(in crate::store) enum Ended<F> {
    /// The other side closed it.
    Closed(SocketClose),
    /// It broke, or is silent.
    Lost(String),
    /// The other side broke a rule of sockets: the code to close it with, and why.
    Refused(u16, &'static str),
    /// The owner of the packets wants no more.
    Fault(F),
}

impl<S: AsyncRead + AsyncWrite + Unpin> PacketSocket<S> {
    pub(in crate::store) fn new(stream: WebSocketStream<S>) -> PacketSocket<S> {
        let heartbeat = Heartbeat::new(Instant::now());
        let timer = Box::pin(sleep_until(heartbeat.next().into()));
        PacketSocket { stream, timer, heartbeat }
    }

    pub(in crate::store) fn stream(&mut self) -> &mut WebSocketStream<S> {
        &mut self.stream
    }

    pub(in crate::store) fn into_stream(self) -> WebSocketStream<S> {
        self.stream
    }

    /// The first packet that the other side sends.
    pub(in crate::store) async fn first_packet<F>(&mut self) -> Result<Vec<u8>, Ended<F>> {
        poll_fn(|context| self.poll_packet(context)).await
    }

    /// Moves packets until the socket ends.
    pub(in crate::store) fn poll_run<P: Packets>(
        &mut self,
        packets: &mut P,
        context: &mut Context<'_>,
    ) -> Poll<Ended<P::Fault>> {
        if let Err(fault) = packets.begin(context) {
            return Poll::Ready(Ended::Fault(fault));
        }
        if let Some(end) = self.poll_alive(packets, context) {
            return Poll::Ready(end);
        }
        for _ in 0..TURN {
            if let Err(end) = self.write(packets, context) {
                return Poll::Ready(end);
            }
            let packet = match ready!(self.poll_packet(context)) {
                Ok(packet) => packet,
                Err(end) => return Poll::Ready(end),
            };
            if let Err(fault) = packets.receive(packet) {
                return Poll::Ready(Ended::Fault(fault));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what the socket takes.
    pub(in crate::store) fn write<P: Packets>(
        &mut self,
        packets: &mut P,
        context: &mut Context<'_>,
    ) -> Result<(), Ended<P::Fault>> {
        let lost = |error: Error| Ended::Lost(error.to_string());
        let mut stream = Pin::new(&mut self.stream);
        loop {
            match stream.as_mut().poll_ready(context) {
                Poll::Ready(ready) => ready.map_err(lost)?,
                // The rest follows when the socket takes bytes again.
                Poll::Pending => return Ok(()),
            }
            let Some(packet) = packets.next_packet().map_err(Ended::Fault)? else { break };
            stream.as_mut().start_send(Message::Binary(Bytes::from_owner(packet))).map_err(lost)?;
        }
        // What an earlier flush left behind goes now, even if nothing was added to it.
        if let Poll::Ready(flushed) = stream.poll_flush(context) {
            flushed.map_err(lost)?;
        }
        Ok(())
    }

    fn poll_packet<F>(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, Ended<F>>> {
        loop {
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Err(Ended::Lost("it was closed".into())));
            };
            self.heartbeat.heard(Instant::now());
            return Poll::Ready(match message {
                Ok(Message::Binary(packet)) => Ok(packet.into()),
                Ok(Message::Ping(_) | Message::Pong(_)) if self.heartbeat.allows_sign() => {
                    continue;
                }
                Ok(Message::Ping(_) | Message::Pong(_)) => {
                    Err(Ended::Refused(1008, "too many pings"))
                }
                Ok(Message::Frame(_)) => continue,
                Ok(Message::Text(_)) => Err(Ended::Refused(1003, "polyrank speaks no text")),
                Ok(Message::Close(frame)) => {
                    let code = frame.as_ref().map_or(close_code::NO_STATUS, |it| it.code.into());
                    let reason = frame.map_or(String::new(), |frame| frame.reason.to_string());
                    Err(Ended::Closed(SocketClose { clean: true, code, reason }))
                }
                Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                    Err(Ended::Refused(1009, "the message is longer than a packet may be"))
                }
                Err(Error::Protocol(error)) if is_sent(&error) => {
                    Err(Ended::Refused(1002, "a WebSocket frame is malformed"))
                }
                Err(Error::Utf8(_)) => Err(Ended::Refused(1007, "text is not UTF-8")),
                Err(Error::Io(why)) if why.get_ref().is_some_and(|why| why.is::<TooMuch>()) => {
                    Err(Ended::Refused(1008, "too many bytes came without a message"))
                }
                Err(error) => Err(Ended::Lost(error.to_string())),
            });
        }
    }

    /// Pings when it is time to; an end if nothing was heard for long.
    fn poll_alive<P: Packets>(
        &mut self,
        packets: &mut P,
        context: &mut Context<'_>,
    ) -> Option<Ended<P::Fault>> {
        loop {
            match self.heartbeat.beat(Instant::now()) {
                Beat::NotDue if self.timer.as_mut().poll(context).is_pending() => return None,
                Beat::NotDue => {
                    self.timer.as_mut().reset(self.heartbeat.next().into());
                    continue;
                }
                Beat::Silent => return Some(Ended::Lost(Heartbeat::silence())),
                Beat::Due => packets.acknowledge(),
            }
            self.timer.as_mut().reset(self.heartbeat.next().into());
            let mut stream = Pin::new(&mut self.stream);
            if let Poll::Ready(Ok(())) = stream.as_mut().poll_ready(context) {
                // If it fails, so does the next read.
                let _ = stream.as_mut().start_send(Message::Ping(Bytes::new()));
                let _ = stream.poll_flush(context);
            }
        }
    }
}

/// Whether the other side sent what it must not, rather than nothing any more.
fn is_sent(error: &ProtocolError) -> bool {
    use ProtocolError::*;
    !matches!(error, ResetWithoutClosingHandshake | SendAfterClosing | ReceivedAfterClosing)
}
