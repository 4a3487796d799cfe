//! One transport out of two: some ranks are reached by TCP, the others by WebSocket, which come to
//! the same port. Knows nothing of schedules or groups.

use super::tcp::TcpTransport;
use super::websocket::WebSocketTransport;
use super::websocket::native::{Arrivals, Upgrade};
use super::{Interest, Payload, Rank, Sink, Transport};
use crate::clock::Instant;
use crate::wire::frame::Header;

/// Frames over TCP and over WebSockets.
pub(super) struct MixedTransport {
    tcp: TcpTransport,
    websocket: WebSocketTransport,
    /// Takes the connections that came to the TCP port and are WebSockets.
    arrivals: Arrivals,
    /// By rank: whether it is reached by WebSocket.
    is_web: Vec<bool>,
}

impl MixedTransport {
    pub(super) fn new(
        mut tcp: TcpTransport,
        websocket: WebSocketTransport,
        arrivals: Arrivals,
        is_web: Vec<bool>,
    ) -> MixedTransport {
        tcp.keep_web();
        MixedTransport { tcp, websocket, arrivals, is_web }
    }

    fn way(&mut self, peer: Rank) -> &mut dyn Transport {
        match self.is_web.get(peer as usize) {
            Some(true) => &mut self.websocket,
            _ => &mut self.tcp,
        }
    }
}

impl Transport for MixedTransport {
    fn rank(&self) -> Rank {
        self.tcp.rank()
    }

    fn size(&self) -> u32 {
        self.tcp.size()
    }

    fn send(&mut self, peer: Rank, header: Header, payload: Payload) {
        self.way(peer).send(peer, header, payload);
    }

    fn send_at_once(&mut self, peer: Rank, header: Header, payload: &[u8]) -> bool {
        self.way(peer).send_at_once(peer, header, payload)
    }

    fn eager_bytes(&self, peer: Rank) -> usize {
        match self.is_web.get(peer as usize) {
            Some(true) => self.websocket.eager_bytes(peer),
            _ => self.tcp.eager_bytes(peer),
        }
    }

    fn unasked_bytes(&self, peer: Rank, message_bytes: usize) -> usize {
        match self.is_web.get(peer as usize) {
            Some(true) => self.websocket.unasked_bytes(peer, message_bytes),
            _ => self.tcp.unasked_bytes(peer, message_bytes),
        }
    }

    fn connect(&mut self, peer: Rank) {
        self.way(peer).connect(peer);
    }

    fn advance(&mut self, sink: &mut dyn Sink) -> bool {
        let moved = self.tcp.advance(sink);
        for (socket, bytes) in self.tcp.take_web() {
            // It is refused only by a transport that was closed.
            let _ = self.arrivals.send(Upgrade { socket, bytes });
        }
        self.websocket.advance(sink) || moved
    }

    fn interests(&self, interests: &mut Vec<Interest>) {
        self.tcp.interests(interests);
        self.websocket.interests(interests);
    }

    fn deadline(&self) -> Option<Instant> {
        self.tcp.deadline().into_iter().chain(self.websocket.deadline()).min()
    }

    fn abandon(&mut self) {
        self.tcp.abandon();
        self.websocket.abandon();
    }

    fn close(&mut self, orderly: bool) {
        self.tcp.close(orderly);
        self.websocket.close(orderly);
    }
}
