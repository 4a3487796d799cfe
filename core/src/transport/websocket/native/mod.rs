//! WebSockets of this process, by tungstenite on sockets that do not block: those that it opens, and
//! those that come to its data port. Knows nothing of what they carry.

mod arrivals;
mod connect;
mod socket;
mod wire;

pub(in crate::transport) use self::arrivals::{Arrivals, Upgrade, arrivals};
pub use self::connect::NativeDialer;
