//! One WebSocket of binary messages, provided by tungstenite or by a browser. Knows nothing of what
//! the messages say.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::generated::error::Result;
use crate::transport::Interest;

/// Codes of closing that have a meaning here (RFC 6455, section 7.4).
pub mod close_code {
    /// It is over, cleanly.
    pub const NORMAL: u16 = 1000;
    /// The tab was closed, or the server ends.
    pub const GOING_AWAY: u16 = 1001;
    /// A malformed message.
    pub const PROTOCOL: u16 = 1002;
    /// A text message, where only binary ones are expected.
    pub const UNSUPPORTED: u16 = 1003;
    /// No code was sent; never sent itself.
    pub const NO_STATUS: u16 = 1005;
    /// The connection broke; never sent.
    pub const ABNORMAL: u16 = 1006;
    /// Refused: an unknown session, an unknown number, too much of something.
    pub const POLICY: u16 = 1008;
    /// A message that is too long.
    pub const TOO_BIG: u16 = 1009;

    /// The server cannot serve now; a later attempt may succeed.
    pub const TRY_AGAIN: u16 = 1013;

    /// What a code that came means: pages may send few codes of the standard, and add 3000 to the
    /// others.
    pub fn meaning(code: u16) -> u16 {
        if (4000..5000).contains(&code) { code - 3000 } else { code }
    }
}

/// What a socket tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It is connected; told once, first.
    Opened,
    /// A binary message came.
    Packet(Bytes),
    /// The other side showed that it is there (a pong), but said nothing.
    Alive,
    /// It is over; told once, last. What had not left is lost.
    Closed(SocketClose),
}

/// How a socket ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketClose {
    /// Whether the closing handshake took place.
    pub clean: bool,
    /// One of [`close_code`], or another.
    pub code: u16,
    /// What the closing side said, or what went wrong here.
    pub reason: String,
}

impl SocketClose {
    /// Whether a client of the store's server gives its session up, natively and in browsers: the
    /// server closed the socket for a reason that would be the same next time, and said so by a
    /// code of its own. What a proxy says that goes away, restarts or is overloaded (1001, 1011 to
    /// 1014), and what says nothing, is no more than a loss. Neither is the end (1000) of a server
    /// that had not `welcomed` the client: it was that of a group before, and another follows it.
    pub fn is_final(&self, welcomed: bool) -> bool {
        let passing = match close_code::meaning(self.code) {
            close_code::NORMAL => !welcomed,
            code => matches!(
                code,
                close_code::GOING_AWAY | close_code::NO_STATUS | close_code::ABNORMAL | 1011..=1014
            ),
        };
        self.clean && !passing
    }
}

/// A WebSocket, connected or being connected. Nothing in it blocks. Dropping it breaks the
/// connection immediately.
pub trait Socket: Send {
    /// Queues a binary message after those before. Only after [`SocketEvent::Opened`]; dropped
    /// after the end.
    fn send(&mut self, packet: Bytes);
    /// Bytes of queued messages that have not been handed to the system. The sender keeps it low.
    fn buffered(&self) -> usize;
    /// Moves what can be moved now, and takes the next event.
    fn receive(&mut self) -> Option<SocketEvent>;
    /// Asks the other side for a sign of life, where the medium can (browsers cannot): its answer
    /// is [`SocketEvent::Alive`].
    fn ping(&mut self) {}
    /// Starts to close, after what is queued; `reason` has at most 123 bytes. The other side hears
    /// of a clean end; here [`SocketEvent::Closed`] follows. A second call does nothing.
    fn close(&mut self, code: u16, reason: &str);
    /// What a thread may wait for until [`Socket::receive`] is worth calling; `None` where somebody
    /// else calls, as in browsers.
    fn interest(&self) -> Option<Interest> {
        None
    }
}

/// Opens WebSockets.
pub trait Dialer: Send + Sync {
    /// Starts to connect to `url` (`ws://` or `wss://`). What goes wrong later is told by
    /// [`SocketEvent::Closed`].
    ///
    /// # Errors
    /// Where the URL makes no sense or may not be used from here.
    fn dial(&self, url: &str) -> Result<Box<dyn Socket>>;
}

static DIALER: OnceLock<Arc<dyn Dialer>> = OnceLock::new();

/// Says who opens WebSockets in this process from now on; a second call does nothing. For
/// platforms whose sockets the core does not know.
pub fn install_dialer(dialer: Arc<dyn Dialer>) {
    // It is the same one: a platform has one kind of WebSocket.
    let _ = DIALER.set(dialer);
}

/// What opens WebSockets in this process, if anything does.
pub fn dialer() -> Option<Arc<dyn Dialer>> {
    DIALER.get().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_final(clean: bool, code: u16) -> bool {
        SocketClose { clean, code, reason: String::new() }.is_final(true)
    }

    #[test]
    fn what_a_proxy_says_that_goes_away_is_no_more_than_a_loss() {
        for code in [1001, 1005, 1006, 1011, 1012, 1013, 1014, 4001, 4006] {
            assert!(!is_final(true, code), "{code}");
        }
        for code in [1000, 1002, 1003, 1007, 1008, 1009, 1010, 4002, 4008] {
            assert!(is_final(true, code), "{code}");
            assert!(!is_final(false, code), "{code}, but it broke");
        }
    }

    #[test]
    fn a_server_that_ended_before_it_took_a_client_is_followed_by_another() {
        for code in [1000, 1002, 1008] {
            let closed = SocketClose { clean: true, code, reason: String::new() };
            assert_eq!(closed.is_final(false), code != 1000, "{code}");
        }
    }
}
