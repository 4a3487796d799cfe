//! One WebSocket of a store's server: whose session it carries, and what its end means for that.
//! Knows nothing of handshakes or of what packets mean.

use std::future::poll_fn;
use std::task::Context;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::sessions::{Fault, SocketId};
use crate::store::tcp::server::host::Host;
use crate::store::websocket::{Ended, PacketSocket, Packets, Unfinished};
use crate::transport::websocket::close_code;
use crate::wire::session::Packet;

/// Most bytes of a close frame's reason.
const MAX_REASON_BYTES: usize = 123;

/// How a socket ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it cleanly, so that it does not come back.
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

impl From<Ended<Option<Fault>>> for End {
    fn from(ended: Ended<Option<Fault>>) -> End {
        match ended {
            Ended::Closed(closed) => match closed.code {
                // What browsers say for a page that is gone, and programs that are done.
                close_code::NORMAL | close_code::GOING_AWAY | close_code::NO_STATUS => End::Left,
                code => End::Lost(format!("the client closed it with code {code}")),
            },
            Ended::Lost(why) => End::Lost(why),
            Ended::Refused(code, why) => End::Refused(code, why),
            Ended::Fault(None) => End::Replaced,
            Ended::Fault(Some(fault)) => End::Fault(fault),
        }
    }
}

/// The packets of a session, as long as `socket` is its socket.
pub(super) struct SessionPackets<'a> {
    pub(super) host: &'a Host,
    pub(super) number: u64,
    pub(super) socket: SocketId,
    /// To be set back when a packet came.
    pub(super) unfinished: &'a Unfinished,
}

/// Moves `packets` until the socket ends.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut PacketSocket<S>,
    mut packets: SessionPackets<'_>,
) -> End {
    poll_fn(|context| socket.poll_run(&mut packets, context)).await.into()
}

impl Packets for SessionPackets<'_> {
    /// None: the session has another socket.
    type Fault = Option<Fault>;

    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), Option<Fault>> {
        let mut sessions = self.host.web.sessions.borrow_mut();
        sessions.claim(self.number, self.socket, context.waker())
    }

    fn next_packet(&mut self) -> Result<Option<Packet>, Option<Fault>> {
        let next = self.host.with_service(|service| {
            self.host.web.sessions.borrow_mut().next_packet(self.number, service)
        });
        self.host.tell_woken(None);
        next.map_err(Some)
    }

    fn receive(&mut self, packet: Vec<u8>) -> Result<(), Option<Fault>> {
        self.unfinished.set(0);
        let received = self.host.with_service(|service| {
            self.host.web.sessions.borrow_mut().receive(self.number, packet, service)
        });
        self.host.tell_woken(None);
        received.map_err(Some)?;
        if self.host.is_overloaded() {
            // The session that keeps most has to go, rarely the one that comes last. If it is, it
            // learns so in its next turn.
            self.host.relieve(0);
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        self.host.web.sessions.borrow_mut().acknowledge(self.number);
    }
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
