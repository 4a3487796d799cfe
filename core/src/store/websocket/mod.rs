//! The store over a WebSocket, with which browsers meet, and the relay of its server.
//! Knows nothing of process groups.
//!
//! ```text
//!  WebSocketStore ─ requests ─▶ Client ─ packets ─▶ native: a thread with a socket
//!  RelayedPipe ──── chunks ───▶ (Link)              ClientConnection: sockets of its mover
//! ```

mod attempts;
mod bell;
#[cfg(feature = "websocket")]
mod blocking;
mod client;
#[cfg(feature = "websocket")]
mod connect;
mod connection;
mod link;
#[cfg(feature = "websocket")]
mod measured;
#[cfg(feature = "websocket")]
mod native;
#[cfg(feature = "websocket")]
mod packets;
mod pipes;
mod relayed;
mod requests;
#[cfg(feature = "websocket")]
mod socket;
mod store;
#[cfg(all(test, feature = "websocket"))]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "websocket")]
mod url;

pub use client::{Client, PacketMover};
pub use connection::{ClientConnection, ConnectionUse};
#[cfg(feature = "websocket")]
pub(in crate::store) use measured::{Measured, Unfinished};
#[cfg(feature = "websocket")]
pub(in crate::store) use packets::{Ended, PacketSocket, Packets};
pub use store::WebSocketStore;
