//! The store over a WebSocket, with which browsers meet, and the relay of its server.
//! Knows nothing of process groups.

mod client;
mod link;
mod pipes;
mod requests;

pub use client::Client;
