//! WebSockets of this process, by tungstenite on sockets that do not block: those that it opens,
//! and those that come to its data port. Knows nothing of what they carry.

mod arrivals;
mod connect;
mod dialer;
mod socket;
mod wire;

pub(in crate::transport) use self::arrivals::{Arrivals, Upgrade};
pub use self::dialer::NativeDialer;
use super::{Acceptor, ReceptionOptions, answered};
use crate::env::WebSocketEnvironment;

/// The pipes of peers that connect by WebSocket through the door that is returned.
pub(in crate::transport) fn listening(
    settings: WebSocketEnvironment,
) -> (Arrivals, Box<dyn Acceptor>) {
    let mut options = ReceptionOptions::default();
    if let Some(grace_ms) = settings.reconnect_grace_ms {
        options.grace_ms = grace_ms;
        options.longest_grace_ms = options.longest_grace_ms.max(grace_ms);
    }
    let (arrivals, source) = arrivals::arrivals(settings.allowed_origins);
    (arrivals, answered(source, options))
}
