//! Frames for ranks that have only WebSockets: over ordered pipes of chunks, each of them a
//! WebSocket of its own or a channel through the store server. Knows nothing of schedules, groups
//! or stores.

mod direct;
mod greeting;
mod heartbeat;
#[cfg(feature = "websocket")]
pub(super) mod native;
mod peer;
mod pending_connections;
mod pipe;
mod reception;
mod redial;
mod socket;
#[cfg(test)]
pub(crate) mod tests;
mod transport;

#[cfg(any(target_family = "wasm", feature = "websocket"))]
pub(crate) use self::heartbeat::{Beat, Heartbeat};
#[cfg(feature = "websocket")]
pub use self::native::NativeDialer;
pub use self::pipe::{Acceptor, MAX_CHUNK_BYTES, Pipe, PipeState, Relay};
pub use self::reception::{ReceptionOptions, Source};
pub use self::socket::{
    Dialer, Socket, SocketClose, SocketEvent, close_code, dialer, install_dialer,
};
pub use self::transport::{Options, Route, WebSocketTransport};

use std::sync::Arc;

use crate::clock::Instant;

/// A pipe to the rank that answers at `urls`, which are dialled in turn, from `now` on.
pub fn dialed(
    dialer: Arc<dyn Dialer>,
    urls: Vec<String>,
    options: &Options,
    now: Instant,
) -> Box<dyn Pipe> {
    let Options { timeouts, grace_ms, .. } = *options;
    let refused_timeout = timeouts.refused_timeout;
    Box::new(direct::DirectPipe::client(dialer, urls, refused_timeout, grace_ms, now))
}

/// The pipes of peers that connect over sockets of `source`, which returns the next to arrive.
pub fn answered(source: Source, options: ReceptionOptions) -> Box<dyn Acceptor> {
    Box::new(reception::Reception::new(source, options))
}
