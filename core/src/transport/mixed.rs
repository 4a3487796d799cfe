//! A transport to ranks that are reached by TCP and ranks that are reached by WebSocket, through
//! the same port. Knows nothing of schedules or groups.

use super::router::{Router, TurnOrder};
use super::tcp::TcpTransport;
use super::websocket::WebSocketTransport;
use super::websocket::native::{Arrivals, Upgrade};
use super::{Sink, Transport};

/// Frames over TCP and over WebSockets.
pub(super) type MixedTransport = Router<TcpTransport, WebSocketTransport, SharedPort>;

/// Turns in which WebSockets get the connections that came to the TCP port and are theirs.
pub(super) struct SharedPort(Arrivals);

/// The transport by TCP to the ranks of which `is_tcp` is true, and by WebSocket to the others.
pub(super) fn transport(
    mut tcp: TcpTransport,
    websocket: WebSocketTransport,
    arrivals: Arrivals,
    is_tcp: Vec<bool>,
) -> MixedTransport {
    tcp.keep_web();
    Router::new(tcp, Box::new(websocket), is_tcp, SharedPort(arrivals))
}

impl TurnOrder<TcpTransport, WebSocketTransport> for SharedPort {
    fn advance(
        &mut self,
        tcp: &mut TcpTransport,
        websocket: &mut WebSocketTransport,
        sink: &mut dyn Sink,
    ) -> bool {
        let moved = tcp.advance(sink);
        for (socket, bytes) in tcp.take_web() {
            // Only a transport that was closed refuses it.
            let _ = self.0.send(Upgrade { socket, bytes });
        }
        websocket.advance(sink) || moved
    }
}
