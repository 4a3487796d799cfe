//! What the WebSockets of a store's server share: their sessions, and who may connect. Knows no
//! socket.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::sessions::{Sessions, SocketId};
#[cfg(feature = "tls")]
use super::tls::Identity;
use crate::store::tcp::server::Settings;
use crate::store::tcp::server::client_count::ClientCount;
use crate::store::tcp::server::service::Service;
use crate::store::tcp::server::waiters::ClientId;
use crate::wire::origin::AllowedOrigins;
use crate::wire::session::DEFAULT_GRACE_MS;

/// What the WebSockets of a server share.
#[derive(Debug)]
pub(in crate::store::tcp::server) struct Web {
    pub(super) sessions: RefCell<Sessions>,
    pub(super) origins: AllowedOrigins,
    #[cfg(feature = "tls")]
    pub(super) identity: Option<Identity>,
    pub(super) last_socket: Cell<SocketId>,
    /// Sockets whose clients are still talked to.
    pub(super) sockets: Cell<usize>,
    /// The last of these has gone.
    pub(super) silence: Notify,
    /// Zero of the sessions' clock.
    pub(super) epoch: Instant,
    /// A session was lost: there may be an earlier end of a wait.
    pub(super) absence: Notify,
}

impl Web {
    pub(in crate::store::tcp::server) fn new(settings: Settings, client_count: ClientCount) -> Web {
        let grace_ms = settings.grace_ms.unwrap_or(DEFAULT_GRACE_MS);
        Web {
            sessions: RefCell::new(Sessions::new(grace_ms, client_count)),
            origins: settings.origins,
            #[cfg(feature = "tls")]
            identity: settings.identity,
            last_socket: Cell::new(0),
            sockets: Cell::new(0),
            silence: Notify::new(),
            epoch: Instant::now(),
            absence: Notify::new(),
        }
    }

    /// The time on the sessions' clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The wait of `client` has ended, if it is a session's.
    pub(in crate::store::tcp::server) fn woken(
        &self,
        client: ClientId,
        service: &mut Service,
    ) -> bool {
        self.sessions.borrow_mut().woken(client, service)
    }

    /// Wakes the sockets of sessions that may have something to send.
    pub(in crate::store::tcp::server) fn wake_unsent(&self) {
        self.sessions.borrow_mut().wake_unsent();
    }

    /// Ends the session that keeps most memory, if that is more than `bytes`; whether it did.
    pub(in crate::store::tcp::server) fn relieve(
        &self,
        bytes: usize,
        service: &mut Service,
    ) -> bool {
        self.sessions.borrow_mut().relieve(bytes, service)
    }

    /// Bytes of memory that all sessions keep.
    pub(in crate::store::tcp::server) fn held_bytes(&self) -> usize {
        self.sessions.borrow().held_bytes()
    }
}
