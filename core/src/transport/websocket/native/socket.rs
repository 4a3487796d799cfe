//! A WebSocket by tungstenite, of either side, from the first byte of the upgrade to the end. Knows
//! nothing of what it carries.

use std::io::ErrorKind;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response};
use tungstenite::handshake::{HandshakeError, MidHandshake};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{ClientHandshake, Error, Message, ServerHandshake, WebSocket};

use super::super::socket::{Socket, SocketClose, SocketEvent, close_code};
use super::connect::PendingConnect;
use super::wire::BufferedSocket;
use crate::clock::Instant;
use crate::transport::Interest;
use crate::wire::session::MAX_PACKET_BYTES;

/// Bytes that one system call reads.
const READ_BYTES: usize = 128 << 10;
/// Most bytes of a frame's header.
const FRAME_HEADER_BYTES: u64 = 14;
/// Most bytes of the reason of a close.
const REASON_BYTES: usize = 123;
/// How long, and for how many bytes, the other side is read after it was told of its error.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;
/// Most of these bytes that one call reads.
const LINGER_TURN_BYTES: usize = 128 << 10;

/// A WebSocket of this process.
pub(super) struct NativeSocket {
    stage: Stage,
    /// Kept for [`Socket::interest`].
    fd: Option<Arc<OwnedFd>>,
    /// An upper bound of the bytes that tungstenite holds back.
    pending_bytes: u64,
    /// The close that was requested before it could be sent.
    closing: Option<(u16, String)>,
}

type AcceptHandshake = MidHandshake<ServerHandshake<BufferedSocket, Guard>>;
type DialHandshake = MidHandshake<ClientHandshake<BufferedSocket>>;

enum Stage {
    Connecting(PendingConnect),
    Dialing(DialHandshake),
    Accepting(AcceptHandshake),
    /// The upgrade has just succeeded; the next event is [`SocketEvent::Opened`].
    Opened(Box<WebSocket<BufferedSocket>>),
    Open(Box<WebSocket<BufferedSocket>>),
    /// The other side was told of its error; what it still sends is dropped until it has read that.
    Lingering(LingeringSocket),
    /// It is over, but that was not reported yet.
    Ended(SocketClose),
    Over,
}

/// A socket that was closed because of an error of the other side. If the system closed it while
/// bytes still arrive, that would be a reset, which overtakes the reason.
struct LingeringSocket {
    socket: Box<WebSocket<BufferedSocket>>,
    closed: SocketClose,
    until: Instant,
    left_bytes: usize,
}

impl LingeringSocket {
    /// Drops what arrived. Returns whether the other side is done, or has had enough time.
    fn is_over(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        for _ in 0..LINGER_TURN_BYTES / buffer.len() {
            match self.socket.get_mut().take(&mut buffer) {
                Ok(bytes) if bytes > 0 && bytes < self.left_bytes => self.left_bytes -= bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => return true,
            }
        }
        Instant::now() >= self.until
    }
}

/// Judges a client's request to upgrade; an error is the text of the answer.
pub(super) struct Guard(pub(super) Judge);

type Judge = Box<dyn FnOnce(&Request) -> Result<(), String> + Send>;

impl Callback for Guard {
    #[allow(clippy::result_large_err, reason = "the trait wants it so")]
    fn on_request(self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        (self.0)(request).map(|()| response).map_err(|why| {
            let mut refusal = ErrorResponse::new(Some(why));
            *refusal.status_mut() = tungstenite::http::StatusCode::FORBIDDEN;
            refusal
        })
    }
}

impl NativeSocket {
    /// The side that dials.
    pub(super) fn dial(connecting: PendingConnect) -> NativeSocket {
        let fd = Some(connecting.fd().clone());
        NativeSocket { stage: Stage::Connecting(connecting), fd, pending_bytes: 0, closing: None }
    }

    /// The side that was dialled: `before` are the bytes that were read already.
    pub(super) fn accept(socket: OwnedFd, before: Vec<u8>, guard: Guard) -> NativeSocket {
        let fd = Arc::new(socket);
        let wire = BufferedSocket::new(fd.clone(), before);
        let accepted = tungstenite::accept_hdr_with_config(wire, guard, Some(config()));
        let stage = accepting(accepted);
        NativeSocket { stage, fd: Some(fd), pending_bytes: 0, closing: None }
    }

    /// Continues with the upgrade, if one is under way.
    fn upgrade(&mut self) {
        self.stage = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Connecting(mut connecting) => match connecting.advance() {
                Ok(false) => Stage::Connecting(connecting),
                Ok(true) => {
                    let (request, wire) = connecting.into_parts();
                    dialing(tungstenite::client::client_with_config(request, wire, Some(config())))
                }
                Err(why) => Stage::Ended(broken(why)),
            },
            Stage::Dialing(dialing_on) => dialing(dialing_on.handshake()),
            Stage::Accepting(accepting_on) => accepting(accepting_on.handshake()),
            stage => stage,
        };
        if let Stage::Opened(_) = &self.stage
            && let Some((code, reason)) = self.closing.take()
        {
            self.close(code, &reason);
        }
    }

    /// Does something with the open socket; an error ends it.
    fn with<R>(
        &mut self,
        change: impl FnOnce(&mut WebSocket<BufferedSocket>) -> Result<R, Error>,
    ) -> Option<R> {
        let (Stage::Open(socket) | Stage::Opened(socket)) = &mut self.stage else {
            return None;
        };
        let before_bytes = socket.get_ref().written_bytes;
        let outcome = change(socket);
        let left_bytes = socket.get_ref().written_bytes - before_bytes;
        self.pending_bytes = self.pending_bytes.saturating_sub(left_bytes);
        match outcome {
            Ok(result) => Some(result),
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// Writes out what tungstenite has held back.
    fn flush(&mut self) {
        if self.with(WebSocket::flush).is_some() {
            self.pending_bytes = 0;
        }
    }

    /// Ends the socket after an error. If it is the other side's, that side is told.
    fn fail(&mut self, error: Error) {
        let closed = match error {
            Error::ConnectionClosed | Error::AlreadyClosed => {
                SocketClose { clean: true, code: close_code::NORMAL, reason: String::new() }
            }
            Error::Capacity(_) => return self.accuse(close_code::TOO_BIG, &error),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                broken("the connection ended without a closing handshake".to_owned())
            }
            Error::Io(ref why) if why.kind() == ErrorKind::InvalidData => {
                return self.accuse(close_code::POLICY, why);
            }
            Error::Protocol(_) | Error::Utf8(_) => {
                return self.accuse(close_code::PROTOCOL, &error);
            }
            other => broken(other.to_string()),
        };
        self.stage = Stage::Ended(closed);
    }

    /// Closes because of an error of the other side.
    fn accuse(&mut self, code: u16, why: &dyn std::fmt::Display) {
        let reason = why.to_string();
        self.stage = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(mut socket) | Stage::Opened(mut socket) => {
                // This is the end, even if the close cannot be sent.
                let _ = socket.close(Some(frame(code, &reason)));
                socket.get_mut().end_writing();
                let closed = SocketClose { clean: true, code, reason };
                let until = Instant::now() + LINGER;
                Stage::Lingering(LingeringSocket {
                    socket,
                    closed,
                    until,
                    left_bytes: LINGER_BYTES,
                })
            }
            _ => Stage::Ended(SocketClose { clean: true, code, reason }),
        };
    }

    /// Gives the other side time to read the reason; returns the end after that.
    fn linger(&mut self) {
        if let Stage::Lingering(lingering) = &mut self.stage
            && lingering.is_over()
        {
            let closed = lingering.closed.clone();
            self.stage = Stage::Ended(closed);
        }
    }

    /// The next event from the other side.
    fn hear(&mut self) -> Option<SocketEvent> {
        loop {
            let message = self.with(|socket| {
                let read = socket.read();
                if read.is_ok() {
                    socket.get_mut().read_bytes = 0;
                }
                read
            })?;
            return Some(match message {
                Message::Binary(packet) => SocketEvent::Packet(packet),
                Message::Ping(_) | Message::Pong(_) => SocketEvent::Alive,
                Message::Text(_) => {
                    let why = "a text message came where only binary ones are expected";
                    self.accuse(close_code::UNSUPPORTED, &why);
                    return None;
                }
                Message::Close(frame) => {
                    // The answer leaves, if there is room for it.
                    self.flush();
                    self.stage = Stage::Over;
                    let code = frame.as_ref().map_or(close_code::NO_STATUS, |it| it.code.into());
                    let reason = frame.map_or(String::new(), |frame| frame.reason.to_string());
                    SocketEvent::Closed(SocketClose { clean: true, code, reason })
                }
                Message::Frame(_) => continue,
            });
        }
    }
}

impl Socket for NativeSocket {
    fn send(&mut self, packet: Bytes) {
        let bytes = packet.len() as u64 + FRAME_HEADER_BYTES;
        if self.with(|socket| Ok(socket.can_write())).unwrap_or(false) {
            self.pending_bytes += bytes;
            self.with(|socket| socket.write(Message::Binary(packet)));
            self.flush();
        }
    }

    fn buffered(&self) -> usize {
        usize::try_from(self.pending_bytes).unwrap_or(usize::MAX)
    }

    fn receive(&mut self) -> Option<SocketEvent> {
        self.upgrade();
        if self.pending_bytes > 0 {
            self.flush();
        }
        let event = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::Opened(socket) => {
                self.stage = Stage::Open(socket);
                Some(SocketEvent::Opened)
            }
            Stage::Open(socket) => {
                self.stage = Stage::Open(socket);
                self.hear()
            }
            stage => {
                self.stage = stage;
                None
            }
        };
        self.linger();
        if event.is_none() && matches!(self.stage, Stage::Ended(_)) {
            let ended = mem::replace(&mut self.stage, Stage::Over);
            let Stage::Ended(closed) = ended else { return None };
            return Some(SocketEvent::Closed(closed));
        }
        event
    }

    fn ping(&mut self) {
        if self.with(|socket| Ok(socket.can_write())).unwrap_or(false) {
            self.pending_bytes += FRAME_HEADER_BYTES;
            self.with(|socket| socket.write(Message::Ping(Bytes::new())));
            self.flush();
        }
    }

    fn close(&mut self, code: u16, reason: &str) {
        match &self.stage {
            Stage::Open(_) | Stage::Opened(_) => {
                self.pending_bytes += FRAME_HEADER_BYTES + reason.len() as u64;
                let close = frame(code, reason);
                if self.with(|socket| socket.close(Some(close))).is_some() {
                    self.pending_bytes = 0;
                }
            }
            Stage::Lingering(_) | Stage::Ended(_) | Stage::Over => {}
            _ => self.closing = Some((code, reason.to_owned())),
        }
    }

    fn interest(&self) -> Option<Interest> {
        let writable = match &self.stage {
            Stage::Connecting(_) => true,
            Stage::Dialing(dialing) => dialing.get_ref().get_ref().is_full,
            Stage::Accepting(accepting) => accepting.get_ref().get_ref().is_full,
            // There is an event to report immediately.
            Stage::Opened(_) | Stage::Ended(_) => true,
            Stage::Open(_) => self.pending_bytes > 0,
            Stage::Lingering(_) => false,
            Stage::Over => return None,
        };
        self.fd.clone().map(|fd| Interest { fd, writable })
    }
}

/// Messages are packets of a session and never longer; each is written at once.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_PACKET_BYTES))
        .max_frame_size(Some(MAX_PACKET_BYTES))
}

fn accepting(
    outcome: Result<
        WebSocket<BufferedSocket>,
        HandshakeError<ServerHandshake<BufferedSocket, Guard>>,
    >,
) -> Stage {
    match outcome {
        Ok(socket) => Stage::Opened(Box::new(socket)),
        Err(HandshakeError::Interrupted(accepting)) => Stage::Accepting(accepting),
        Err(HandshakeError::Failure(error)) => Stage::Ended(broken(error.to_string())),
    }
}

fn dialing<T>(
    outcome: Result<
        (WebSocket<BufferedSocket>, T),
        HandshakeError<ClientHandshake<BufferedSocket>>,
    >,
) -> Stage {
    match outcome {
        Ok((socket, _)) => Stage::Opened(Box::new(socket)),
        Err(HandshakeError::Interrupted(dialing)) => Stage::Dialing(dialing),
        Err(HandshakeError::Failure(error)) => Stage::Ended(broken(error.to_string())),
    }
}

fn broken(reason: String) -> SocketClose {
    SocketClose { clean: false, code: close_code::ABNORMAL, reason }
}

fn frame(code: u16, reason: &str) -> CloseFrame {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    CloseFrame { code: CloseCode::from(code), reason: reason[..end].into() }
}
