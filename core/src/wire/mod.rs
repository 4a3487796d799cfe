//! Bytes of the ranks' own protocol. Pure; knows nothing of sockets, clocks or schedules.

pub mod abort;
pub mod card;
pub mod channel;
pub mod exchange;
pub mod fingerprint;
pub mod frame;
pub mod handshake;
pub mod numbers;
pub mod origin;
pub mod session;
