//! Bytes of the ranks' own protocol. Pure; knows nothing of sockets, clocks or schedules.

pub mod abort;
pub mod fingerprint;
pub mod frame;
